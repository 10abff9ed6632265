"""A carrier as senders meet it: round trips, a true rate, refusals, silence, dropped binds."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

Answer = Literal["taken", "throttled", "later", "silent"]


@dataclass(slots=True)
class Carrier:
    """One provider's other side. All fields may change while the simulation runs.

    `rate_per_s` is what it can really do. `paced`: it answers in turn and more slowly (a full window then holds the
    sender back); else it answers ESME_RTHROTTLED to what is above its rate, with `burst` messages of patience.
    `round_trip_ms` is uniform; `refuses` is the share that it wants later; `silent` answers nothing at all.
    """

    rng: random.Random
    rate_per_s: float | None = None
    paced: bool = True
    burst: int = 10
    round_trip_ms: tuple[float, float] = (20.0, 60.0)
    refuses: float = 0.0
    silent: bool = False
    submits: int = 0
    throttled: int = 0
    _free_at: float = field(default=0.0)

    def submit(self, now: float, segments: int) -> tuple[Answer, float]:
        """What it says to one message, and when (ms)."""
        self.submits += 1
        if self.silent:
            return "silent", now
        answer_at = now + self.rng.uniform(*self.round_trip_ms)
        if self.rate_per_s is not None:
            interval = 1000 / self.rate_per_s
            self._free_at = max(self._free_at, now)
            if self.paced:
                self._free_at += segments * interval
                answer_at = self._free_at + answer_at - now
            elif self._free_at - now > self.burst * interval:
                self.throttled += 1
                return "throttled", answer_at
            else:
                self._free_at += segments * interval
        if self.refuses and self.rng.random() < self.refuses:
            return "later", answer_at
        return "taken", answer_at

    def change_rate(self, rate_per_s: float, now: float) -> None:
        """A new true rate; what it holds already is worked off at the new one."""
        if self.rate_per_s is not None and self._free_at > now:
            self._free_at = now + (self._free_at - now) * self.rate_per_s / rate_per_s
        self.rate_per_s = rate_per_s
