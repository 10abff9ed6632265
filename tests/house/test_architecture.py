"""ARCHITECTURE.md tells what the code does."""

from __future__ import annotations

import pytest

from tests.house.state_diagram import ARCHITECTURE, redrawn


def test_the_state_diagram_is_the_table() -> None:
    page = ARCHITECTURE.read_text(encoding="utf-8")
    assert page == redrawn(page), "run `make diagram`"


def test_a_page_without_its_diagram_is_noticed() -> None:
    with pytest.raises(ValueError, match="0 state diagrams"):
        redrawn("no diagram")
