"""Durations, rates and shares as the console writes them."""

from __future__ import annotations

import pytest

from gateway.console import words


@pytest.mark.parametrize(
    ("milliseconds", "written"),
    [
        (None, "?"),
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (1_540, "1.5 s"),
        (60_000, "1 min"),
        (90_000, "1.5 min"),
        (14_400_000, "4 h"),
        (3 * 86_400_000, "3 d"),
    ],
)
def test_spans(milliseconds: float | None, written: str) -> None:
    assert words.span(milliseconds) == written


@pytest.mark.parametrize(
    ("ratio", "written"),
    [(None, "?"), (1.0, "100\u202f%"), (0.9999, "99.9\u202f%"), (0.5, "50\u202f%"), (0.0, "0\u202f%")],
)
def test_what_is_not_quite_all_never_reads_all(ratio: float | None, written: str) -> None:
    assert words.share(ratio) == written


def test_rates_counts_and_instants() -> None:
    assert [words.rate(one) for one in (None, 0.0, 0.03, 2.5, 100.4, 1000.0)] == [
        "?",
        "0",
        "0.03",
        "2.5",
        "100",
        "1000",
    ]
    assert words.count(1234567.4) == "1\u202f234\u202f567"
    assert words.clock(1_900_000_000_000) == "17:46:40"
    assert words.fine_clock("2030-03-17T17:46:40.123Z") == "17:46:40.123"
    assert words.moment(None) == "?"
