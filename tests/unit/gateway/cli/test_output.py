"""Tables are whole wherever they are printed (contract section 1)."""

from __future__ import annotations

import pytest

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
