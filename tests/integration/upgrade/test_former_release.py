"""Rolling upgrade: the former release goes on while the schema is already that of this one.

What the former release says is a recording (record.py): every statement, with the types of its parameters and columns
as its own schema gave them. All of it must be understood by the newest schema and mean the same. What a statement's
text cannot show (a column that must be filled, a new rule on rows) is looked up in the catalogue: migrations add only.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest

from gateway.ledger.migrate import WORKS_FROM, MigrationRefused, migrate, migrations_folder, read_migrations
from tests.integration.upgrade.record import FIXTURE, shape

FORMER: Final[dict[str, Any]] = json.loads(FIXTURE.read_text(encoding="utf-8"))
_COLUMNS: Final = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS filled,
       a.atthasdef OR a.attidentity <> '' OR a.attgenerated <> '' AS given
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
   AND a.attnum > 0 AND NOT a.attisdropped
"""
# What can refuse a row, and what acts on one: checks, uniqueness, references, triggers.
_RULES: Final = """
SELECT conrelid::regclass::text AS relname, pg_get_constraintdef(oid) AS rule FROM pg_constraint
 WHERE connamespace = 'public'::regnamespace AND contype <> 'n' AND conrelid <> 0 AND conparentid = 0
UNION ALL
SELECT indrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
  JOIN pg_class c ON c.oid = indrelid
 WHERE indisunique AND c.relnamespace = 'public'::regnamespace AND NOT c.relispartition
UNION ALL
SELECT tgrelid::regclass::text, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal AND tgparentid = 0
"""
_FUNCTIONS: Final = """
SELECT p.oid::regprocedure::text AS name, pg_get_function_result(p.oid) AS result FROM pg_proc p
 WHERE pronamespace = 'public'::regnamespace
"""


async def schema_of(url: str) -> tuple[dict[tuple[str, str], Any], set[tuple[str, str]], dict[str, str]]:
    """Columns, rules on rows, functions."""
    connection = await asyncpg.connect(url)
    try:
        columns = {(row["relname"], row["attname"]): row for row in await connection.fetch(_COLUMNS)}
        rules = {(row["relname"], row["rule"]) for row in await connection.fetch(_RULES)}
        functions = {row["name"]: row["result"] for row in await connection.fetch(_FUNCTIONS)}
    finally:
        await connection.close()
    return columns, rules, functions


def former_folder(tmp_path: Path) -> Path:
    """The migrations that the former release had."""
    for path in migrations_folder().glob("*.sql"):
        if int(path.name[:4]) <= FORMER["schema"]:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


async def test_every_statement_of_the_former_release_means_the_same(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        changed = []
        for told in FORMER["statements"]:
            now = await shape(connection, told["statement"])
            if now != told:
                changed.append((" ".join(told["statement"].split())[:200], told["columns"], now))
    finally:
        await connection.close()
    assert len(FORMER["statements"]) > 250
    assert not changed, f"the former release ({FORMER['release']}) would fail or misread: {changed[:5]}"


async def test_migrations_since_the_former_release_add_only(
    database_url: str, empty_database_url: str, tmp_path: Path
) -> None:
    await migrate(empty_database_url, former_folder(tmp_path))
    columns, rules, functions = await schema_of(empty_database_url)
    now_columns, now_rules, now_functions = await schema_of(database_url)
    for place, column in columns.items():
        now = now_columns.get(place)
        assert now is not None, f"{place} is gone"
        assert now["type"] == column["type"], f"{place} has another type"
        assert column["filled"] or not now["filled"], f"{place} must be filled now"
    tables = {table for table, _ in columns}
    for place in now_columns.keys() - columns.keys():
        unfilled = now_columns[place]["filled"] and not now_columns[place]["given"]
        assert place[0] not in tables or not unfilled, f"{place}: the former release does not fill it"
    assert not {rule for rule in now_rules - rules if rule[0] in tables}, "rules that the former release may break"
    assert functions.items() <= now_functions.items()


async def test_going_back_the_former_release_leaves_the_newer_schema_as_it_is(
    empty_database_url: str, tmp_path: Path
) -> None:
    await migrate(empty_database_url)
    assert FORMER["schema"] == WORKS_FROM, "record the former release anew, then say so in gateway/ledger/migrate.py"
    assert await migrate(empty_database_url, former_folder(tmp_path)) == []
    older = tmp_path / "older"
    older.mkdir()
    for migration in read_migrations(tmp_path)[: WORKS_FROM - 1]:
        (older / f"{migration.name}.sql").write_text(migration.sql, encoding="utf-8")
    with pytest.raises(MigrationRefused, match="start the newer release"):
        await migrate(empty_database_url, older)
