"""What an hour's counts say about a carrier (contract section 4, `receipt_coverage_ratio`)."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.domain.coverage import HOUR_MS, HourCounts, verdict

NOW = 500 * HOUR_MS


def counts(hours_ago: int = 12, **values: int) -> HourCounts:
    base: dict[str, Any] = dict.fromkeys(("sent", "decided", "delivered", "receipts", "unmatched"), 0)
    return HourCounts("carrier-a", NOW - hours_ago * HOUR_MS, **(base | values))


@pytest.mark.parametrize(
    ("one", "word"),
    [
        (counts(), "idle"),
        (counts(sent=100, decided=100, receipts=100), "covered"),
        (counts(sent=100, decided=90, receipts=90), "covered"),
        (counts(sent=100, decided=89, receipts=89), "thin"),
        (counts(hours_ago=5, sent=100), "young"),
        (counts(sent=100), "silent"),
        (counts(sent=100, receipts=40), "thin"),
        (counts(sent=100, receipts=100, unmatched=100), "unmatched"),
        (counts(hours_ago=0, sent=100, receipts=90, unmatched=90), "unmatched"),
        (counts(receipts=3, unmatched=3), "unmatched"),
        (counts(sent=1000, unmatched=3, receipts=3), "thin"),
        (counts(sent=1000, decided=1000, receipts=1003, unmatched=3), "covered"),
    ],
)
def test_verdicts(one: HourCounts, word: str) -> None:
    assert verdict(one, NOW) == word


def test_ratios_and_sums() -> None:
    total = counts(3, sent=10, decided=8, delivered=6).plus(counts(2, sent=10, decided=10, delivered=3))
    assert (total.coverage, total.delivery, total.hour_at) == (0.9, 0.5, NOW - 3 * HOUR_MS)
    assert (counts().coverage, counts().delivery) == (None, None)
    assert counts(sent=1, decided=2).coverage == 1.0, "an hour's border is no reason for more than everything"
