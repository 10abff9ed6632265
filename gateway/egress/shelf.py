"""Claimed messages of one session that wait for their write: in order, but an urgent one passes what came just before.

What is kept ready bridges the time that a claim takes. Without passing, a one-time password would stand behind all of
it, and the more is claimed at once (which is cheaper) the longer. What lies here for longer than PASS_S is passed no
more, so nothing starves, whatever the share of urgent ones.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from gateway.egress.flights import Flight

PASS_S: Final = 0.15


class Shelf:
    """Two lines, both in the order of their claims."""

    def __init__(self) -> None:
        self._urgent: deque[Flight] = deque()
        self._others: deque[Flight] = deque()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._others)

    @property
    def parts(self) -> int:
        """Parts that are to be written."""
        return sum(flight.left for line in (self._urgent, self._others) for flight in line)

    def put(self, flight: Flight) -> None:
        """Behind everything of its kind."""
        (self._urgent if flight.urgent else self._others).append(flight)

    def put_back(self, flight: Flight) -> None:
        """Where it was taken from."""
        (self._urgent if flight.urgent else self._others).appendleft(flight)

    def take(self) -> Flight:
        """The next one to write. Raises IndexError where nothing waits."""
        urgent, others = self._urgent, self._others
        if not urgent or (others and others[0].claimed_mono + PASS_S < urgent[0].claimed_mono):
            return others.popleft()
        return urgent.popleft()

    def take_claimed_before(self, moment_mono: float) -> list[Flight]:
        """Takes away what was claimed before a moment."""
        taken: list[Flight] = []
        for line in (self._urgent, self._others):
            while line and line[0].claimed_mono < moment_mono:
                taken.append(line.popleft())
        return taken
