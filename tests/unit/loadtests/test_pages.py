"""A table goes into its place in a page and nothing else moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.pages import NoPlace, put
from loadtests.world import ROOT


def test_only_what_stands_in_the_place_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n")
    put(page, "bench", "| new |\n")
    put(page, "bench", "| newer |\n")
    assert page.read_text() == "before\n<!-- bench -->\n| newer |\n<!-- /bench -->\nafter\n"


def test_a_page_without_the_place_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench -->\n")
    with pytest.raises(NoPlace, match="/bench"):
        put(page, "bench", "| new |")
    assert page.read_text() == "before\n<!-- bench -->\n"


@pytest.mark.parametrize(("page", "name"), [("docs/speed.md", "bench"), ("docs/promises.md", "faults")])
def test_the_pages_have_their_places(page: str, name: str) -> None:
    text = (ROOT / page).read_text()
    assert f"<!-- {name} -->" in text and f"<!-- /{name} -->" in text
