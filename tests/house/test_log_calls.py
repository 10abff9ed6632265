"""Every log line names one event in one word, and what belongs to it in fields whose names say what they hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.logs import _FORBIDDEN

ROOT = Path(__file__).resolve().parents[2]
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
FILES = sorted((ROOT / "gateway").rglob("*.py")) + sorted((ROOT / "smpp").rglob("*.py"))
# `id` alone does not say of what: message_id does, and is what a person searches for.
VAGUE = {"id", "data", "info", "value", "msg", "message"}


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in LEVELS
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in ("log", "_log")
        ):
            yield node


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_log_calls_are_events(path: Path) -> None:
    for call in calls(ast.parse(path.read_text(encoding="utf-8"))):
        (event,) = call.args
        assert isinstance(event, ast.Constant) and re.fullmatch(r"[a-z][a-z0-9_]+", str(event.value)), call.lineno
        fields = {keyword.arg for keyword in call.keywords}
        assert not fields & (_FORBIDDEN | VAGUE), (call.lineno, fields)


def test_there_are_such_calls() -> None:
    assert sum(1 for path in FILES for _ in calls(ast.parse(path.read_text(encoding="utf-8")))) > 50
