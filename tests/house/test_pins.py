"""`make audit` does not take silence for an answer."""

from __future__ import annotations

from typing import Any

from tests.house.pins import LOCK, judged, pins

_LOCKED = "one-a==1.0 \\\n    --hash=sha256:00\ntwo==2.0 ; sys_platform == 'linux' \\\n    --hash=sha256:01\n"
_HERE = [{"name": "one_a", "version": "1.0"}, {"name": "two", "version": "2.0"}, {"name": "pip", "version": "23"}]


def _audit(**flaws: list[dict[str, Any]] | None) -> dict[str, Any]:
    return {
        "dependencies": [
            {"name": name, "skip_reason": "nobody there"}
            if found is None
            else {"name": name.replace("_", "-"), "version": {"one_a": "1.0", "two": "2.0"}[name], "vulns": found}
            for name, found in flaws.items()
        ]
    }


def test_all_answered_and_no_flaw() -> None:
    assert judged(_audit(one_a=[], two=[]), _LOCKED, _HERE, []) == (
        ["pip-audit's database answered for 2 of 2 pins"],
        True,
    )


def test_a_flaw_is_told_with_what_mends_it() -> None:
    lines, well = judged(_audit(one_a=[], two=[{"id": "FLAW-1", "fix_versions": ["2.1"]}]), _LOCKED, _HERE, [])
    assert "two 2.0: FLAW-1, mended in 2.1" in lines
    assert not well


def test_nobody_answered_and_all_are_the_newest() -> None:
    lines, well = judged(_audit(one_a=None, two=None), _LOCKED, _HERE, [])
    assert lines[0] == "pip-audit's database answered for 0 of 2 pins"
    assert "2 are the newest release" in lines[1]
    assert well


def test_neither_answered_nor_newest_is_to_be_looked_up() -> None:
    behind = [
        {"name": "two", "version": "2.0", "latest_version": "2.1"},
        {"name": "pip", "latest_version": "26", "version": "23"},
    ]
    lines, well = judged(_audit(one_a=None, two=None), _LOCKED, _HERE, behind)
    assert "two 2.0: not audited, and 2.1 is out: look it up" in lines
    assert not well


def test_a_pin_for_another_system_is_named() -> None:
    lines, well = judged(_audit(one_a=[], two=None), _LOCKED, _HERE[:1], [])
    assert lines[-1].endswith("than this one: two 2.0")
    assert well


def test_every_pin_of_the_lock_file_is_read() -> None:
    text = LOCK.read_text(encoding="utf-8")
    assert len(pins(text)) == sum("==" in line and not line.startswith((" ", "#")) for line in text.splitlines())
