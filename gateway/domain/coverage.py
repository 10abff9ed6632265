"""Coverage: which share of what was sent has its final receipt, and what is wrong where it is low (pure).

Coverage is not the delivery rate: a carrier that reports every failure has full coverage, one that is silent has none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from scheduler.core.values import valueclass

HOUR_MS: Final = 3_600_000
# Receipts of a phone that is switched off come late: what was sent within six hours says nothing yet (contract 4).
YOUNG_MS: Final = 6 * HOUR_MS
OLD_MS: Final = 48 * HOUR_MS
# Below this share something is wrong that a person should look at.
GOOD_RATIO: Final = 0.9
# Unmatched receipts explain what is missing only where they are not a few strays beside it.
_TELLING_RATIO: Final = 0.1

COVERED: Final = "covered"  # as it should be
YOUNG: Final = "young"  # too early to tell
UNMATCHED: Final = "unmatched"  # receipts are here and no message fits: a race, or a wrong dialect
SILENT: Final = "silent"  # no receipts at all
THIN: Final = "thin"  # receipts come, but for a part only
IDLE: Final = "idle"  # nothing was sent


@valueclass
class HourCounts:
    """One hour of one provider: what was sent in it and what became of that, and what arrived in it."""

    provider: str
    hour_at: int
    sent: int
    decided: int
    delivered: int
    receipts: int
    unmatched: int

    @property
    def coverage(self) -> float | None:
        """Share of what was sent with a final receipt; None where nothing was sent."""
        return _share(self.decided, self.sent)

    @property
    def delivery(self) -> float | None:
        """Share of what has a final receipt that was delivered; None where nothing has."""
        return _share(self.delivered, self.decided)

    def plus(self, other: HourCounts) -> HourCounts:
        """The sum with another hour of the same provider."""
        return replace(
            self,
            hour_at=min(self.hour_at, other.hour_at),
            sent=self.sent + other.sent,
            decided=self.decided + other.decided,
            delivered=self.delivered + other.delivered,
            receipts=self.receipts + other.receipts,
            unmatched=self.unmatched + other.unmatched,
        )


def verdict(counts: HourCounts, now_at: int) -> str:
    """What an hour's counts say: the first of the words above that fits.

    Receipts that wait unmatched are named at once, however young the hour: no time will cure them.
    """
    missing = counts.sent - counts.decided
    covered = counts.coverage is not None and counts.coverage >= GOOD_RATIO
    if counts.unmatched and not covered and counts.unmatched >= missing * _TELLING_RATIO:
        return UNMATCHED
    if counts.sent == 0:
        return IDLE
    if covered:
        return COVERED
    if now_at - counts.hour_at < YOUNG_MS:
        return YOUNG
    return SILENT if counts.receipts == 0 and counts.decided == 0 else THIN


def _share(part: int, whole: int) -> float | None:
    return None if whole <= 0 else min(1.0, max(0.0, part / whole))
