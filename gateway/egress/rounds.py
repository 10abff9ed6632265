"""Rounds of a batching loop, a little apart under load: what comes in between shares the next statement."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.clock import Clock

APART_S: Final = 0.01  # far under the budget of any class; a quiet loop never waits for it


class Rounds:
    """Begins a round at once after a quiet time, else no sooner than `apart_s` seconds after the last one began."""

    def __init__(self, clock: Clock, apart_s: float = APART_S) -> None:
        self._clock = clock
        self._apart_s = apart_s
        self._next_mono = 0.0

    async def begin(self) -> None:
        """Returns when the next round may begin."""
        rest_s = self._next_mono - self._clock.now_mono()
        if rest_s > 0:
            await asyncio.sleep(rest_s)
        self._next_mono = self._clock.now_mono() + self._apart_s
