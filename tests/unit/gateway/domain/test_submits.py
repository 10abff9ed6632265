"""Submits as operators see them: sessions, answers, and the carrier's ids by part."""

from __future__ import annotations

from typing import Any

from gateway.domain.message import History
from gateway.domain.submits import submits


def attempt(slot: int, **values: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "slot": slot, "kind": "submit", "provider": "a", "session": "a1", "claimed_at": 1_000, "written_at": 1_005,
        "outcome": "accepted", "outcome_at": 1_025, "command_status": None, "parts": None,
    }  # fmt: skip
    return given | values


def test_each_submit_has_its_session_its_answer_and_the_ids_of_its_parts() -> None:
    refused = attempt(0, outcome="throttled", command_status=0x58)
    history = History([refused, attempt(1, session="a2"), attempt(2, kind="expire")], [], [])
    rows = [{"slot": 1, "part": 1, "carrier_id": "AB"}, {"slot": 1, "part": 2, "carrier_id": "AC"}]
    first, second = submits(history, rows)
    assert (first["session"], first["outcome"], first["carrier_status"]) == ("a1", "throttled", "0x00000058")
    assert first["parts"] == []
    assert (second["session"], second["carrier_status"]) == ("a2", None)
    assert second["parts"] == [{"part": 1, "carrier_id": "AB"}, {"part": 2, "carrier_id": "AC"}]
    assert second["written_at"] == "1970-01-01T00:00:01.005Z"


def test_what_did_not_leave_or_waits_for_its_answer_says_so() -> None:
    (one,) = submits(History([attempt(0, written_at=None, outcome=None, outcome_at=None)], [], []), [])
    assert (one["written_at"], one["outcome"], one["outcome_at"]) == (None, None, None)
