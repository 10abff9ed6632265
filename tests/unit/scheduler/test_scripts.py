"""The scripts as files: small, on computed keys of one cell, of the parts that they need."""

from __future__ import annotations

import re

import pytest

from scheduler.store.scripts import LUA, PARTS, script


@pytest.mark.parametrize("path", sorted(LUA.glob("*.lua")), ids=lambda path: path.name)
def test_a_part_is_short_and_says_what_it_is(path: object) -> None:
    text = path.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    assert text.startswith("-- ")
    assert len(text.splitlines()) < 400
    assert max(map(len, text.splitlines())) <= 130


def test_every_part_is_used_and_every_script_has_a_name_of_its_own() -> None:
    assert {f"{part}.lua" for parts in PARTS.values() for part in parts} == {path.name for path in LUA.glob("*.lua")}
    assert len({script(name).function for name in PARTS}) == len(PARTS)


def test_every_key_is_computed_from_the_cells_prefix() -> None:
    for name in PARTS:
        calls = re.findall(r"call\('[A-Z]+', ([^,)]+)", script(name).text)
        assert calls
        for first in calls:
            assert re.match(r"P \.\.|[a-zA-Z_.]+$|unpack\(keys", first), (name, first)
