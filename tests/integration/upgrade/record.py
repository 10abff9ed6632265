"""Writes down what a release says to the ledger: `python -m tests.integration.upgrade.record CHECKOUT NAME [HEARD]`.

CHECKOUT is a work tree of the release (`git worktree add /tmp/former COMMIT`), NAME what to call it, HEARD a file of
JSON strings, one a line: statements that were heard while its tests ran (`LISTEN` below). Every text that its modules
hand to PostgreSQL, or keep as a constant, is prepared on the release's own schema; what PostgreSQL takes there is kept
with the types of its parameters and columns. Run it when a release is made: the next one is tested against it.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import asyncpg

from gateway.embedded import child
from gateway.embedded.home import Home
from gateway.embedded.postgres import PostgresServer
from gateway.ledger.migrate import migrate, read_migrations

FIXTURE: Final = Path(__file__).parent / "former_release.json"
# Runs inside the release: prints its statements, and on stderr the calls whose text is made up only while it runs.
_READ: Final = r"""
import ast, importlib, json, sys
from pathlib import Path
CALLS = {"fetch", "execute", "fetchrow", "fetchval", "prepare", "executemany", "cursor"}
root = Path(sys.argv[1])
found = set()

def keep(value):
    if isinstance(value, str):
        found.add(value)
    elif isinstance(value, dict):
        keep(list(value.values()))
    elif isinstance(value, (tuple, list, set, frozenset)):
        for one in value:
            keep(one)

for path in sorted((root / "gateway").rglob("*.py")):
    sites = [
        node for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS and node.args
    ]
    if not sites or path.stem == "__main__":
        continue
    module = importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"))
    assert Path(module.__file__) == path, (module.__file__, path)
    for value in list(vars(module).values()):
        keep(value)
    for site in sites:
        try:
            keep(eval(compile(ast.Expression(site.args[0]), "site", "eval"), vars(module)))
        except NameError:
            print(f"{path.relative_to(root)}:{site.lineno}: {ast.unparse(site.args[0])[:80]}", file=sys.stderr)
json.dump(sorted(found), sys.stdout)
"""
# As sitecustomize.py on PYTHONPATH: every process of a test run adds what it says to the file SQL_HEARD names.
LISTEN: Final = """
import json, os
from asyncpg.connection import Connection
_told, _get = set(), Connection._get_statement
async def _heard(self, query, *words, **named):
    if query not in _told:
        _told.add(query)
        with open(os.environ["SQL_HEARD"], "a") as file:
            file.write(json.dumps(query) + chr(10))
    return await _get(self, query, *words, **named)
Connection._get_statement = _heard
"""
_ALIKE: Final = re.compile(r"\b(?:SELECT|INSERT|UPDATE|DELETE|WITH|LOCK|NOTIFY|LISTEN)\b")
_LAYOUT: Final = re.compile(r"\s+")


async def shape(connection: Any, statement: str) -> dict[str, Any] | None:
    """Types of a statement's parameters and its columns, as PostgreSQL tells them; None where it refuses the text."""
    try:
        prepared = await connection.prepare(statement)
    except asyncpg.PostgresError:
        return None
    return {
        "statement": statement,
        "parameters": [one.name for one in prepared.get_parameters()],
        "columns": [[one.name, one.type.name] for one in prepared.get_attributes()],
    }


async def shapes(url: str, statements: Iterable[str]) -> list[dict[str, Any]]:
    """Of all that PostgreSQL takes, each once, whatever its layout."""
    connection = await asyncpg.connect(url)
    kept: dict[str, dict[str, Any]] = {}
    try:
        for statement in statements:
            if _ALIKE.search(statement) and (found := await shape(connection, statement)) is not None:
                kept.setdefault(_LAYOUT.sub(" ", statement).strip(), found)
    finally:
        await connection.close()
    return [kept[text] for text in sorted(kept)]


def main() -> None:
    """Reads the release, asks a PostgreSQL with its schema, writes the fixture."""
    checkout, name = Path(sys.argv[1]).resolve(), sys.argv[2]
    read = subprocess.run(
        [sys.executable, "-c", _READ, str(checkout)], cwd=checkout, env={"PYTHONPATH": str(checkout)},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    statements = set(json.loads(read.stdout))
    if len(sys.argv) > 3:
        statements |= {json.loads(line) for line in Path(sys.argv[3]).read_text(encoding="utf-8").splitlines()}
    with tempfile.TemporaryDirectory(prefix="sluicegate-record-") as scratch:
        home = Home(Path(scratch) / "data")
        home.hold()
        server = PostgresServer(home)
        server.start()
        try:
            asyncio.run(server.ready())
            asyncio.run(migrate(server.url(), checkout / "migrations"))
            kept = asyncio.run(shapes(server.url(), statements))
        finally:
            child.stop_now(server.child, 2)  # type: ignore[arg-type]
            home.release()
    schema = read_migrations(checkout / "migrations")[-1].version
    told = {"release": name, "schema": schema, "statements": kept}
    FIXTURE.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(kept)} statements of {name}, schema {schema}: {FIXTURE}\n")


if __name__ == "__main__":
    main()
