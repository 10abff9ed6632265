"""The queue's clock: Redis TIME, followed by this process's monotonic clock in between (design section 3)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Protocol

DOUBT_MS = 500
_AGREE = 5  # measurements in a row that must tell the same new time before a jump is believed
_DRIFT_PER_S = 0.0005  # how far a neglected quartz may run off: 0.5 ms per second
_PERIOD_S = 1.0


class TimeSource(Protocol):
    """The part of redis.asyncio.Redis that the clock needs."""

    def time(self) -> Awaitable[tuple[int, int]]:
        """Seconds and microseconds of the server."""
        ...


class Clock:
    """Tells the queue's time and when it must not be trusted.

    `now_at` never jumps with the local wall clock: between measurements it runs on the monotonic clock.
    """

    def __init__(self) -> None:
        self._anchor_at = time.time() * 1000.0
        self._anchor_mono = time.monotonic()
        self._round_trip_ms = 0.0
        self._measured = False
        self._jump_at = 0.0
        self._agreed = 0
        self._jumping = False
        self._told_at = 0
        self.answered = False  # the last time it was asked

    def now_at(self) -> int:
        """The queue's time, UTC milliseconds. A measurement that puts it back a little makes it stand, not go back."""
        now_at = int(self._anchor_at + (time.monotonic() - self._anchor_mono) * 1000.0)
        if now_at < self._told_at <= now_at + DOUBT_MS:
            return self._told_at
        self._told_at = now_at
        return now_at

    def now_mono(self) -> float:
        """Monotonic seconds of this process."""
        return time.monotonic()

    @property
    def offset_ms(self) -> int:
        """The queue's clock minus the local wall clock."""
        return round(self._anchor_at + (time.monotonic() - self._anchor_mono) * 1000.0 - time.time() * 1000.0)

    @property
    def doubt_ms(self) -> float:
        """How far `now_at` may be off: half the round trip of the last measurement and the drift since."""
        return self._round_trip_ms / 2 + (time.monotonic() - self._anchor_mono) * 1000.0 * _DRIFT_PER_S

    @property
    def doubtful(self) -> bool:
        """True while deadlines must not be judged: never measured, off by more than 500 ms, or just jumped."""
        return not self._measured or self._jumping or self.doubt_ms > DOUBT_MS

    def learn(self, server_at: float, asked_mono: float, answered_mono: float) -> None:
        """Takes in one measurement: the server's time (ms) asked and answered at these monotonic seconds."""
        round_trip_ms = (answered_mono - asked_mono) * 1000.0
        middle_mono = (asked_mono + answered_mono) / 2
        expected_at = self._anchor_at + (middle_mono - self._anchor_mono) * 1000.0
        off_ms = server_at - expected_at
        if round_trip_ms / 2 > DOUBT_MS:
            return  # too slow to teach anything; the doubt grows by itself
        if self._measured and abs(off_ms) > DOUBT_MS:
            self._notice_jump(server_at - middle_mono * 1000.0)
            if self._jumping:
                return
        self._jumping = False
        self._agreed = 0
        self._measured = True
        self._anchor_at, self._anchor_mono, self._round_trip_ms = server_at, middle_mono, round_trip_ms

    def _notice_jump(self, base_ms: float) -> None:
        # The new time is believed once several measurements in a row agree on it.
        if self._jumping and abs(base_ms - self._jump_at) <= DOUBT_MS / 2:
            self._agreed += 1
        else:
            self._jumping, self._agreed, self._jump_at = True, 1, base_ms
        if self._agreed >= _AGREE:
            self._jumping = False

    async def measure(self, source: TimeSource) -> None:
        """Asks the server once; raises what the client raises."""
        asked = time.monotonic()
        async with asyncio.timeout(2.0):
            seconds, micros = await source.time()
        self.learn(seconds * 1000.0 + micros / 1000.0, asked, time.monotonic())

    async def follow(self, source: TimeSource, tell: ClockListener | None = None) -> None:
        """Measures each second for ever; an unreachable server leaves the clock running on and the doubt growing."""
        while True:
            try:
                await self.measure(source)
                self.answered = True
            except Exception:
                self.answered = False
            if tell is not None:
                tell(self)
            await asyncio.sleep(_PERIOD_S)


class ClockListener(Protocol):
    """Is told after each try to measure."""

    def __call__(self, clock: Clock, /) -> None: ...
