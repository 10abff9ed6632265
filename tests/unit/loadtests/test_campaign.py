"""A campaign of faults: its runs, its file, the table of promises, the hops that its faults met."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadtests.campaign import ALL_KINDS, CUTS, RATE_PER_S, Played, Unit, row_of, shape_of, units
from loadtests.hops import HOPS, Course, caught
from loadtests.oracle import Findings, Kill
from loadtests.promises import PROMISES, REST, missing_hops, promise_of, read_rows, table
from tests.unit.loadtests.test_oracle import BROKEN

KILL = Kill("egress", 100, 110)


def row(unit: str = "egress-1", **changes: Any) -> dict[str, Any]:
    made = row_of(Unit.of(unit), Played([KILL] * 10, Findings(accepted=500), dict.fromkeys(HOPS, 2), 212.3), RATE_PER_S)
    return made | {"commit": "abc", "at": "2026-11-30 12:00 UTC"} | changes


def test_the_full_campaign_has_as_many_strikes_and_cuts_of_each_kind_as_asked() -> None:
    played = list(units([*ALL_KINDS], 60, 25))
    assert len(set(played)) == len(played)
    for kind in ALL_KINDS:
        assert sum(unit.kind == kind for unit in played) == (25 if kind in CUTS else 6)
    assert {unit.kind for unit in played[: len(ALL_KINDS)]} == {*ALL_KINDS}, "a campaign cut short has some of each"


def test_a_run_is_found_again_by_its_name() -> None:
    for kind in ALL_KINDS:
        assert Unit.of(f"{kind}-17") == Unit(kind, 17)
    with pytest.raises(ValueError, match="runs are named like"):
        Unit.of("meteor-1")


def test_every_second_seed_has_two_egress_processes_and_the_carrier_guards_the_windows() -> None:
    assert [shape_of(Unit("egress", seed)).egress for seed in (1, 2, 3, 4)] == [1, 2, 1, 2]
    assert dict(shape_of(Unit("egress", 1)).carrier)["window_max"] == str(shape_of(Unit("egress", 1)).window)
    assert (
        shape_of(Unit("egress", 1), RATE_PER_S / 4).answer_delay_ms == 4 * shape_of(Unit("egress", 1)).answer_delay_ms
    )
    assert shape_of(Unit("clock", 1)).shifting_clock and not shape_of(Unit("egress", 1)).shifting_clock


def test_the_table_counts_and_bounds() -> None:
    text = table([row(), row("clock-1")])
    assert "20 faults in 2 runs, 1,000 messages accepted" in text
    assert all(f"| {promise} | 20 | 0 | 15.0 % |" in text for promise in PROMISES)
    assert "| clock | 1 | 10 | 500 |" in text and "| 2: asked for, not judged | 4 |" in text
    assert "Broken" not in text


def test_a_broken_promise_is_told_with_the_way_to_play_it_again() -> None:
    text = table([row(), row("clock-1", violations=["3 accepted messages lost: msg_1"])])
    assert "| What was answered 202 is never lost | 20 | 1 | - |" in text
    assert "`make faults ARGS='--replay clock-1'`: 3 accepted messages lost: msg_1" in text


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_each_breach_that_the_oracle_names_belongs_to_a_promise(name: str) -> None:
    _, words = BROKEN[name]
    proves_nothing = "proves nothing" in words
    assert (promise_of(words) == REST) == proves_nothing


def test_what_no_fault_has_met_is_told() -> None:
    assert missing_hops([row()]) == []
    assert missing_hops([row(hops={"5": 3})]) == [hop for hop in HOPS if hop != 5]


def test_a_message_is_on_the_last_hop_that_has_begun_and_is_not_over() -> None:
    course = Course(10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110)
    found = [course.hop_at(at) for at in (5, 10, 20, 30, 40, 50, 60, 75, 80, 90, 100, 110)]
    assert found == [None, 2, 3, 5, 6, 7, 8, None, 9, 10, 11, None]
    early = Course(written_at=50, carrier_answered_at=60, outcome_at=200, receipt_sent_at=70, receipt_taken_at=80)
    assert [early.hop_at(at) for at in (65, 75, 90)] == [8, 9, 8]


def test_hops_are_added_up_over_the_moments() -> None:
    courses = [Course(asked_at=10, created_at=20), Course(asked_at=15, created_at=40)]
    assert caught(courses, [16, 30], [2, 0]) == {**dict.fromkeys(HOPS, 0), 2: 3, 4: 2}


def test_of_a_run_that_was_played_again_the_newest_counts(tmp_path: Path) -> None:
    path = tmp_path / "faults.jsonl"
    assert read_rows(path) == []
    broken, mended = row(violations=["3 accepted messages lost: msg_1"]), row(at="2026-11-30 13:00 UTC")
    path.write_text("".join(json.dumps(one) + "\n" for one in (broken, row("clock-1"), mended)))
    assert [(one["unit"], one["violations"]) for one in read_rows(path)] == [("egress-1", []), ("clock-1", [])]


def test_the_table_tells_the_flow_and_how_soon_codes_were_taken_over() -> None:
    slow = row("egress-2", rate_per_s=57, recovered=12, recovered_ms_max=2_340)
    text = table([row(recovered=3, recovered_ms_max=6_000), slow])
    assert "1 of 2 runs carried 200 messages a second or more; the slowest 57." in text
    assert "Codes that killed processes left: 12 taken over where another process lived, after 2.3 s at most." in text
    assert "3 taken over by the process itself, started anew, after 6.0 s at most." in text
