"""A loop of a role: one round after the other until the role stops, whatever the stores do meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from gateway.ledger.connect import LEDGER_ERRORS
from gateway.logs import get
from scheduler.store.scheduler import IndexUnavailable

STORES_AWAY = (*LEDGER_ERRORS, IndexUnavailable)
_AWAY_S = 1.0
_GATHER_S = 0.02

log = get(__name__)


async def repeat(
    name: str, stopping: asyncio.Event, turn: Callable[[], Awaitable[float]], woken: asyncio.Event | None = None
) -> None:
    """Run `turn` again and again; it returns the seconds until its next, less where `woken` is set meanwhile.

    A store that is away costs one second. Who passes `woken` sets it at the role's end too.
    """
    while not stopping.is_set():
        try:
            pause_s = await turn()
        except STORES_AWAY as error:
            log.warning("delivery_turn_failed", turn=name, cause=type(error).__name__)
            pause_s = _AWAY_S
        if woken is None:
            await pause(stopping, pause_s)
        else:
            await pause(woken, pause_s)
            await asyncio.sleep(_GATHER_S)  # news comes in batches; several share one turn
            woken.clear()


async def pause(until: asyncio.Event, seconds: float) -> None:
    """Sleep, but not beyond an event (the role's end, or news)."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await until.wait()
