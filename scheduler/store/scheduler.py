"""The scheduler as the roles use it: one call per question, each one Lua script (design section 3)."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from redis.asyncio import ConnectionPool, Redis
from redis.exceptions import RedisError

from scheduler.core.asks import (
    Ask,
    Blocker,
    ExplainAsk,
    Explanation,
    Health,
    IndexReport,
    LeaseAsk,
    Leased,
    Outcomes,
    Verdict,
)
from scheduler.core.blockers import blockers
from scheduler.core.names import escape, scope_pair, unescape
from scheduler.core.records import Entry, Reference, retry_key
from scheduler.core.tuning import Tuning
from scheduler.store.rebuilding import Rebuilding
from scheduler.store.scripts import IndexUnavailable, ScriptRunner
from scheduler.store.wire import (
    asks_out,
    due_out,
    entries_out,
    items_in,
    line_in,
    references_in,
    report_in,
    tuning_out,
    verdicts_in,
)

__all__ = ["IndexUnavailable", "Scheduler"]

LEASE_MAX = 200  # a lease of 100 blocks the server for 0.3 to 0.7 ms
SEGMENTS_MAX = 1_000_000
TOMBSTONES_MAX = 5_000
LISTEN_S = 5.0
_LOOK_PAGE, _LOOKS_MAX = 1_000, 1_000  # the scripts' CHUNK; pages of what waits


class Scheduler:
    """Lines, flows and limits of one cell on a Redis or Valkey.

    Every method raises IndexUnavailable where the store is down, lost or being rebuilt. `clock` (UTC ms) replaces the
    server's clock in tests. The client must not decode responses.
    """

    def __init__(self, redis: Redis, cell: str = "c1", clock: Callable[[], float] | None = None) -> None:
        if redis.connection_pool.connection_kwargs.get("decode_responses"):
            raise ValueError("the scheduler needs a client with decode_responses off")
        self._redis = redis
        self._clock = clock
        self._prefix = f"{{{cell}}}:"
        self._runner = ScriptRunner(redis, self._prefix)
        self._rebuilding = Rebuilding(redis, self._runner, self._now)
        self._waiting: Redis | None = None
        self._listeners: dict[str, asyncio.Task[bool]] = {}
        self._tuning: Tuning | None = None

    def _now(self) -> str:
        return "" if self._clock is None else repr(float(self._clock()))

    async def now_at(self) -> int:
        """The queue's clock, UTC ms."""
        if self._clock is not None:
            return int(self._clock())
        try:
            seconds, microseconds = await self._redis.time()
        except (RedisError, OSError, TimeoutError) as fault:
            raise IndexUnavailable("down") from fault
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def aclose(self) -> None:
        """Closes the connections of `wait`; the client that was given stays open."""
        listeners = list(self._listeners.values())
        for session in list(self._listeners):
            self._deafen(session)
        await asyncio.gather(*listeners, return_exceptions=True)
        if self._waiting is not None:
            await self._waiting.aclose()
            self._waiting = None

    # Policy

    async def tune(self, tuning: Tuning) -> None:
        """Takes a policy version; one that is not newer changes nothing. Token fill is kept."""
        self._tuning = tuning
        await self._tune(forced=False)

    async def _tune(self, *, forced: bool) -> None:
        if self._tuning is None:
            return
        taken = await self._runner.run("tune", self._now(), tuning_out(self._tuning), "1" if forced else "0")
        if taken:
            with suppress(IndexUnavailable):  # in an index that is lost nothing waits
                await self._look_again(*(("unpark", "unhold") if taken == 2 else ("unpark",)))

    async def _run_tuned(self, name: str, *args: object) -> object:
        """Runs a script that needs a tuning; a server that forgot it (emptied) is told again, once."""
        try:
            return await self._runner.run(name, self._now(), *args)
        except IndexUnavailable as fault:
            if fault.reason != "untuned" or self._tuning is None:
                raise
        await self._tune(forced=False)
        return await self._runner.run(name, self._now(), *args)

    # Door

    async def admit(self, asks: Sequence[Ask]) -> list[Verdict]:
        """A verdict per ask, in order, by one call; earlier asks of the call count for later ones."""
        if not asks:
            return []
        reply = await self._run_tuned("admit", *asks_out(asks))
        return verdicts_in(asks, cast(list[Any], reply))

    async def enqueue(self, batch_id: bytes, entries: Sequence[Entry]) -> bool:
        """Queues a committed batch; False when this batch was queued before (its marker stands for an hour)."""
        reply = await self._runner.run("enqueue", self._now(), "enqueue", batch_id, *entries_out(entries))
        return bool(reply)

    # Pump

    async def lease(self, ask: LeaseAsk) -> Leased:
        """Takes up to `want` messages that may go now, for `lease_ms`; see Leased."""
        lease_id = secrets.token_bytes(8)
        if ask.want <= 0:
            return Leased(lease_id)
        reply = await self._run_tuned(
            "lease",
            escape(ask.provider),
            escape(ask.session),
            min(ask.want, LEASE_MAX),
            SEGMENTS_MAX if ask.want_segments is None else ask.want_segments,
            ask.lease_ms,
            lease_id,
            *(escape(name) for name in ask.without),
        )
        blob, expired, wait_ms, cause = cast(tuple[bytes, bytes, int, bytes], reply)
        items = items_in(blob)
        return Leased(
            lease_id,
            items,
            references_in(expired),
            wait_ms if wait_ms >= 0 and not items else None,
            unescape(cause.decode()) or None if not items else None,
        )

    async def ack(self, lease_id: bytes, given_back: Sequence[tuple[Reference, str]] = ()) -> bool:
        """Ends a lease; the tokens of those given back (never submitted) return, their references do not.

        False when the lease had lapsed: its references are back in the queue.
        """
        bodies: dict[str, list[bytes]] = {}
        for reference, flow_key in given_back:
            bodies.setdefault(flow_key, []).append(reference.pack())
        args = [x for key, packed in bodies.items() for x in (key, b"".join(packed))]
        return bool(await self._runner.run("ack", self._now(), lease_id, "ack", *args))

    async def restore(self, lease_id: bytes) -> bool:
        """Ends a lease that was not used: references back to the head of their flows at once, tokens too."""
        return bool(await self._runner.run("ack", self._now(), lease_id, "restore"))

    async def tombstone(self, ids: Sequence[bytes], keep_ms: int) -> None:
        """References to these messages are dropped when they come up; kept for `keep_ms`.

        An id of 16 octets means every slot of the message, 20 octets (id and slot as in a reference) that slot alone.
        """
        for at in range(0, len(ids), TOMBSTONES_MAX):
            await self._steer("tombstone", keep_ms, *ids[at : at + TOMBSTONES_MAX])

    async def sweep(self, provider: str, from_: int = 0) -> tuple[int, int | None]:
        """Drops what ended (past its deadline, canceled) at the heads of flows, where no lease comes by to do it.

        Returns how many were dropped, and the `from_` of the next call (flows to pass over); None where all were seen.
        """
        dropped, go_on = cast(list[int], await self._run_tuned("sweep", escape(provider), from_))
        return dropped, go_on if go_on >= 0 else None

    async def wait(self, provider: str, session: str, timeout_s: float) -> bool:
        """Blocks until a line of the session's provider turns eligible; True when woken, False after the timeout."""
        listener = self._listeners.get(session)
        if listener is None:
            listener = self._listeners[session] = asyncio.create_task(self._listen(session), name="wake_list")
        try:
            # The server looks at its own timeouts ten times a second only: a token that is due would wait for that.
            done, _ = await asyncio.wait({listener}, timeout=timeout_s)
        except asyncio.CancelledError:
            self._deafen(session)
            raise
        if not done:
            return False
        self._listeners.pop(session, None)
        try:
            return listener.result()
        except (RedisError, OSError, TimeoutError) as fault:
            raise IndexUnavailable("down") from fault
        except asyncio.CancelledError:
            return False

    async def _listen(self, session: str) -> bool:
        """Takes one wake; False where none came for a while."""
        if self._waiting is None:
            # Connections of their own: a blocking read must neither hold up scripts nor meet their socket timeout.
            arguments = {**self._redis.connection_pool.connection_kwargs, "socket_timeout": None}
            kind = self._redis.connection_pool.connection_class
            self._waiting = Redis(connection_pool=ConnectionPool(connection_class=kind, **arguments))
        async with asyncio.timeout(2 * LISTEN_S):
            return await self._waiting.blpop([f"{self._prefix}wake:{escape(session)}"], timeout=LISTEN_S) is not None

    def _deafen(self, session: str) -> None:
        """Takes no more wakes of a session: they are another's now."""
        listener = self._listeners.pop(session, None)
        if listener is not None:
            listener.cancel()

    # Reports and orders

    async def _steer(self, verb: str, *args: object) -> int:
        return int(await self._runner.run("steer", self._now(), verb, *args))

    async def forget_session(self, provider: str, session: str) -> None:
        """No more wakes; down as well."""
        self._deafen(session)
        await self._steer("forget", escape(provider), escape(session))

    async def session_up(
        self, provider: str, session: str, ramp_start: float = 1.0, ramp_double_every_ms: int = 5_000
    ) -> None:
        """The session is bound and gets wakes; its rate starts at a share of its limit and doubles until whole.

        Told again of one that is up, it changes nothing.
        """
        args = escape(provider), escape(session), ramp_start, ramp_double_every_ms
        await self._steer("up", *args)

    async def session_down(self, provider: str, session: str, back_at: int | None = None) -> None:
        """The session is no longer bound; `back_at` (UTC ms) is when the next try to bind begins, if known.

        A provider without any session counts as away after 2 s.
        """
        self._deafen(session)
        await self._steer("down", escape(provider), escape(session), "" if back_at is None else back_at)

    async def report_outcomes(self, provider: str, session: str, outcomes: Outcomes) -> Health:
        """What a session's carrier answered since the last report; see Outcomes. Decides about pace and breakers."""
        one = outcomes
        reply = await self._runner.run(
            "health",
            self._now(),
            escape(provider),
            escape(session),
            one.good,
            one.errors,
            one.throttled,
            one.round_trip_ms,
            one.rate_per_s,
            one.waiting,
            one.unanswered_ms,
            *one.queue_full_destinations,
        )
        share, breaker, probe_at, rate = (int(number) for number in cast(list[int], reply))
        return Health(
            rate_share=share / 1_000_000,
            breaker=("closed", "open", "half_open")[breaker],
            open_until=probe_at if breaker else None,
            rate_per_s=rate / 1_000 if rate else None,
        )

    async def slow(self, session: str, factor: float = 0.7, round_trip_ms: float = 200) -> None:
        """The carrier throttles: the session's rate shrinks, at most once a round trip, and grows by 5 % a second."""
        await self._steer("slow", escape(session), factor, round_trip_ms)

    async def pause(self, scope: str, until: int | None = None) -> None:
        """Holds everything that needs a scope (`kind:name`), until an instant or until resumed.

        Works for a scope that no policy limits too: application and route stand in every flow's key.
        """
        await self._steer("pause", escape(scope), "" if until is None else until)

    async def resume(self, scope: str) -> None:
        """Ends a pause with an empty bucket; parked flows are looked at again."""
        await self._steer("resume", escape(scope))
        await self._look_again("unpark")

    async def look_again(self) -> None:
        """Has all that waits for an instant looked at: who brought other limits may have ended before it did."""
        await self._look_again("unpark", "unhold")

    async def _look_again(self, *verbs: str) -> None:
        """Has what waits for an instant looked at again, by pages; what is parked anew meanwhile is not meant."""
        for provider in {provider for provider, _ in await self.counts()}:
            for verb in verbs:
                for _ in range(_LOOKS_MAX):
                    if await self._steer(verb, escape(provider)) < _LOOK_PAGE:
                        break

    async def report_answers(self, provider: str, counts: Mapping[str, int]) -> None:
        """Segments that the carrier answered since the last report, per class: what drain is measured by."""
        pairs = [x for name, segments in counts.items() for x in (escape(name), segments)]
        if pairs:
            await self._steer("answered", escape(provider), *pairs)

    async def answered(self, provider: str, segments: int, class_name: str) -> None:
        """`report_answers` for one class."""
        await self.report_answers(provider, {class_name: segments})

    async def due_work(self, works: Mapping[str, Sequence[tuple[int, int, int]]], complete: bool) -> None:
        """What waits in the ledger's due table per flow key, as buckets (due at UTC ms, messages, segments).

        `complete`: the mapping is all there is, and flows that it does not name have none. An empty sequence forgets
        a flow's work. Estimates count what falls due before a message's own turn.
        """
        args = due_out(works)
        for at in range(0, max(1, len(args)), 1_000):
            await self._steer("due", "1" if complete and at == 0 else "0", *args[at : at + 1_000])

    async def counts(self) -> dict[tuple[str, str], int]:
        """Queued and leased messages per (provider, class)."""
        reply = await self._runner.run("report", self._now(), "counts")
        return {line_in(reply[at].decode()): int(reply[at + 1]) + int(reply[at + 2]) for at in range(0, len(reply), 3)}

    async def report(self) -> IndexReport:
        """Lines, the 20 largest tenants and the scopes that something waits for."""
        return report_in(json.loads(await self._runner.run("report", self._now(), "report")))

    async def blockers(self) -> list[Blocker]:
        """What holds work now, by class, the largest first."""
        return blockers(await self.report())

    async def capacity(self, asks: Sequence[Ask]) -> list[Verdict]:
        """The verdicts that these asks would get now; leaves no trace."""
        return await self.admit([replace(ask, probe=True) for ask in asks])

    async def explain(self, ask: ExplainAsk) -> Explanation:
        """Why one queued reference waits, its place and its predicted start; a few looks, whatever waits."""
        key = retry_key(ask.flow) if ask.retry else ask.flow.key
        reply = await self._run_tuned("explain", key, ask.reference.pack())
        scope, missing, position, start_ms = cast(tuple[bytes, bytes, int, int], reply)
        kind, name = scope_pair(unescape(scope.decode()))
        return Explanation(
            scope=(kind, name),
            tokens_missing=float(missing) if missing else None,
            position=position or None,
            predicted_start=None if start_ms < 0 else await self.now_at() + start_ms,
        )

    # Epoch

    async def epoch_state(self) -> str:
        """`ready`, `loading` or `lost`: nothing is served before a rebuild (also on a server that is new)."""
        return await self._rebuilding.state()

    async def begin_rebuild(self) -> str | None:
        """Starts a rebuild: the index is emptied and closed; the epoch's name, or None while another is at it."""
        epoch = await self._rebuilding.begin()
        if epoch is not None:
            await self._tune(forced=True)
        return epoch

    async def load(self, epoch: str, entries: Sequence[Entry]) -> None:
        """Queues entries of the ledger during a rebuild."""
        await self._rebuilding.load(epoch, entries)

    async def open_class(self, epoch: str, class_name: str) -> None:
        """A class is loaded: it is served from now on."""
        await self._rebuilding.open_class(epoch, class_name)

    async def finish_rebuild(self, epoch: str) -> None:
        """All is loaded: the epoch is ready."""
        await self._rebuilding.finish(epoch)

    async def arrangement(self) -> str | None:
        """The mark of what decided the scopes of the flows that wait; None where nobody set it."""
        return await self._rebuilding.arrangement()

    async def set_arrangement(self, mark: str) -> None:
        """All that waits stands in flows with the scopes that `mark` stands for."""
        await self._rebuilding.set_arrangement(mark)

    async def drop_line(self, provider: str, class_name: str) -> None:
        """Empties one line that drifted; the ledger then enqueues it again."""
        await self._rebuilding.drop_line(provider, class_name)
