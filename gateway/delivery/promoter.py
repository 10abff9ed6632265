"""Releases what has become due back into the queue, paced, so that a common hour is no flood (design section 3)."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.delivery.due_book import DueBook
from gateway.delivery.outbox import hand_over
from gateway.delivery.taken import Taken
from gateway.hearing import hear
from gateway.ledger.promotions import CHANNEL, ROUNDS_PER_S, Detour, next_due_at, promote_due
from gateway.loops import end, repeat
from gateway.runtime import Runtime
from gateway.telemetry import metrics

# Retries wake the promoter; a time that a tenant asked for is met within this.
LOOK_S: Final = 1.0
NEAR_S: Final = 0.01
# With rounds of 500 messages: at most 5,000 a second.
PACE_S: Final = 1 / ROUNDS_PER_S


class Promoter:
    """The due table's way into the queue."""

    def __init__(self, rt: Runtime, book: DueBook | None = None, detour: Detour | None = None) -> None:
        """`book` is told what was released; `detour` gives what a blocked route would get another one."""
        self._rt = rt
        self._book = book
        self._detour = detour
        self._woken = asyncio.Event()
        self._taken = Taken()

    async def run(self) -> None:
        """Work until the role stops."""
        hearing = asyncio.create_task(hear(self._rt, CHANNEL, self._woken), name="promoter_hearing")
        try:
            await repeat("promoter", self._rt.stopping, self.turn, self._woken)
        finally:
            await end([hearing])

    async def turn(self) -> float:
        """Promote one round; returns the seconds until the next."""
        rt = self._rt
        now_at = rt.clock.now_at()
        async with rt.pool.acquire() as conn:
            first_at = await next_due_at(conn, 0)
            if first_at is None or first_at > now_at:
                self._taken.free("promoter")
                metrics.sweep_lag_seconds.labels("promoter").set(0)
                return _until(first_at, now_at)
            promoted = await promote_due(conn, rt.policies.current, rt.pepper, now_at, self._detour)
            next_at = None if promoted.more else await next_due_at(conn, now_at)
        if self._book is not None:
            self._book.released(promoted.works)
        await hand_over(rt, promoted.outbox_id, promoted.entries)
        if promoted.busy:
            self._taken.found("promoter", rt.clock.now_mono(), now_at - first_at)
        else:
            self._taken.free("promoter")
            lag_ms = 0 if promoted.oldest_at is None else now_at - promoted.oldest_at
            metrics.sweep_lag_seconds.labels("promoter").set(max(0, lag_ms) / 1000)
        if promoted.more:
            return PACE_S
        return _until(next_at, now_at)


def _until(due_at: int | None, now_at: int) -> float:
    return LOOK_S if due_at is None else min(LOOK_S, max(NEAR_S, (due_at - now_at) / 1000))
