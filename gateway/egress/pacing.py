"""The pace of one session after throttling answers: multiplicative decrease, additive increase (design section 3).

Only a session that was throttled is paced here; the limits of the policy are kept by the scheduler's leases.
"""

from __future__ import annotations

from typing import Final

DECREASE: Final = 0.7
INCREASE_PER_S: Final = 0.05
SHARE_MIN: Final = 0.02
_RATE_MIN_PER_S: Final = 1.0
_AVERAGE_OVER_S: Final = 2.0


class Pacer:
    """`share` of the base rate that may leave; 1.0 means unpaced. All instants are monotonic seconds."""

    def __init__(self, configured_per_s: float | None) -> None:
        self._configured_per_s = configured_per_s
        self._share = 1.0
        self._base_per_s = configured_per_s or 0.0
        self._changed_mono = 0.0
        self._slowed_mono = float("-inf")
        self._next_mono = 0.0
        self._measured_per_s = 0.0
        self._counted = 0
        self._counted_mono = 0.0

    @property
    def measured_per_s(self) -> float:
        """Submits per second of late."""
        return self._measured_per_s

    def share(self, now_mono: float) -> float:
        """The share in force now: it grows by five points a second while nothing is throttled."""
        if self._share < 1.0:
            grown = self._share + INCREASE_PER_S * max(0.0, now_mono - self._changed_mono)
            self._share, self._changed_mono = min(1.0, grown), now_mono
        return self._share

    def rate_per_s(self, now_mono: float) -> float | None:
        """The paced rate, or None while the session is not slowed."""
        share = self.share(now_mono)
        return None if share >= 1.0 else max(_RATE_MIN_PER_S, self._base_per_s * share)

    def slow(self, now_mono: float, round_trip_s: float) -> None:
        """A throttling answer: x 0.7, at most once per round trip (answers of one window tell one thing)."""
        if now_mono - self._slowed_mono < max(round_trip_s, 0.05):
            return
        if self.share(now_mono) >= 1.0:
            self._base_per_s = self._base(now_mono)
        self._share = max(SHARE_MIN, self._share * DECREASE)
        self._changed_mono = self._slowed_mono = now_mono
        self._next_mono = max(self._next_mono, now_mono)

    def wait_s(self, now_mono: float) -> float:
        """How long the next submit has to wait; 0 when it may leave."""
        if self.rate_per_s(now_mono) is None:
            return 0.0
        return max(0.0, self._next_mono - now_mono)

    def spend(self, now_mono: float) -> None:
        """One submit left."""
        self._count(now_mono)
        rate_per_s = self.rate_per_s(now_mono)
        if rate_per_s is not None:
            self._next_mono = max(self._next_mono, now_mono) + 1.0 / rate_per_s

    def _base(self, now_mono: float) -> float:
        self._settle(now_mono)
        measured = max(_RATE_MIN_PER_S, self._measured_per_s)
        return min(self._configured_per_s, measured) if self._configured_per_s else measured

    def _count(self, now_mono: float) -> None:
        self._counted += 1
        if now_mono - self._counted_mono >= 0.25:
            self._settle(now_mono)

    def _settle(self, now_mono: float) -> None:
        passed_s = now_mono - self._counted_mono
        if passed_s < 0.05:
            return
        weight = min(1.0, passed_s / _AVERAGE_OVER_S)
        self._measured_per_s += (self._counted / passed_s - self._measured_per_s) * weight
        self._counted, self._counted_mono = 0, now_mono
