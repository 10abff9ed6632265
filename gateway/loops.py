"""A loop of a role: one round after the other until the role stops, whatever the stores do meanwhile; its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from gateway.ledger.connect import LEDGER_ERRORS
from gateway.logs import get
from scheduler.store.scheduler import IndexUnavailable

STORES_AWAY = (*LEDGER_ERRORS, IndexUnavailable)
_AWAY_S = 1.0
_GATHER_S = 0.02
# Longer than what any task may still have to put in order: a second cancellation would break that off.
_ASK_AGAIN_S: Final = 6.0

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


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels tasks and returns once all of them have ended; what they raised is not told here.

    One that goes on is asked again. Before Python 3.12 `asyncio.wait_for` swallows a cancellation that meets its result
    (cpython issue 86296), and the client of Redis writes every command through it.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        done, left = await asyncio.wait(left, timeout=_ASK_AGAIN_S)
        for task in done:
            if not task.cancelled():
                task.exception()  # seen: whoever started the task has its own way to hear of it
        for task in left:
            log.warning("cancellation_lost", task=task.get_name())


async def pause(until: asyncio.Event, seconds: float) -> None:
    """Sleep, but not beyond an event (the role's end, or news)."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await until.wait()
