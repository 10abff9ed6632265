"""What simulations measure with: limits over all windows, quantiles, fairness, checks."""

from __future__ import annotations

import itertools
import random

import pytest

from simulations.measure import Findings, LimitWatch, jain, quantile


def test_limit_watch_finds_the_worst_window() -> None:
    rng = random.Random(1)
    for _ in range(200):
        watch = LimitWatch(100, 5, 0)
        sent = [(at, rng.randint(1, 4)) for at in sorted(rng.uniform(0, 500) for _ in range(30))]
        for at, segments in sent:
            watch.add(at, segments)
        # every window from one message to another, both inside
        worst = max(
            sum(segments for _, segments in sent[first : last + 1]) - 100 * (sent[last][0] - sent[first][0]) / 1000
            for first, last in itertools.combinations_with_replacement(range(len(sent)), 2)
        )
        assert watch.excess == pytest.approx(worst)


def test_limit_watch_follows_a_changed_rate() -> None:
    watch = LimitWatch(100, 1, 0)
    for at in range(0, 1_000, 10):
        watch.add(at, 1)
    watch.change(50, 1, 1_000)
    for at in range(1_000, 2_000, 20):
        watch.add(at, 1)
    assert watch.excess == pytest.approx(1)
    for at in range(2_000, 2_200, 10):
        watch.add(at, 1)
    assert watch.excess > 10


def test_quantile_and_jain() -> None:
    assert quantile([], 0.5) == 0
    assert quantile(range(1, 101), 0.99) == 99
    assert quantile([3, 1, 2], 1) == 3
    assert jain([2, 2, 2]) == pytest.approx(1)
    assert jain([1, 0, 0, 0]) == pytest.approx(0.25)


def test_findings_ask_for_predictions_only_where_waits_are_long() -> None:
    findings = Findings()
    findings.foretold(4_999, 0.1)
    assert findings.failed == []
    findings.foretold(5_000, 0.89)
    findings.most("not a number", float("nan"), 1)
    assert [check.name for check in findings.failed] == ["starts foretold within 30 %", "not a number"]
