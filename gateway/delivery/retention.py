"""Forgetting: texts wiped, numbers hashed, days dropped, texts brought under a new data key (contract, `privacy`)."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.delivery.taken import Taken
from gateway.domain.ids import uuid7
from gateway.ledger import data_keys, erasures, retention
from gateway.logs import get
from gateway.loops import repeat
from gateway.policy.rules.snapshot import Policy, Privacy
from gateway.runtime import Runtime
from gateway.sealing import SealBroken
from gateway.telemetry import metrics

LOOK_S: Final = 10.0
KEYS_S: Final = 30.0
DROP_AGAIN_S: Final = 60.0
# What is forgotten cannot be had back: a clock that jumped ahead of the other one by more than this must not decide it.
CLOCKS_APART_MS: Final = 6 * 3_600_000
APART_S: Final = 60.0
_BUSY_S: Final = 0.05  # a pause between full batches: forgetting may take its time
_OTP: Final = "otp"
_START: Final = (date(2000, 1, 1), UUID(int=0))

log = get(__name__)


class Retention:
    """What of the ledger is over; each step is a transaction of its own, one process at a time does it."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._reseal_at: tuple[date, UUID] | None = None
        self._resealed = 0
        self._taken = Taken()
        self._drop_again_mono = 0.0

    async def run(self) -> None:
        """Work until the role stops."""
        stopping = self._rt.stopping
        async with asyncio.TaskGroup() as group:
            group.create_task(repeat("retention", stopping, self.turn))
            group.create_task(repeat("data_keys", stopping, self.keys))

    async def turn(self) -> float:
        """One look at everything whose time may be over; returns the seconds until the next."""
        rt = self._rt
        if rt.clock.doubtful:  # a clock in doubt must not forget anything
            return LOOK_S
        policy, now_at = rt.policies.current, rt.clock.now_at()
        async with rt.pool.acquire() as conn:
            ahead_ms = now_at - await retention.ledger_clock(conn)
            if ahead_ms > CLOCKS_APART_MS:
                log.error("nothing_forgotten", reason="the queue's clock is ahead of the ledger's", ahead_ms=ahead_ms)
                return APART_S
            more = await self._forget(conn, policy, now_at)
            more |= await self._drop_days(conn, policy.privacy, now_at)
        return _BUSY_S if more else LOOK_S

    async def _forget(self, conn: asyncpg.Connection[Any], policy: Policy, now_at: int) -> bool:
        privacy, more, late_ms = policy.privacy, False, 0
        async with conn.transaction():
            if not await retention.begin(conn):
                self._taken.found("retention", self._rt.clock.now_mono())
                return False
            for name in await retention.classes_with_texts(conn):
                until = now_at - _kept_ms(privacy, name)
                oldest_at = await retention.oldest_text(conn, name)
                if oldest_at is not None and oldest_at <= until:
                    late_ms = max(late_ms, until - oldest_at)
                    more |= await retention.wipe_texts(conn, name, until) == retention.BATCH
            more |= await retention.wipe_inbound(conn, now_at - privacy.keep_text_ms) == retention.BATCH
            hash_until = now_at - privacy.hash_numbers_after_ms
            more |= await retention.hash_numbers(conn, self._rt.pepper, hash_until, now_at)
            before = uuid7(max(0, hash_until), bytes(10))
            more |= await retention.hash_inbound(conn, self._rt.pepper, before) == retention.BATCH
            await erasures.work(conn, self._rt.pepper, now_at)
        self._taken.free("retention")
        metrics.sweep_lag_seconds.labels("retention").set(late_ms / 1000)
        return more

    async def _drop_days(self, conn: asyncpg.Connection[Any], privacy: Privacy, now_at: int) -> bool:
        first_kept = retention.day_at(now_at - privacy.keep_messages_ms)
        over = await retention.days_before(conn, first_kept)
        if self._rt.clock.now_mono() >= self._drop_again_mono:
            for day in over:
                if not await self._let_go(conn, day):
                    break
        for day in await retention.leaving(conn):
            await self._bury(conn, day)
        gone = min([first_kept, *await retention.days_before(conn, first_kept)])
        async with conn.transaction():
            return await retention.begin(conn) and await retention.forget_events(conn, gone) == retention.BATCH

    async def _let_go(self, conn: asyncpg.Connection[Any], day: date) -> bool:
        """Whether it makes sense to go on with the next day."""
        async with conn.transaction():
            if not await retention.begin(conn):
                return False
            found = await retention.let_go(conn, day)
        if found.waits_for is not None:
            log.info("day_kept", day=str(day), waits_for=found.waits_for)
        if found.waits_for == "lock":
            # Each try may hold the road up for a moment, and who reads for long will not be done soon.
            self._drop_again_mono = self._rt.clock.now_mono() + DROP_AGAIN_S
        return found.waits_for != "lock"

    async def _bury(self, conn: asyncpg.Connection[Any], day: date) -> None:
        async with conn.transaction():
            if await retention.begin(conn) and await retention.bury(conn, day):
                log.info("day_dropped", day=str(day))

    async def keys(self) -> float:
        """One step of bringing texts under the current data key; earlier keys are retired when nothing needs them."""
        rt = self._rt
        async with rt.pool.acquire() as conn:
            earlier = await data_keys.earlier(conn, rt.sealer.current)
            if not earlier and self._reseal_at is None and await data_keys.is_whole(conn, rt.sealer.current):
                return KEYS_S
            async with conn.transaction():
                if not await retention.begin(conn):
                    return 1.0
                try:
                    self._reseal_at, done = await retention.reseal(conn, rt.sealer, self._reseal_at or _START)
                except SealBroken as broken:
                    log.error("reseal_failed", reason=str(broken))
                    return KEYS_S
            self._resealed += done
            if self._reseal_at is not None:
                return _BUSY_S
            through, self._resealed = self._resealed, 0
            if through:
                log.info("texts_resealed", count=through, data_key=rt.sealer.current)
                return KEYS_S
            await data_keys.mark_whole(conn, rt.sealer.current, rt.clock.now_at())
            if earlier and await self._may_retire(conn):
                await data_keys.retire(conn, earlier)
                log.info("data_keys_retired", data_keys=earlier)
        return KEYS_S

    async def _may_retire(self, conn: asyncpg.Connection[Any]) -> bool:
        """Nothing new comes under an earlier key, and what carriers delivered under it is no longer kept."""
        rt, now_at = self._rt, self._rt.clock.now_at()
        if await data_keys.in_use_elsewhere(conn, rt.sealer.current):
            return False
        kept_ms = max(rt.policies.current.receipts.inbox_retention_ms, rt.policies.current.privacy.keep_text_ms)
        return await data_keys.since(conn, rt.sealer.current) < now_at - kept_ms


def _kept_ms(privacy: Privacy, class_name: str) -> int:
    return privacy.keep_otp_text_ms if class_name == _OTP else privacy.keep_text_ms
