"""The simulations play with the model as with the scripts: the same numbers, to the last message."""

from __future__ import annotations

import pytest

from simulations.plays import Play, run


@pytest.mark.simulation
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [3, 6])
def test_both_engines_come_to_the_same(number: int) -> None:
    scripts, model = (run(Play(number, 1, 10_000, engine)) for engine in ("scripts", "model"))
    assert model.checks == scripts.checks
    assert model.offered == scripts.offered
