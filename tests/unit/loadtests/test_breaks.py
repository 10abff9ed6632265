"""The rules that are broken on purpose: their fragments stand in the source, and every promise has one."""

from __future__ import annotations

from collections import Counter

import pytest

from loadtests.break_list import BREAKS, Break
from loadtests.breaks import table
from loadtests.campaign import Unit
from loadtests.promises import PROMISES, promise_of
from loadtests.world import ROOT


@pytest.mark.parametrize("one", BREAKS, ids=lambda one: one.name)
def test_a_break_fits_the_source_and_its_run_guards_the_promise(one: Break) -> None:
    for edit in one.edits:
        assert (ROOT / edit.file).read_text().count(edit.old) == 1, edit.file
        assert edit.new != edit.old
    assert Unit.of(one.run)
    assert promise_of(one.says) == one.promise


def test_every_promise_of_the_fault_runs_is_broken_on_purpose() -> None:
    assert {one.promise for one in BREAKS} == set(PROMISES)
    assert max(Counter(one.name for one in BREAKS).values()) == 1


def test_the_table_tells_what_was_seen_and_what_was_not() -> None:
    first, second = BREAKS[:2]
    row = {"break": first.name, "at": "2026-11-30 20:00 UTC", "commit": "abc", "said": []}
    text = table([{**row, "noticed": ""}, {**row, "noticed": "3 accepted messages lost: msg_1, msg_2, msg_3"}])
    assert f"(`{first.name}`) | `{first.run}` | 3 accepted messages lost (2026-11-30, abc) |" in text
    assert f"(`{second.name}`) | `{second.run}` | not played yet |" in text
    assert "**nothing**" in table([{**row, "noticed": ""}])
