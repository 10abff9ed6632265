"""Sizes that keep modules readable (style card): a ratchet, not a crusade."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULE_LINES = 400
FUNCTION_LINES = 60
BANNED_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "manager", "misc"})


def modules() -> list[Path]:
    return sorted(path for package in ("gateway", "scheduler", "smpp") for path in (ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_module_fits(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= MODULE_LINES
    assert path.stem not in BANNED_NAMES
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or node.lineno) - node.lineno < FUNCTION_LINES, f"{node.name} is too long"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_public_things_say_what_they_are(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if path.name != "__init__.py":
        assert ast.get_docstring(tree), "a module says its purpose"
    public = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    ]
    assert [node.name for node in public if not ast.get_docstring(node)] == []
