"""What every call at the door needs and shares: rate, verdicts, kept answers, the group commit, the count of decisions.

Each question to a store is a micro-batch over all calls that wait at that moment; every wait has a bound.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from prometheus_client import Counter, Gauge
from redis.exceptions import RedisError

from gateway.admission.consent import consent_problem
from gateway.admission.judgement import Allowed, Moment
from gateway.admission.problems import (
    IDEMPOTENCY_CONFLICT,
    IDEMPOTENCY_IN_PROGRESS,
    OVERLOAD,
    STORAGE,
    Problem,
)
from gateway.api.answers import REPLAYED, Answer, Headers, problem_answer, raw_answer
from gateway.api.daily_caps import DailyCaps, seconds_to_midnight
from gateway.api.door_rate import REDIS_S, DoorRate, Grant, Toll
from gateway.api.queueing import Queueing
from gateway.api.tenant_tallies import TenantTallies
from gateway.domain import ids
from gateway.gathering import Gatherer, GatheringFull
from gateway.ledger import consents, idempotency
from gateway.ledger.acceptance import (
    BUSY,
    WON,
    WRITERS,
    Acceptance,
    Call,
    LedgerOverloaded,
    LedgerUnavailable,
)
from gateway.ledger.connect import LEDGER_ERRORS
from gateway.ledger.consents import Asked, Standing
from gateway.ledger.idempotency import Kept, KeyPlace
from gateway.policy.rules.snapshot import Policy, Tenant
from gateway.runtime import Runtime
from gateway.telemetry import metrics
from scheduler.core.asks import Ask, Verdict
from scheduler.core.values import valueclass
from scheduler.store.scheduler import IndexUnavailable

MESSAGES, BATCH = "messages", "batch"
NO_CLASS: Final = "none"
_ASKS_MAX, _LOOK_UPS_MAX = 500, 500
# How far apart the calls of a crowd are. Whoever is looked up only to be refused is in no hurry.
_ASKS_PACE_S, _LOOK_UPS_PACE_S = 0.004, 0.015
_REMEMBERED_MAX, _REMEMBERED_OCTETS_MAX, _REMEMBERED_S = 5_000, 4_096, 60.0

_doors = itertools.count(1)


@valueclass
class TenantRef:
    """The tenant that a call belongs to."""

    id: int
    name: str


@valueclass
class Visit:
    """One call at the door after its toll: whose, under which key, with which body; `headers` go on every answer."""

    tenant: TenantRef
    place: KeyPlace
    fingerprint: bytes
    headers: Headers


class Desk:
    """The shared parts of a door."""

    def __init__(self, rt: Runtime) -> None:
        self.rt = rt
        # A process may have a second door, for messages by hand: each counts usage in rows of its own.
        worker = f"{rt.worker}:{next(_doors)}"
        self.caps = DailyCaps(rt.pool, worker, rt.clock)
        self._rate = DoorRate(rt.redis, rt.settings.cell)
        self._asks: Gatherer[Ask, Verdict | None] = Gatherer(self._admit, _ASKS_MAX, pace_s=_ASKS_PACE_S)
        self._look_ups: Gatherer[KeyPlace, Kept | None] = Gatherer(
            self._look_up, _LOOK_UPS_MAX, pace_s=_LOOK_UPS_PACE_S
        )
        self._consents: Gatherer[Asked, Standing] = Gatherer(self._look_into_lists, _LOOK_UPS_MAX, pace_s=_ASKS_PACE_S)
        self._queueing = Queueing(rt.pool, rt.scheduler)
        self._acceptance = Acceptance(rt.pool, worker, rt.clock.now_at, self.new_id, rt.sealer, self._queueing.put)
        self._running: set[KeyPlace] = set()
        self._remembered: OrderedDict[KeyPlace, tuple[float, Kept]] = OrderedDict()
        self._counters: dict[tuple[str, str, str], Counter] = {}
        self._waits: dict[tuple[str, str], Gauge] = {}
        self._tasks: list[asyncio.Task[Any]] = []
        # Held for a turn of the loop with each chunk of a batch that is worked: however many batches come at once, a
        # single message waits for one chunk.
        self.batch_turn = asyncio.Lock()
        self.tallies = TenantTallies()
        rt.tenants_told = self.tallies.told

    def start(self) -> None:
        """Starts the gatherers and writers as tasks of the process."""
        works = {"door-tolls": self._rate.run(), "door-asks": self._asks.run(), "door-look-ups": self._look_ups.run()}
        works["door-consents"] = self._consents.run()
        works |= {f"door-writer-{n}": self._acceptance.write(n) for n in range(WRITERS)}
        works["door-queueing"] = self._queueing.run()
        self._tasks = [self.rt.spawn(work, name) for name, work in works.items()]

    async def stop(self) -> None:
        """Writes and queues what waits, then ends. No call may be open any more."""
        self._rate.stop()
        self._asks.stop()
        self._look_ups.stop()
        self._consents.stop()
        self._acceptance.stop()
        await asyncio.gather(*self._tasks[:-1], return_exceptions=True)
        self._queueing.stop()
        await asyncio.gather(*self._tasks[-1:], return_exceptions=True)

    @property
    def policy(self) -> Policy | None:
        """The policy in use; None before the first one."""
        return self.rt.policies.current

    @property
    def in_step(self) -> bool:
        """Whether this process may decide: one on another version than the one in force does not."""
        return self.rt.policies.in_step

    def new_id(self) -> UUID:
        """An id of now."""
        return ids.uuid7(self.rt.clock.now_at(), os.urandom(10))

    def moment(self, policy: Policy, tenant: TenantRef) -> Moment:
        """What one decision is made from."""
        return Moment(policy, tenant.name, self.rt.clock.now_at(), self.rt.pepper, random.random())

    async def toll(self, tenant: TenantRef, rules: Tenant, cost: int) -> Grant | None:
        """Takes the door's rate; None where Redis does not answer."""
        return await self._rate.take(Toll(tenant.id, rules.requests, cost))

    async def verdicts(self, asks: Sequence[Ask]) -> list[Verdict | None]:
        """The scheduler's word on each ask, in order; None where the index does not answer."""
        try:
            return await self._asks.ask_many(asks)
        except GatheringFull:
            return [None] * len(asks)

    async def consent(self, tenant: TenantRef, asked: Sequence[Allowed]) -> list[Problem | None]:
        """Why each of these may not be sent to its recipient, in order; STORAGE where the lists cannot be read.

        Only classes that heed a list cost a look, and all that wait share one. The claim looks again.
        """
        found: list[Problem | None] = [None] * len(asked)
        places = [place for place, one in enumerate(asked) if one.traffic.consent is not None]
        if not places:
            return found
        try:
            standings = await self._consents.ask_many(
                [Asked(tenant.id, asked[place].recipient, asked[place].sender) for place in places]
            )
        except (*LEDGER_ERRORS, GatheringFull):
            return [STORAGE if one.traffic.consent is not None else None for one in asked]
        for place, standing in zip(places, standings, strict=True):
            found[place] = consent_problem(
                asked[place].traffic, opted_out=standing.opted_out, opted_in=standing.opted_in
            )
        return found

    def enter(self, place: KeyPlace) -> bool:
        """Whether no other call with this key is being worked on here; if so this one is, until `leave`."""
        if place in self._running:
            return False
        self._running.add(place)
        return True

    def leave(self, place: KeyPlace) -> None:
        """The end of a call that entered."""
        self._running.discard(place)

    async def refuse(self, visit: Visit, problem: Problem) -> Answer:
        """A refusal, unless the key has an answer already: that one comes before any refusal but `quota.rate`."""
        try:
            kept = await self._kept(visit.place)
        except LedgerUnavailable:
            return problem_answer(STORAGE, visit.headers)
        return problem_answer(problem, visit.headers) if kept is None else self.replay(visit, kept)

    def refuse_rate(self, tenant: TenantRef, retry_after_s: int, headers: Headers) -> Answer:
        """The one refusal that comes before everything else."""
        problem = Problem(
            "quota.rate", "The tenant sends more messages per second than agreed.", retry_after_s=retry_after_s
        )
        self.count_refusal(tenant, NO_CLASS, problem)
        return problem_answer(problem, headers)

    def remembered(self, visit: Visit) -> Answer | None:
        """The answer of a key that this process gave a moment ago."""
        held = self._remembered.get(visit.place)
        if held is None or self.rt.clock.now_mono() - held[0] > _REMEMBERED_S:
            return None
        return self.replay(visit, held[1])

    async def known(self, visit: Visit) -> Answer | None:
        """The answer that the key has already, asked of the ledger; worth it where the work ahead is large."""
        try:
            kept = await self._kept(visit.place)
        except LedgerUnavailable:
            return problem_answer(STORAGE, visit.headers)
        return None if kept is None else self.replay(visit, kept)

    async def keep(self, visit: Visit, call: Call) -> Answer | None:
        """Makes a call durable. None: it is; else the answer that it gets instead.

        Raises CommitUnknown where a refusal could be a lie: that call must get no answer at all, so that its client
        repeats it with the same key (reliability section 4, PostgreSQL crashes between commit and answer).
        """
        try:
            outcome = await self._acceptance.keep(call)
            if outcome == WON:
                self._remember(visit.place, Kept(call.fingerprint, 202, call.answer))
                return None
            if outcome == BUSY:
                return problem_answer(IDEMPOTENCY_IN_PROGRESS, visit.headers)
            kept = await self._kept(visit.place)
        except LedgerUnavailable:
            return problem_answer(STORAGE, visit.headers)
        except LedgerOverloaded:
            return problem_answer(OVERLOAD, visit.headers)
        return problem_answer(STORAGE, visit.headers) if kept is None else self.replay(visit, kept)

    def replay(self, visit: Visit, kept: Kept) -> Answer:
        """The first answer again, or a conflict where the body is another."""
        if kept.fingerprint != visit.fingerprint:
            self.count(NO_CLASS, "refuse", IDEMPOTENCY_CONFLICT.code)
            return problem_answer(IDEMPOTENCY_CONFLICT, visit.headers)
        self.count(NO_CLASS, "replay", "replay")
        return raw_answer(kept.status, kept.body, (*visit.headers, *location_of(kept.body), REPLAYED))

    async def promise(self, tenant: TenantRef, rules: Tenant, segments: int) -> Problem | None:
        """Takes segments of the day's cap; the problem where there is no room or no way to know."""
        now_at = self.rt.clock.now_at()
        try:
            if await self.caps.promise(tenant.id, segments, rules.daily_segments, now_at):
                return None
        except LEDGER_ERRORS:
            return STORAGE
        return _over_the_cap(rules, now_at)

    async def over_the_cap(self, tenant: TenantRef, rules: Tenant, segments: int) -> Problem | None:
        """What `promise` would say, without taking anything."""
        now_at = self.rt.clock.now_at()
        try:
            room = await self.caps.has_room(tenant.id, segments, rules.daily_segments, now_at)
        except LEDGER_ERRORS:
            return STORAGE
        return None if room else _over_the_cap(rules, now_at)

    def count(self, class_name: str, verdict: str, reason: str) -> None:
        """One decision of the door for the metrics."""
        counter = self._counters.get((class_name, verdict, reason))
        if counter is None:
            counter = metrics.admissions_total.labels(class_name, verdict, reason)
            self._counters[class_name, verdict, reason] = counter
        counter.inc()

    def count_accepted(self, tenant: TenantRef, class_name: str, segments: int, *, deferred: bool) -> None:
        """One accepted message for the metrics and the tenant's tally."""
        self.tallies.accepted(tenant.name, segments)
        self.count(class_name, "defer" if deferred else "accept", "ok")
        metrics.segments_admitted_total.labels(class_name).inc(segments)

    def note_wait(self, class_name: str, route: str, predicted_ms: int) -> None:
        """What the door would promise now, for the metrics."""
        gauge = self._waits.get((class_name, route))
        if gauge is None:
            gauge = self._waits[class_name, route] = metrics.predicted_wait_seconds.labels(class_name, route)
        gauge.set(predicted_ms / 1000)

    def count_refusal(self, tenant: TenantRef, class_name: str, problem: Problem) -> None:
        """One refusal for the metrics and the tenant's tally."""
        self.tallies.refused(tenant.name, problem.code)
        self.count(class_name, "slow_down" if problem.status == 429 else "refuse", problem.code)

    def _remember(self, place: KeyPlace, kept: Kept) -> None:
        if len(kept.body) > _REMEMBERED_OCTETS_MAX:
            return
        self._remembered[place] = (self.rt.clock.now_mono(), kept)
        if len(self._remembered) > _REMEMBERED_MAX:
            self._remembered.popitem(last=False)

    async def _kept(self, place: KeyPlace) -> Kept | None:
        try:
            return await self._look_ups.ask(place)
        except (*LEDGER_ERRORS, GatheringFull):
            raise LedgerUnavailable from None

    async def _look_up(self, places: list[KeyPlace]) -> list[Kept | None]:
        async with self.rt.pool.acquire(timeout=0.25) as conn:
            return await idempotency.look_up(conn, places)

    async def _look_into_lists(self, asked: list[Asked]) -> list[Standing]:
        async with self.rt.pool.acquire(timeout=0.25) as conn:
            return await consents.standings(conn, asked)

    async def _admit(self, asks: list[Ask]) -> list[Verdict | None]:
        try:
            async with asyncio.timeout(REDIS_S):
                return list(await self.rt.scheduler.admit(asks))
        except (IndexUnavailable, RedisError, OSError, TimeoutError):
            return [None] * len(asks)


def _over_the_cap(rules: Tenant, now_at: int) -> Problem:
    return Problem(
        "quota.daily",
        f"The tenant may send {rules.daily_segments} segments per UTC day.",
        members={"daily_segments": rules.daily_segments},
        retry_after_s=seconds_to_midnight(now_at),
    )


def location_of(body: bytes) -> Headers:
    """Location of the message that a single call's answer is about; a batch has none."""
    if not body.startswith(b'{"id":"msg_'):
        return ()
    return ((b"location", b"/v1/messages/" + body[7 : body.index(b'"', 7)]),)
