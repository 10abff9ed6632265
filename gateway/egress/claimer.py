"""The claimer of a process: everything that its sessions leased at this moment becomes one claim statement.

A claim that fails claims nothing: its leases are undone and the references are first in their flows again. Whether a
statement whose answer was lost did claim is found out by the owner (`gateway.ledger.owners.lost_claims`).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import asyncpg

from gateway import logs
from gateway.clock import Clock
from gateway.domain.ids import show
from gateway.domain.suppression import rules_of
from gateway.egress.flights import Flight
from gateway.egress.outcome_writer import OutcomeWriter
from gateway.egress.pump import Pump
from gateway.egress.store_line import STORE_ERRORS, StoreLine
from gateway.egress.submissions import Lease, References, TextMissing, broken_flight, flight_of
from gateway.ledger.claims import HOT_SETTINGS, Wanted, claim, close_overdue, keep_undecided
from gateway.ledger.suppression import suppress_refused
from gateway.ledger.window_closings import classes_closed, turn_back
from gateway.policy.rules.snapshot import Dialect, Policy
from gateway.sealing import SealBroken, Sealer, about_message
from gateway.telemetry import metrics
from scheduler.core.asks import Leased, LeasedItem
from scheduler.core.records import Reference
from scheduler.core.values import valueclass
from scheduler.store.scheduler import IndexUnavailable, Scheduler
from smpp.text import TextError

_BATCH_MAX: Final = 1_000
_LATENCY_S: Final = 0.02
_REST_S: Final = 0.5
_SLICE: Final = 8  # messages that are made ready at a time, about a millisecond
_URGENT_MS: Final = 30_000  # classes that may wait no longer pass others (`gateway.egress.shelf`)
_log = logs.get("egress.claimer")


@dataclass(slots=True, eq=False)
class Claims:
    """One session as the claimer sees it; `pending` counts leased messages that are not in its pump yet."""

    session: str
    provider: str
    pump: Pump
    pending: int = 0


@valueclass
class ClaimerParts:
    """What the claimer works with; `policy` gives the snapshot of the moment."""

    scheduler: Scheduler
    writer: OutcomeWriter
    clock: Clock
    line: StoreLine
    policy: Callable[[], Policy]
    owner_id: int
    references: References
    sealer: Sealer


@valueclass
class _Asked:
    claims: Claims
    leased: Leased


class Claimer:
    """One task; sessions ask, the winners arrive in their pumps."""

    def __init__(self, parts: ClaimerParts) -> None:
        self.latency_s = _LATENCY_S
        self._parts = parts
        self._asked: list[_Asked] = []
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._claiming_since_at: int | None = None

    def ask(self, claims: Claims, leased: Leased) -> None:
        """Queues a lease for the next claim."""
        claims.pending += len(leased.items)
        self._asked.append(_Asked(claims, leased))
        self._idle.clear()
        self._wake.set()

    def quiet_before_at(self) -> int:
        """Claims made before this moment (queue's clock) have answered or never will."""
        return self._parts.clock.now_at() if self._claiming_since_at is None else self._claiming_since_at

    async def wait_idle(self) -> None:
        """Returns once nothing is asked and no claim is under way."""
        await self._idle.wait()

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._wake.wait()
            batch, size = [], 0
            while self._asked and size < _BATCH_MAX:
                batch.append(self._asked.pop(0))
                size += len(batch[-1].leased.items)
            try:
                await self._claim(batch)
            finally:
                self._claiming_since_at = None
                for asked in batch:
                    asked.claims.pump.run()  # what was leased in vain is missing again: nothing else would tell
                if not self._asked:
                    self._wake.clear()
                    self._idle.set()

    async def _claim(self, batch: list[_Asked]) -> None:
        clock = self._parts.clock
        began_mono, now_at = clock.now_mono(), clock.now_at()
        self._claiming_since_at = now_at
        by_id = {item.reference.id: (asked, item) for asked in batch for item in asked.leased.items}
        wanted = [
            Wanted(item.reference.id, item.reference.slot, asked.claims.provider, asked.claims.session)
            for asked, item in by_id.values()
        ]
        pending = Counter[Claims]()
        for asked in batch:
            pending[asked.claims] += len(asked.leased.items)
        try:
            rows = await self._win(batch, by_id, wanted, now_at)
            if rows is None:
                return
            self._measure(clock.now_mono() - began_mono)
            await self._hand_out(rows, by_id, began_mono, pending)
        finally:
            for claims, count in pending.items():
                claims.pending -= count
        won = {row["id"].bytes for row in rows}
        await self._acknowledge(batch, won)
        await self._close_overdue(batch, won, now_at)

    async def _win(
        self,
        batch: list[_Asked],
        by_id: Mapping[bytes, tuple[_Asked, LeasedItem]],
        wanted: list[Wanted],
        now_at: int,
    ) -> list[asyncpg.Record] | None:
        """The rows of those that are ours now; None where the ledger did not answer and the leases are undone."""
        try:
            conn = await self._parts.line.connection()
            await self._turn_back(conn, by_id, now_at)
            return await claim(conn, wanted, self._parts.owner_id, now_at, rules_of(self._parts.policy()))
        except STORE_ERRORS as fault:
            self._parts.line.drop()
            _log.warning("claim_failed", error=type(fault).__name__, messages=len(wanted))
            await self._restore(batch)
            return None

    def _measure(self, took_s: float) -> None:
        metrics.claim_seconds.observe(took_s)
        self.latency_s += (took_s * 2 - self.latency_s) / 16  # the lease before it takes about as long again

    async def _turn_back(
        self, conn: asyncpg.Connection[Any], by_id: Mapping[bytes, tuple[_Asked, LeasedItem]], now_at: int
    ) -> None:
        """What may not leave at this hour waits for its send window; the claim finds its slot closed."""
        policy = self._parts.policy()
        classes = classes_closed(policy, now_at)
        wanted = [_wanted(asked.claims, item.reference) for asked, item in by_id.values() if item.class_name in classes]
        if not wanted:
            return
        async with conn.transaction():
            expired = await turn_back(conn, policy, wanted, now_at)
        for one in expired:
            metrics.expired_total.labels(one.class_name, one.cause, one.stage).inc()

    async def _hand_out(
        self,
        rows: list[asyncpg.Record],
        by_id: Mapping[bytes, tuple[_Asked, LeasedItem]],
        claimed_mono: float,
        pending: Counter[Claims],
    ) -> None:
        """The winners to their sessions, in the order in which the scheduler leased them; `pending` becomes empty.

        They are made ready a few at a time, so that answers are not kept waiting, and leave together: in one write.
        """
        found = {row["id"].bytes: row for row in rows}
        for row in rows:
            if self._parts.sealer.knows(row["body_key_id"]):
                self._parts.writer.hold(row["id"])
        flights: dict[Claims, list[Flight]] = {}
        for place, (id_, (asked, item)) in enumerate(by_id.items(), 1):
            if place % _SLICE == 0:
                await asyncio.sleep(0)
            row = found.get(id_)
            if row is None:
                continue
            if not self._parts.sealer.knows(row["body_key_id"]):
                # Not held: as an unwritten claim of ours it goes back to the queue, and to a process with the key.
                _log.error("data_key_missing", message_id=show(row["id"]), data_key=row["body_key_id"])
                continue
            lease = Lease(item.reference.queued_at, item.reference.deadline_at, item.spacing_ms, claimed_mono)
            flight = self._flight(row, lease, self._parts.policy(), asked.claims.provider)
            flights.setdefault(asked.claims, []).append(flight)
        # Before the winners reach their pumps: what their answers use up must count as missing at once.
        for claims, count in pending.items():
            claims.pending -= count
        pending.clear()
        for claims, ready in flights.items():
            claims.pump.add(ready)

    def _flight(self, row: Mapping[str, Any], lease: Lease, policy: Policy, provider: str) -> Flight:
        carrier = policy.providers.get(provider)
        dialect = carrier.dialect if carrier is not None else Dialect()
        try:
            flight = flight_of(self._opened(row), lease, dialect, provider, self._parts.references)
        except (SealBroken, TextError, TextMissing, ValueError, OverflowError) as fault:
            _log.error("message_unsendable", message_id=show(row["id"]), error=type(fault).__name__)
            return broken_flight(row, lease, provider, "unsendable")
        flight.route = row["route"]
        traffic = policy.classes.get(flight.class_name)
        flight.urgent = traffic is not None and traffic.wait_budget_ms <= _URGENT_MS
        return flight

    def _opened(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The claimed row with its text as the tenant wrote it."""
        if row["body"] is None:
            return row
        about = about_message(row["tenant_id"], row["id"])
        return {**row, "body": self._parts.sealer.open(row["body_key_id"], bytes(row["body"]), about)}

    async def _acknowledge(self, batch: list[_Asked], won: set[bytes]) -> None:
        """The leases are over; tokens of references whose slot was somebody else's go back to their buckets."""
        await _end_leases(
            self._parts.scheduler.ack(
                asked.leased.lease_id,
                [(item.reference, item.flow_key) for item in asked.leased.items if item.reference.id not in won],
            )
            for asked in batch
        )

    async def _restore(self, batch: list[_Asked]) -> None:
        """Nothing was claimed: others may take the references at once, this process rests until the ledger may be back.

        Meanwhile the batch still counts as pending, so that its sessions lease nothing more.
        """
        await _end_leases(self._parts.scheduler.restore(asked.leased.lease_id) for asked in batch)
        await asyncio.sleep(random.uniform(_REST_S / 2, _REST_S))

    async def _close_overdue(self, batch: list[_Asked], won: set[bytes], now_at: int) -> None:
        """References past their deadline are closed where they were found (a sweep would find them later)."""
        overdue = [(asked.claims, reference) for asked in batch for reference in asked.leased.expired]
        overdue += [
            (asked.claims, item.reference)
            for asked in batch
            for item in asked.leased.items
            if item.reference.id not in won  # most were decided elsewhere; the ledger knows which ran out of time
        ]
        if not overdue:
            return
        doubtful = self._parts.clock.doubtful  # whether somebody may be written to is no matter of time
        wanted = [_wanted(claims, reference) for claims, reference in overdue]
        try:
            conn = await self._parts.line.connection()
            async with conn.transaction():
                policy, owner_id = self._parts.policy(), self._parts.owner_id
                closed = [] if doubtful else await close_overdue(conn, policy, wanted, owner_id, now_at)
                stopped = await suppress_refused(conn, policy, wanted, owner_id, now_at)
            if len(closed) + len(stopped) < len(wanted):
                await keep_undecided(conn, wanted, now_at)
        except STORE_ERRORS as fault:
            self._parts.line.drop()
            _log.warning("expiry_failed", error=type(fault).__name__, messages=len(wanted))
            return
        for one in closed:
            metrics.expired_total.labels(one.class_name, one.cause, one.stage).inc()
        for refused in stopped:
            metrics.suppressed_total.labels(refused.reason).inc()


def claim_line(url: str) -> StoreLine:
    """The connection that claims are made on."""
    return StoreLine(url, HOT_SETTINGS)


async def _end_leases(calls: Iterable[Coroutine[Any, Any, bool]]) -> None:
    """Where the index is away a lease runs out by itself; references with closed slots are dropped at the claim."""
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, IndexUnavailable):
            raise result


def _wanted(claims: Claims, reference: Reference) -> Wanted:
    return Wanted(reference.id, reference.slot, claims.provider, claims.session)
