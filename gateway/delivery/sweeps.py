"""The sweeps of the delivery role: deadlines, doubt, cut-off, outbox, the dead, the house (design section 4)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import asyncpg

from gateway.delivery.outbox import hand_over, sweep_outbox
from gateway.delivery.taken import LOOK_AGAIN_S, Taken
from gateway.domain.ids import DAY_MS
from gateway.ending_counts import count_endings
from gateway.ledger import coverage, expiries, owners, sweeps
from gateway.ledger.outcomes import Bench
from gateway.ledger.sweeps import Swept
from gateway.logs import get
from gateway.loops import repeat
from gateway.policy.rules.snapshot import Policy
from gateway.runtime import Runtime
from gateway.telemetry import metrics
from scheduler.store.scheduler import IndexUnavailable

# The deadline sweep looks at least this often, and at the moment of each deadline it knows of: only one that is set
# and ends between two looks waits for the second (I17: recorded within a second).
LOOK_S: Final = 0.8
NEAR_S: Final = 0.02
DAYS_AHEAD: Final = 7
_VOID_MS: Final = 3_600_000
_INDEX_S: Final = 2.0
_INDEX_LOOKS: Final = 5  # calls per provider and turn that find nothing to drop, and at most in all
_INDEX_CALLS: Final = 50
_DEAD_S: Final = 4.0  # every egress process looks for them too, and more often
_OUTBOX_S: Final = 1.5
_HOUSE_S: Final = 30.0
_PARTITIONS_S: Final = 1.0
SILENT_MS: Final = 60_000
_KEEP_PROCESSES_MS: Final = 7 * 86_400_000
_KEEP_GIVEN_UP_MS: Final = 14 * 86_400_000
_KEEP_COVERAGE_MS: Final = 60 * 86_400_000

Sweep = Callable[["asyncpg.Connection[Any]", Policy, int], Awaitable[Swept]]
Forget = Callable[["asyncpg.Connection[Any]"], Awaitable[int]]

log = get(__name__)


class Sweeper:
    """All sweeps of one process; each loop lives until the role stops."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._silent: dict[int, int] = {}
        self._taken = Taken()
        self._through_mono: dict[str, float] = {}
        self._swept: dict[str, int] = {}  # provider: flows of the index that the next turn passes over
        self._partitions: tuple[int, float] = (-1, 0.0)  # for which day they were made, and when

    async def run(self) -> None:
        """Work until the role stops."""
        stopping = self._rt.stopping
        async with asyncio.TaskGroup() as group:
            group.create_task(repeat("deadlines", stopping, self.deadlines))
            group.create_task(repeat("outbox", stopping, self.outbox))
            group.create_task(repeat("ended_in_index", stopping, self.ended_in_index))
            group.create_task(repeat("dead_owners", stopping, self.dead_owners))
            group.create_task(repeat("partitions", stopping, self.partitions))
            group.create_task(repeat("house", stopping, self.house))

    async def deadlines(self) -> float:
        """One look at everything that a deadline ends; returns the seconds until the next."""
        # A clock in doubt must not end anything (design section 3, Clocks).
        if self._rt.clock.doubtful:
            return LOOK_S
        async with self._rt.pool.acquire() as conn:
            first_at = await sweeps.next_due_at(conn, 0)
            now_at = self._rt.clock.now_at()
            if first_at is None or first_at > now_at:
                self._show_none_late()
                return _until(first_at, now_at)
            full = await self._expire(conn, first_at)
            full |= await self._sweep(conn, "doubt", sweeps.end_doubt, first_at)
            full |= await self._sweep(conn, "cutoff", sweeps.cut_receipts_off, first_at)
            if full:
                return 0.0
            now_at = self._rt.clock.now_at()
            return _until(await sweeps.next_due_at(conn, now_at), now_at)

    def _show_none_late(self) -> None:
        for name in ("expiry", "doubt", "cutoff"):
            self._taken.free(name)
            metrics.sweep_lag_seconds.labels(name).set(0)

    async def outbox(self) -> float:
        """Repeat what was left in the outbox."""
        async with self._rt.pool.acquire() as conn:
            more = await sweep_outbox(self._rt, conn, self._rt.clock.now_at())
        return 0.0 if more else _OUTBOX_S

    async def ended_in_index(self) -> float:
        """What ended in the ledger no longer waits in the index, also where no session comes by to lease it."""
        if self._rt.clock.doubtful:
            return _INDEX_S
        scheduler = self._rt.scheduler
        for provider in {name for (name, _), waiting in (await scheduler.counts()).items() if waiting}:
            go_on: int | None = self._swept.pop(provider, 0)
            looks = 0
            for _ in range(_INDEX_CALLS):
                dropped, go_on = await scheduler.sweep(provider, go_on or 0)
                looks += not dropped
                if go_on is None or looks >= _INDEX_LOOKS:
                    break
            if go_on is not None:
                self._swept[provider] = go_on
        return _INDEX_S

    async def dead_owners(self) -> float:
        """Close the claims of dead egress processes and put what may go again back into the queue."""
        rt = self._rt
        bench = Bench(rt.policies.current, rt.pepper, rt.clock.now_at(), random.random)
        async with rt.pool.acquire() as conn:
            burial = await owners.close_dead(conn, bench, 0)
            since_at = await sweeps.oldest_dead(conn, bench.now_at)
        lag_ms = 0 if since_at is None else max(0, bench.now_at - since_at)
        metrics.sweep_lag_seconds.labels("dead_owners").set(lag_ms / 1000)
        for stored in burial.stored:
            count_endings(stored)
            await hand_over(rt, stored.outbox_id, stored.entries)
        if burial.owners:
            log.warning("dead_owners_closed", owners=burial.owners)
        return _DEAD_S

    async def partitions(self) -> float:
        """The coming days have a place before they come, and a day that a clock jumped to within a second."""
        rt = self._rt
        today, now_mono = rt.clock.now_at() // DAY_MS, rt.clock.now_mono()
        kept_for, kept_mono = self._partitions
        if not rt.clock.doubtful and (today != kept_for or now_mono - kept_mono >= _HOUSE_S):
            async with rt.pool.acquire() as conn:
                await self._keep_partitions(conn, rt.clock.now_at())
            self._partitions = (today, now_mono)
        return _PARTITIONS_S

    async def house(self) -> float:
        """Bounded deletes of what nobody can ask for any more."""
        rt = self._rt
        now_at = rt.clock.now_at()
        async with rt.pool.acquire() as conn:
            await self._end_silent(conn, now_at)
            receipts = rt.policies.current.receipts
            inbox_since_at = now_at - receipts.inbox_retention_ms
            steps: dict[str, Forget] = {
                "idempotency": lambda conn: sweeps.forget_idempotency(conn, now_at),
                "receipts": lambda conn: sweeps.forget_receipts(conn, inbox_since_at),
                "carrier_ids": lambda conn: sweeps.forget_carrier_ids(conn, inbox_since_at - receipts.cutoff_ms),
                "callbacks": lambda conn: sweeps.forget_callbacks(conn, now_at - _KEEP_GIVEN_UP_MS),
                "coverage": lambda conn: coverage.forget_hours(conn, now_at - _KEEP_COVERAGE_MS),
            }
            more = [await self._forget(conn, name, forget) for name, forget in steps.items()]
            await sweeps.forget_processes(conn, now_at - _KEEP_PROCESSES_MS)
        if None in more:
            return LOOK_AGAIN_S
        return 1.0 if any(more) else _HOUSE_S

    @staticmethod
    async def _keep_partitions(conn: asyncpg.Connection[Any], now_at: int) -> None:
        """Told before they are made too: where that fails, days for it to be seen must be left."""
        metrics.partitions_ahead_days.set(await sweeps.partitions_ahead(conn, now_at))
        await sweeps.keep_partitions(conn, now_at, DAYS_AHEAD)
        metrics.partitions_ahead_days.set(await sweeps.partitions_ahead(conn, now_at))

    async def _forget(self, conn: asyncpg.Connection[Any], name: str, forget: Forget) -> bool | None:
        """One bounded delete, by one process at a time; returns whether more is over, None where another does it.

        Lag: how long it is behind.
        """
        now_mono = self._rt.clock.now_mono()
        async with conn.transaction():
            if not await sweeps.begin_alone(conn, name):
                self._taken.found(name, now_mono)
                return None
            full = await forget(conn) >= sweeps.DELETE_BATCH
        self._taken.free(name)
        if not full:
            self._through_mono[name] = now_mono
        behind_s = now_mono - self._through_mono.setdefault(name, now_mono)
        metrics.sweep_lag_seconds.labels(name).set(behind_s)
        return full

    async def _end_silent(self, conn: asyncpg.Connection[Any], now_at: int) -> None:
        # Twice the same silence: after an outage of the ledger everybody looks silent for a moment.
        silent = await sweeps.silent_processes(conn, now_at - SILENT_MS)
        still = {pid: beat for pid, beat in silent.items() if self._silent.get(pid) == beat}
        still.pop(self._rt.process_id, None)
        ended = await sweeps.end_processes(conn, still, now_at)
        if ended:
            log.warning("silent_processes_ended", count=ended)
        self._silent = silent

    def _tell_lag(self, name: str, oldest_at: int | None, now_at: int) -> None:
        self._taken.free(name)
        metrics.sweep_lag_seconds.labels(name).set(0 if oldest_at is None else max(0, now_at - oldest_at) / 1000)

    async def _expire(self, conn: asyncpg.Connection[Any], first_at: int) -> bool:
        now_at = self._rt.clock.now_at()
        ended = await expiries.expire_due(conn, self._rt.policies.current, now_at)
        if ended.busy:
            self._taken.found("expiry", self._rt.clock.now_mono(), now_at - first_at)
        else:
            self._tell_lag("expiry", ended.oldest_at, now_at)
        for expired, count in Counter(ended.expired).items():
            metrics.expired_total.labels(expired.class_name, expired.cause, expired.stage).inc(count)
        if ended.void:
            # Only spares leases: a reference that is leased all the same loses at the claim.
            with suppress(IndexUnavailable, TimeoutError):
                await self._rt.scheduler.tombstone([one.bytes for one in ended.void], _VOID_MS)
        return ended.full

    async def _sweep(self, conn: asyncpg.Connection[Any], name: str, sweep: Sweep, first_at: int) -> bool:
        now_at = self._rt.clock.now_at()
        swept = await sweep(conn, self._rt.policies.current, now_at)
        if swept.busy:
            self._taken.found(name, self._rt.clock.now_mono(), now_at - first_at)
        else:
            self._tell_lag(name, swept.oldest_at, now_at)
        return swept.full


def _until(due_at: int | None, now_at: int) -> float:
    return LOOK_S if due_at is None else min(LOOK_S, max(NEAR_S, (due_at - now_at) / 1000))
