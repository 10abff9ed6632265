"""Reloads under load at CI size: a third invalid, nothing lost, limits hold, the unchanged session stays bound."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from loadtests.reloads import Step, excess_over, run, table

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


async def test_reloads_under_load_lose_nothing_and_limits_hold() -> None:
    with tempfile.TemporaryDirectory(prefix="sluicegate-reloads-") as home:
        outcome = await run(Path(home) / "run", reloads=21, seed=1)
    # How long a busy machine takes to follow is measured by the full run, not here.
    broken = [one for one in outcome.violations if "used everywhere only" not in one]
    assert broken == [], table(outcome)
    assert (outcome.valid, outcome.invalid) == (15, 6)


def test_the_judge_of_limits_sees_an_excess() -> None:
    steps = [Step(0.0, 0.0, 40, 10), Step(10.0, 10.5, 90, 10), Step(20.0, 20.5, 40, 10)]
    slow = [n / 40 for n in range(400)]
    fast = [10.75 + n / 90 for n in range(800)]
    assert excess_over(steps, slow + fast) <= 0
    assert excess_over(steps, [n / 90 for n in range(800)]) > 100  # faster than the first policy allows
    assert excess_over(steps, [21.0 + n / 90 for n in range(800)]) > 100  # than the last one
