"""Which hop of the road (ARCHITECTURE.md) each message was on when a fault struck, from what every side wrote down.

Pure. A fault run is worth what its faults met: over a full run every hop must have been caught at least once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

HOPS: Final = {
    2: "asked for, not judged",
    3: "judged, the commit not answered",
    4: "committed, its outbox row still there",
    5: "in the index",
    6: "claimed, not written",
    7: "written, the carrier has not answered",
    8: "answered, the outcome not stored",
    9: "receipt on the wire",
    10: "receipt stored, not merged",
    11: "callback owed",
}


@dataclass(frozen=True, slots=True)
class Course:
    """When one message reached each place, UTC ms; None: never, or nobody wrote it down."""

    asked_at: int | None = None
    created_at: int | None = None
    answered_at: int | None = None
    claimed_at: int | None = None
    written_at: int | None = None
    carrier_answered_at: int | None = None
    outcome_at: int | None = None
    receipt_sent_at: int | None = None
    receipt_taken_at: int | None = None
    receipt_merged_at: int | None = None
    called_at: int | None = None

    def hop_at(self, at: int) -> int | None:
        """The hop on which it was at a moment: what had begun and was not over; None where there was none."""
        spans = (
            (2, self.asked_at, self.created_at),
            (3, self.created_at, self.answered_at),
            (5, self.answered_at, self.claimed_at),
            (6, self.claimed_at, self.written_at),
            (7, self.written_at, self.carrier_answered_at),
            (8, self.carrier_answered_at, self.outcome_at),
            (9, self.receipt_sent_at, self.receipt_taken_at),
            (10, self.receipt_taken_at, self.receipt_merged_at),
            (11, self.receipt_merged_at, self.called_at),
        )
        # The later of two spans that overlap: it is as far as the message has come.
        found = [hop for hop, begin_at, end_at in spans if begin_at is not None and end_at and begin_at <= at < end_at]
        return found[-1] if found else None


def caught(courses: Iterable[Course], moments: Iterable[int], outbox_rows: Iterable[int]) -> dict[int, int]:
    """Messages per hop, added up over the moments; the outbox was counted at each (its rows leave no trace)."""
    moments = list(moments)
    found = Counter(hop for course in courses for at in moments if (hop := course.hop_at(at)) is not None)
    found[4] += sum(outbox_rows)
    return {hop: found[hop] for hop in HOPS}
