"""The rules that `make sim ARGS=--mutate` breaks stand where the mutations look for them."""

from __future__ import annotations

import pytest

from simulations.mutations import MUTATIONS, mutated


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_fragment_stands_where_it_is_looked_for(name: str) -> None:
    """A script that changed is noticed at once, not by the scenario that would have to fail."""
    with mutated(name):
        pass
