"""Sweeps whose lock another process holds: how late they are at least, seen from outside.

Two processes that sweep in turn meet now and then; one that hangs with the lock in its hands tells nothing itself.
"""

from __future__ import annotations

import math

from gateway.telemetry import metrics

LOOK_AGAIN_S = 5.0


class Taken:
    """Since when this process has found the lock of each sweep taken, at every look."""

    def __init__(self) -> None:
        self._since_mono: dict[str, float] = {}

    def found(self, name: str, now_mono: float, late_ms: float = math.inf) -> None:
        """Tells the lag of a sweep that is somebody else's now: not above `late_ms`, how late its oldest work is."""
        held_s = now_mono - self._since_mono.setdefault(name, now_mono)
        metrics.sweep_lag_seconds.labels(name).set(max(0.0, min(held_s, late_ms / 1000)))

    def free(self, name: str) -> None:
        """The lock was to be had, or nothing is due."""
        self._since_mono.pop(name, None)
