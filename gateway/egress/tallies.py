"""What the carrier's answers say about a session's health, counted until the scheduler is told (design section 3).

The scheduler decides (slower, breaker, ramp); egress only counts. A refusal that is the message's own fault (a wrong
number) says that the carrier works.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from scheduler.core.values import valueclass
from smpp.protocol.status import ESME_RMSGQFUL, Consequence

DESTINATIONS_MAX: Final = 64  # three are enough to tell; a storm must not grow it
_TOKEN_OCTETS: Final = 8


@valueclass
class Counts:
    """What was answered since the last report. `queue_full` holds tokens of the numbers that RMSGQFUL spoke of."""

    good: int
    errors: int
    throttled: int
    queue_full: frozenset[bytes]
    round_trip_ms: float


@dataclass(slots=True)
class Tally:
    """Counts of one session; `key` makes tokens of numbers (at most 64 octets of it are used)."""

    key: bytes
    good: int = 0
    errors: int = 0
    throttled: int = 0
    queue_full: set[bytes] = field(default_factory=set)
    round_trip_s: float = 0.0

    @property
    def is_empty(self) -> bool:
        """Nothing to tell."""
        return not (self.good or self.errors or self.throttled or self.queue_full)

    @property
    def is_urgent(self) -> bool:
        """The carrier asked for less, or mostly fails: the scheduler should know before it leases much more.

        At a carrier that refuses 800 a second, a quarter of one is 200 messages that a breaker of 20 lets through.
        """
        return bool(self.throttled or self.queue_full) or 0 < self.errors >= self.good

    def accepted(self) -> None:
        """A part was taken."""
        self.good += 1

    def refused(self, said: Consequence, status: int, recipient: str) -> None:
        """A part was refused. A full queue is told by its number: only several of them concern the session."""
        if said.kind == "throttle":
            self.throttled += 1
        elif said.kind == "never":
            self.good += 1
        elif said.kind == "later" and status == ESME_RMSGQFUL:
            if len(self.queue_full) < DESTINATIONS_MAX:
                self.queue_full.add(self._token(recipient))
        else:
            self.errors += 1

    def silent(self) -> None:
        """An answer did not come in time."""
        self.errors += 1

    def take(self) -> Counts:
        """Gives out what was counted and begins anew."""
        counts = Counts(
            self.good, self.errors, self.throttled, frozenset(self.queue_full), round(self.round_trip_s * 1000, 3)
        )
        self.good = self.errors = self.throttled = 0
        self.queue_full = set()
        return counts

    def put_back(self, counts: Counts) -> None:
        """A report that did not arrive is told with the next one."""
        self.good += counts.good
        self.errors += counts.errors
        self.throttled += counts.throttled
        self.queue_full |= counts.queue_full

    def _token(self, recipient: str) -> bytes:
        return blake2b(recipient.encode(), digest_size=_TOKEN_OCTETS, key=self.key[:64]).digest()
