"""The scheduler's scenarios (I10, I16 to I19, I23 to I26) with seeds 1 and 2 and 100k messages each.

A class per seed, so that two workers share the work (`--dist loadscope`).
"""

from __future__ import annotations

import pytest

from simulations.plays import Play, run
from simulations.scenarios import SCENARIOS
from simulations.table import failures

SIZE = 100_000
MEASURES_TIME = 10  # what a refusal costs the server's processor
NUMBERS = [
    pytest.param(number, id=f"scenario{number:02}", marks=[pytest.mark.timing] if number == MEASURES_TIME else [])
    for number in sorted(SCENARIOS)
]


def play(number: int, seed: int) -> None:
    """One run; every number is reached, and as much was offered as is said."""
    result = run(Play(number, seed, SIZE))
    assert failures([result]) == []
    assert result.offered >= 0.9 * SIZE


@pytest.mark.simulation
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", NUMBERS)
class TestSeed1:
    def test_scenario_reaches_its_numbers(self, number: int) -> None:
        play(number, 1)


@pytest.mark.simulation
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", NUMBERS)
class TestSeed2:
    def test_scenario_reaches_its_numbers(self, number: int) -> None:
        play(number, 2)
