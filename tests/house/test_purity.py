"""Pure folders stay pure: no await, clock, randomness, logging or third-party client (design section 1)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PURE = [
    "smpp/protocol", "smpp/text", "smpp/receipts", "scheduler/core", "scheduler/plain", "gateway/domain",
    "gateway/admission", "gateway/policy/rules",
]  # fmt: skip
FORBIDDEN_MODULES = frozenset({
    "time", "random", "secrets", "asyncio", "logging", "socket", "threading", "subprocess", "os", "structlog", "redis",
    "asyncpg", "aiohttp",
    "uvicorn", "starlette", "fastapi", "prometheus_client", "smpplib", "httpx", "requests",
})  # fmt: skip
FORBIDDEN_CALLS = frozenset(
    {"datetime.now", "datetime.utcnow", "datetime.today", "date.today", "uuid.uuid4", "uuid.uuid1", "uuid4", "uuid1"}
)


def modules() -> list[Path]:
    found = [path for folder in PURE for path in (ROOT / folder).rglob("*.py")]
    return sorted([*found, ROOT / "scheduler/model.py"])


def sins(tree: ast.AST) -> list[str]:
    found: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Await() | ast.AsyncFunctionDef() | ast.AsyncFor() | ast.AsyncWith():
                found.append(f"{node.lineno}: asynchronous code")
            case ast.Import(names=names):
                found += [
                    f"{node.lineno}: imports {alias.name}"
                    for alias in names
                    if alias.name.split(".")[0] in FORBIDDEN_MODULES
                ]
            case ast.ImportFrom(module=str(module), level=0) if module.split(".")[0] in FORBIDDEN_MODULES:
                found.append(f"{node.lineno}: imports {module}")
            case ast.Call(func=function) if ast.unparse(function) in FORBIDDEN_CALLS:
                found.append(f"{node.lineno}: calls {ast.unparse(function)}")
            case ast.Call(func=ast.Name(id="open" | "print" | "input")):
                found.append(f"{node.lineno}: touches files or the terminal")
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_pure_module(path: Path) -> None:
    assert sins(ast.parse(path.read_text(encoding="utf-8"))) == []


def test_the_rule_sees_sins() -> None:
    bad = "import time\nfrom random import choice\nasync def f():\n    await g()\nx = datetime.now()\nprint(1)\n"
    assert len(sins(ast.parse(bad))) == 6
