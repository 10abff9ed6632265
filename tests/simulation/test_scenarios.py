"""The scheduler's scenarios (I10, I16 to I19, I23 to I26) with seeds 1 and 2 and 100k messages each.

A class per seed, so that two workers share the work (`--dist loadscope`).
"""

from __future__ import annotations

import pytest

from simulations.plays import Play, run
from simulations.scenarios import SCENARIOS
from simulations.table import failures

SIZE = 100_000


def play(number: int, seed: int) -> None:
    """One run; every number is reached, and as much was offered as is said."""
    result = run(Play(number, seed, SIZE))
    assert failures([result]) == []
    assert result.offered >= 0.9 * SIZE


@pytest.mark.simulation
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", sorted(SCENARIOS), ids=lambda number: f"scenario{number:02}")
class TestSeed1:
    def test_scenario_reaches_its_numbers(self, number: int) -> None:
        play(number, 1)


@pytest.mark.simulation
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", sorted(SCENARIOS), ids=lambda number: f"scenario{number:02}")
class TestSeed2:
    def test_scenario_reaches_its_numbers(self, number: int) -> None:
        play(number, 2)
