"""A rule of the scripts that is broken is caught by the scenario that guards it: the scenarios can fail."""

from __future__ import annotations

import pytest

from simulations.mutations import MUTATIONS
from simulations.plays import Play, run
from simulations.table import failures


@pytest.mark.simulation
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_broken_rule_is_caught(name: str) -> None:
    mutation = MUTATIONS[name]
    result = run(Play(mutation.caught_by[0], seed=1, size=mutation.size, mutation=name))
    assert any(mutation.check in failure for failure in failures([result]))


def test_every_scenario_has_a_rule_that_it_guards() -> None:
    assert {number for mutation in MUTATIONS.values() for number in mutation.caught_by} == set(range(1, 16))
