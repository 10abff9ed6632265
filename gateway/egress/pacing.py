"""The pace of one session after throttling: x 0.7 at most once per round trip, + 5 % a second (design section 3).

A throttling answer also stops the session for a moment, so that what was refused is first in line again when it goes on
(case S01). Only a session that was throttled is paced here; the policy's limits are kept by the scheduler's leases.
The state is the session's, not the link's: a rest that began before a cut goes on after it (case S30).
"""

from __future__ import annotations

from typing import Final

DECREASE: Final = 0.7
GROWTH_PER_S: Final = 1.05
RATE_MIN_PER_S: Final = 1.0
ROUND_TRIP_MIN_S: Final = 0.05
REST_MAX_S: Final = 30.0
_REST_JITTER: Final = 0.25
_IDLE_S: Final = 1.0
_LOOK_S: Final = 0.25
_SHOWN_S: Final = 5.0
_AVERAGE_OVER_S: Final = 1.0


class Pacer:
    """Rates in submit_sm per second, instants in monotonic seconds. `configured_per_s`: the session's own limit."""

    def __init__(self, configured_per_s: float | None) -> None:
        self._configured_per_s = configured_per_s
        self._paced_per_s: float | None = None
        self._full_per_s = 0.0  # what the pace grows back to
        self._changed_mono = 0.0
        self._slowed_mono = float("-inf")
        self._next_mono = 0.0
        self._rests = 0  # in a row, without an acceptance between them
        self._rests_until_mono = float("-inf")
        self._measured_per_s = 0.0
        self._counted = 0
        self._since_mono = 0.0
        self._spent_mono = float("-inf")

    def configure(self, configured_per_s: float | None) -> None:
        """The session's own limit changed; a pace that is on grows back to the new one."""
        self._configured_per_s = configured_per_s
        if configured_per_s is not None:
            self._full_per_s = configured_per_s

    @property
    def measured_per_s(self) -> float:
        """Submits per second of late."""
        return self._measured_per_s

    def shown_per_s(self, now_mono: float) -> float:
        """The same for people: 0 once nothing has left for five seconds, where the average only remembers."""
        return self._measured_per_s if now_mono - self._spent_mono <= _SHOWN_S else 0.0

    def rate_per_s(self, now_mono: float) -> float | None:
        """The paced rate, or None while the session is not slowed."""
        if self._paced_per_s is None:
            return None
        passed_s = max(0.0, now_mono - self._changed_mono)
        self._paced_per_s = min(self._full_per_s, self._paced_per_s * GROWTH_PER_S**passed_s)
        self._changed_mono = now_mono
        if self._paced_per_s >= self._full_per_s:
            self._paced_per_s = None
        return self._paced_per_s

    def slow(self, now_mono: float, round_trip_s: float) -> None:
        """A throttling answer. Those of one window tell one thing: the pace falls once per round trip."""
        if now_mono - self._slowed_mono < max(round_trip_s, ROUND_TRIP_MIN_S):
            return
        current = self._begin_pacing(now_mono)
        self._paced_per_s = max(RATE_MIN_PER_S, current * DECREASE)
        self._slowed_mono = now_mono

    def follow(self, rate_per_s: float, now_mono: float) -> None:
        """The scheduler slowed the session to this rate: what is held here leaves no faster."""
        paced = self.rate_per_s(now_mono)
        if paced is not None and paced <= rate_per_s:
            return
        current = self._begin_pacing(now_mono)
        self._paced_per_s = max(RATE_MIN_PER_S, min(current, rate_per_s))

    def rest(self, now_mono: float, least_s: float, jitter: float) -> bool:
        """Stops the session for `least_s`, doubled each time that nothing was accepted in between, up to 30 s.

        `jitter` (0 to 1) shortens it by up to a quarter. False while a rest is on: it already covers this answer.
        """
        if now_mono < self._rests_until_mono:
            return False
        seconds = min(REST_MAX_S, least_s * 2.0 ** min(self._rests, 16))
        self._rests += 1
        self._rests_until_mono = now_mono + seconds * (1.0 - _REST_JITTER * jitter)
        return True

    def accepted(self) -> None:
        """The carrier took a message: the next rest is a first one."""
        self._rests = 0

    def rest_s(self, now_mono: float) -> float:
        """What is left of a rest; 0 outside of one."""
        return max(0.0, self._rests_until_mono - now_mono)

    def wait_s(self, now_mono: float) -> float:
        """How long the next submit has to wait; 0 when it may leave."""
        rest_s = self.rest_s(now_mono)
        if self._paced_per_s is None or self.rate_per_s(now_mono) is None:
            return rest_s
        return max(0.0, rest_s, self._next_mono - now_mono)

    def spend(self, now_mono: float) -> None:
        """One submit left."""
        if now_mono - self._spent_mono > _IDLE_S:
            self._counted, self._since_mono = 0, now_mono
        self._counted += 1
        self._spent_mono = now_mono
        if now_mono - self._since_mono >= _LOOK_S:
            self._measure(now_mono)
        if self._paced_per_s is not None:
            self._next_mono = max(self._next_mono, now_mono) + 1.0 / self._paced_per_s

    def _begin_pacing(self, now_mono: float) -> float:
        """The rate at this moment, from which a pace is taken; remembers what it may grow back to."""
        self._measure(now_mono)
        paced = self.rate_per_s(now_mono)
        current = self._measured_per_s if paced is None else min(paced, self._measured_per_s)
        current = max(RATE_MIN_PER_S, current)
        if paced is None:
            self._full_per_s = self._configured_per_s or current
            current = min(current, self._full_per_s)
        self._changed_mono = now_mono
        self._next_mono = max(self._next_mono, now_mono)
        return current

    def _measure(self, now_mono: float) -> None:
        """Folds what left since the last look into the average; the first look counts whole."""
        passed_s = now_mono - self._since_mono
        if passed_s <= 0 or not self._counted:
            return
        rate_per_s = self._counted / max(passed_s, 0.02)
        weight = 1.0 if not self._measured_per_s else min(1.0, passed_s / _AVERAGE_OVER_S)
        self._measured_per_s += (rate_per_s - self._measured_per_s) * weight
        self._counted, self._since_mono = 0, now_mono
