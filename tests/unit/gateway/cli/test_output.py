"""Tables are whole wherever they are printed (contract section 1)."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.cli.connection import refused
from gateway.cli.main import main
from gateway.cli.output import tell_table


def test_a_table_is_never_cut_to_the_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    row = ("274daa9904b1", "demo", "read send", "10.0.0.0/8", "2026-11-30 11:00:07Z", None)
    tell_table(["id", "tenant", "scopes", "networks", "created", "revoked"], [row], "keys")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[2].split() == ["274daa9904b1", "demo", "read", "send", "10.0.0.0/8", "2026-11-30", "11:00:07Z", "-"]


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (
            {"code": "policy.invalid", "detail": "No", "errors": [{"line": 6, "path": "", "message": "not YAML"}]},
            "No\n  line 6: not YAML",
        ),
        (
            {"code": "policy.invalid", "detail": "No", "errors": [{"line": 0, "path": "", "message": "is empty"}]},
            "No\n  is empty",
        ),
        (
            {"code": "policy.invalid", "detail": "No", "errors": [{"line": 2, "path": "a.b", "message": "is bad"}]},
            "No\n  line 2: a.b: is bad",
        ),
        ({"code": "request.invalid", "errors": [{"pointer": "/to", "message": "is bad"}]}, "to: is bad"),
        ({"code": "request.invalid", "errors": [{"pointer": "", "message": "is bad"}]}, "body: is bad"),
    ],
)
def test_a_refusal_names_each_place_that_there_is(problem: dict[str, Any], told: str) -> None:
    assert str(refused(problem)) == told


def test_the_version_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["sluicegate", "--version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().out.split()[0] == "sluicegate"
