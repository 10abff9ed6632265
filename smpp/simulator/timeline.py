"""Calls that are due later, on one timer of the event loop."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Final

# The event loop's timers count whole milliseconds and are late by about one: a delay of 20 ms took 21. What is due by
# then runs when the timer rings, so that delays are right on average, and what falls due together runs together.
_EARLY_S: Final = 0.001


class Timeline:
    """Keeps (moment, call) pairs; equal moments run in the order in which they came."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = count()
        self._timer: asyncio.Handle | None = None
        self._timer_mono = 0.0
        self._stopped = False

    def __len__(self) -> int:
        return len(self._due)

    def after(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> None:
        """Runs `call(*arguments)` in `delay_s` seconds; at once when that is not positive."""
        if self._stopped:
            return
        if delay_s <= 0:
            call(*arguments)
            return
        due_mono = time.monotonic() + delay_s
        heapq.heappush(self._due, (due_mono, next(self._numbers), call, arguments))
        if self._timer is not None and self._timer_mono <= due_mono:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._arm(due_mono)

    def stop(self) -> None:
        """Forgets everything."""
        self._stopped = True
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._timer = None
        horizon_mono = time.monotonic() + _EARLY_S
        while self._due and self._due[0][0] <= horizon_mono:
            _, _, call, arguments = heapq.heappop(self._due)
            call(*arguments)
        if self._due and self._timer is None:
            self._arm(self._due[0][0])

    def _arm(self, moment_mono: float) -> None:
        # uvloop's handles do not tell their moment, so it is kept here.
        self._timer_mono = moment_mono
        self._timer = self._loop.call_later(max(0.0, moment_mono - time.monotonic() - _EARLY_S), self._run)
