"""The judge of rates sees the worst window, wherever it lies and however long it is."""

from __future__ import annotations

import random

import pytest

from loadtests.limits import JITTER_S, worst_excess


def brute(instants: list[float], rate: float, burst: float) -> float:
    found = [
        later - first + 1 - (rate * (instants[later] - instants[first] + JITTER_S) + burst + 1)
        for first in range(len(instants))
        for later in range(first, len(instants))
    ]
    return max(found)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_worst_of_all_windows(seed: int) -> None:
    dice = random.Random(seed)
    instants = sorted(dice.uniform(0, 10) for _ in range(100))
    assert worst_excess(instants, 8, 3) == pytest.approx(brute(instants, 8, 3))


def test_an_even_stream_at_the_rate_holds_and_a_faster_one_does_not() -> None:
    assert worst_excess([n / 10 for n in range(200)], 10, 1) <= 0
    assert worst_excess([n / 11 for n in range(200)], 10, 1) > 0


def test_a_burst_in_the_middle_is_seen() -> None:
    even = [n / 10 for n in range(100)]
    assert worst_excess(even, 10, 5) <= 0 < worst_excess([*even, *[5.0] * 12], 10, 5)
