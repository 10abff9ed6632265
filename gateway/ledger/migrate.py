"""Brings a database to the newest schema: plain SQL files, one transaction each, checksums kept (design section 1)."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gateway.ledger.connect import connect
from scheduler.core.values import valueclass

DAYS_AHEAD = 7
_NAME = re.compile(r"^(\d{4})_[a-z0-9_]+\.sql$")
_LOCK = 0x51A1CE  # advisory lock of the runner, the same in every release
_OLDEST_SERVER = 150_000
# The schema of the oldest release that works on this one's: tests/integration/upgrade proves it.
WORKS_FROM = 8
_TELLS_WORKS_FROM = 10  # the migration that made the column


class MigrationRefused(Exception):
    """The database and this release do not fit; the text says why."""


@valueclass
class Migration:
    """One file of `migrations/`."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the file, hex."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrations_folder() -> Path:
    """`migrations/` of the checkout, or the copy inside an installed wheel."""
    packaged = Path(__file__).parent / "migrations"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "migrations"


def read_migrations(folder: Path | None = None) -> list[Migration]:
    """All migrations in order; raises MigrationRefused for a gap, a double number or a name out of form."""
    found: list[Migration] = []
    for path in sorted((folder or migrations_folder()).glob("*.sql")):
        match = _NAME.match(path.name)
        if match is None:
            raise MigrationRefused(f"{path.name}: migrations are named NNNN_verb_noun.sql")
        found.append(Migration(int(match[1]), path.stem, path.read_text(encoding="utf-8")))
    if [one.version for one in found] != list(range(1, len(found) + 1)) or not found:
        raise MigrationRefused("migrations must be numbered from 0001 without gap or double")
    return found


async def migrate(url: str, folder: Path | None = None) -> list[str]:
    """Applies what is missing and returns the names of it; safe twice and by several at once.

    A newer database is left as it is where the release that made it says that this one works on it. Raises
    MigrationRefused where PostgreSQL is too old, the database too new, or made by an edited file.
    """
    migrations = read_migrations(folder)
    connection = await connect(url, command_timeout=600)
    try:
        if connection.get_server_version() < (_OLDEST_SERVER // 10_000,):
            raise MigrationRefused("PostgreSQL 15 or newer is needed")
        await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
        try:
            made = await _apply_missing(connection, migrations)
            await _seed(connection, migrations[-1].version)
        finally:
            await connection.execute("SELECT pg_advisory_unlock($1)", _LOCK)
        return made
    finally:
        await connection.close()


async def missing(url: str) -> list[str]:
    """Names of the migrations that this database lacks (all of them where it has no schema yet)."""
    connection = await connect(url)
    try:
        if await connection.fetchval("SELECT to_regclass('schema_migrations')") is None:
            return [one.name for one in read_migrations()]
        done = {row["version"] for row in await connection.fetch("SELECT version FROM schema_migrations")}
        return [one.name for one in read_migrations() if one.version not in done]
    finally:
        await connection.close()


async def _apply_missing(connection: Any, migrations: Sequence[Migration]) -> list[str]:
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations"
        " (version integer PRIMARY KEY, name text NOT NULL, sha256 text NOT NULL, applied_at bigint NOT NULL)"
    )
    done = {
        row["version"]: row for row in await connection.fetch("SELECT version, name, sha256 FROM schema_migrations")
    }
    newest = migrations[-1].version
    if done and max(done) > newest:
        works_from = await connection.fetchval("SELECT works_from FROM instance")
        if works_from is None or newest < works_from:
            raise MigrationRefused(
                f"the database is at schema {max(done)}, this release knows {newest}: start the newer release"
            )
    made: list[str] = []
    for migration in migrations:
        if (row := done.get(migration.version)) is not None:
            if row["sha256"] != migration.checksum:
                raise MigrationRefused(f"{migration.name} was changed after it had been applied here")
            continue
        async with connection.transaction():
            await connection.execute(migration.sql)
            await connection.execute(
                "INSERT INTO schema_migrations (version, name, sha256, applied_at) VALUES ($1, $2, $3, $4)",
                migration.version, migration.name, migration.checksum, int(time.time() * 1000),
            )  # fmt: skip
        made.append(migration.name)
    return made


async def _seed(connection: Any, newest: int) -> None:
    await connection.execute("SELECT ensure_partitions((now() AT TIME ZONE 'UTC')::date, $1)", DAYS_AHEAD)
    await connection.execute("INSERT INTO instance (pepper) VALUES ($1) ON CONFLICT DO NOTHING", os.urandom(32))
    # Only by a release that made the schema what it is: an older one that goes on does not know.
    at = await connection.fetchval("SELECT max(version) FROM schema_migrations")
    if at == newest and newest >= _TELLS_WORKS_FROM:
        await connection.execute("UPDATE instance SET works_from = $1", WORKS_FROM)
