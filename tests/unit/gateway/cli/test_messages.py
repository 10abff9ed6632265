"""What a dry run shows to people."""

from __future__ import annotations

import pytest

from gateway.cli.messages import show_rehearsal


def test_a_rehearsal_shows_each_part_on_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    show_rehearsal(
        {
            "verdict": "accept",
            "segments": 2,
            "encoding": "ucs2",
            "route": "main",
            "predicted_wait_ms": 0,
            "parts": [{"number": 1, "units": 67, "text": "[red]a\nb"}, {"number": 2, "units": 3, "text": "яяя"}],
        }
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["verdict", "accept"]
    assert "predicted_wait_ms  0" in lines
    assert [line.split() for line in lines[-2:]] == [["1", "67", '"[red]a\\nb"'], ["2", "3", '"яяя"']]


def test_a_refused_rehearsal_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    problem = {"code": "capacity.class_budget_exceeded", "detail": "The wait is over."}
    show_rehearsal({"verdict": "refuse", "parts": [], "problem": problem})
    assert "problem  capacity.class_budget_exceeded: The wait is over." in capsys.readouterr().out
