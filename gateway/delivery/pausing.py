"""Pauses by hand, from the ledger into the index, and all that follows from their end.

The rows are the truth. The index is told at once, after a rebuild, and again now and then; the end of a pause is told
too, before held messages go back. Sessions are egress's own business.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import asyncpg

from gateway.delivery.outbox import hand_over
from gateway.hearing import hear
from gateway.ledger.deferrals import hasten
from gateway.ledger.pauses import APPLICATION, CHANNEL, SESSION, list_pauses
from gateway.ledger.resumptions import (
    Resumption,
    forget_resumption,
    free_holders,
    list_resumptions,
    move_budgets,
    release_held,
)
from gateway.logs import get
from gateway.loops import end, repeat
from gateway.runtime import Runtime

LOOK_S: Final = 1.0
AGAIN_S: Final = 10.0
# Rounds of a thousand: what a long pause held comes back at five thousand a second at most.
PACE_S: Final = 0.2

log = get(__name__)


class Pausing:
    """Keeps index and ledger of one mind about what is paused."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._woken = asyncio.Event()
        self._applied: dict[str, float] = {}

    async def run(self) -> None:
        """Work until the role stops."""
        hearing = asyncio.create_task(hear(self._rt, CHANNEL, self._woken), name="pauses_hearing")
        try:
            await repeat("pauses", self._rt.stopping, self.turn, self._woken)
        finally:
            await end([hearing])

    async def turn(self) -> float:
        """One look; returns the seconds until the next."""
        async with self._rt.pool.acquire() as conn:
            over = await list_resumptions(conn)
            for ended in over:  # nothing of this needs the index
                await self._move(conn, ended)
            paused = await self.apply(conn)
            for ended in over:
                await self._resume(conn, ended, paused)
            holders = await free_holders(conn)
        more = False
        for holder in holders:
            more |= await self._release(holder)
        return PACE_S if more else LOOK_S

    async def apply(self, conn: asyncpg.Connection[Any], *, again: bool = False) -> frozenset[str]:
        """Tell the index what is paused, as far as it was not told lately; returns the scopes.

        `again`: it may have forgotten everything.
        """
        if again:
            self._applied.clear()
        scopes = [one.place.scope for one in await list_pauses(conn) if one.place.kind != SESSION]
        now_mono = time.monotonic()
        for scope in scopes:
            if now_mono - self._applied.get(scope, float("-inf")) >= AGAIN_S:
                await self._rt.scheduler.pause(scope)
                self._applied[scope] = now_mono
        for scope in set(self._applied) - set(scopes):
            del self._applied[scope]
        return frozenset(scopes)

    async def _move(self, conn: asyncpg.Connection[Any], ended: Resumption) -> None:
        if ended.place.kind == APPLICATION:
            more = True
            while more and not self._rt.stopping.is_set():
                more = await move_budgets(conn, ended)

    async def _resume(self, conn: asyncpg.Connection[Any], ended: Resumption, paused: frozenset[str]) -> None:
        if self._rt.stopping.is_set():
            return
        if ended.place.scope not in paused:
            await self._rt.scheduler.resume(ended.place.scope)
            while await hasten(conn, ended.place, self._rt.clock.now_at()) and not self._rt.stopping.is_set():
                pass
        await forget_resumption(conn, ended)
        log.info("pause_over", kind=ended.place.kind, lasted_ms=ended.until_at - ended.since_at)

    async def _release(self, holder: tuple[str, int, str]) -> bool:
        rt = self._rt
        async with rt.pool.acquire() as conn:
            released = await release_held(conn, rt.policies.current, rt.pepper, holder, rt.clock.now_at())
        await hand_over(rt, released.outbox_id, released.entries)
        return released.found > 0
