"""Every policy that was entered, and which one is active: the tables policy_versions and policy_active.

A version is a candidate until it is activated; a refused one keeps its number, so that no number means two texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

CHANNEL = "sluicegate_policy"
CANDIDATE = "candidate"
REFUSED = "refused: "


@dataclass(frozen=True, slots=True)
class Version:
    """One entered policy; `applied_at` is UTC ms, `state` active | earlier | candidate | refused."""

    version: int
    applied_at: int
    applied_by: str
    note: str
    state: str


def digest_of(source: str) -> bytes:
    """What tells two sources apart."""
    return sha256(source.encode("utf-8", "surrogatepass")).digest()


async def active(conn: Any) -> tuple[int, str] | None:
    """Version and source in force, or None before the first."""
    row = await conn.fetchrow("SELECT v.version, v.source FROM policy_active JOIN policy_versions v USING (version)")
    return None if row is None else (row["version"], row["source"])


async def newest(conn: Any) -> tuple[int | None, int | None]:
    """The active version, and the candidate that waits to become it."""
    row = await conn.fetchrow(
        "SELECT (SELECT version FROM policy_active) AS active,"
        " (SELECT max(version) FROM policy_versions WHERE note = $1) AS candidate",
        CANDIDATE,
    )
    return row["active"], row["candidate"]


async def source_of(conn: Any, version: int) -> str | None:
    """The text of a version; None where there is none of this number."""
    if not 0 < version < 1 << 31:
        return None
    source: str | None = await conn.fetchval("SELECT source FROM policy_versions WHERE version = $1", version)
    return source


async def texts_of(conn: Any, numbers: Sequence[int]) -> dict[int, str]:
    """The texts of those of the versions that there are."""
    rows = await conn.fetch(
        "SELECT version, source FROM policy_versions WHERE version = ANY($1::integer[])", list(numbers)
    )
    return {row["version"]: row["source"] for row in rows}


async def known(conn: Any, digest: bytes) -> int | None:
    """The newest version with this content that was ever in force."""
    version: int | None = await conn.fetchval(
        "SELECT max(version) FROM policy_versions WHERE digest = $1 AND note <> $2 AND NOT starts_with(note, $3)",
        digest,
        CANDIDATE,
        REFUSED,
    )
    return version


async def insert(conn: Any, source: str, by: str, note: str, now_at: int) -> int:
    """Enters a source as the next version; one at a time, the caller holds the applier's lock."""
    version: int = await conn.fetchval(
        "INSERT INTO policy_versions (version, source, digest, applied_at, applied_by, note)"
        " SELECT coalesce(max(version), 0) + 1, $1, $2, $3, $4, $5 FROM policy_versions RETURNING version",
        source,
        digest_of(source),
        now_at,
        by,
        note,
    )
    return version


async def set_note(conn: Any, version: int, note: str) -> None:
    """Says what became of a version."""
    await conn.execute("UPDATE policy_versions SET note = $2 WHERE version = $1", version, note[:500])


async def activate(conn: Any, version: int) -> None:
    """Puts a version in force."""
    await conn.execute(
        "INSERT INTO policy_active (only_row, version) VALUES (true, $1)"
        " ON CONFLICT (only_row) DO UPDATE SET version = excluded.version",
        version,
    )


async def create_tenants(conn: Any, names: Sequence[str], now_at: int) -> None:
    """Accounts that a policy names and the database lacks (contract section 3)."""
    await conn.execute(
        "INSERT INTO tenants (name, created_at) SELECT name, $2 FROM unnest($1::text[]) AS named(name)"
        " WHERE NOT EXISTS (SELECT 1 FROM tenants t WHERE t.name = named.name)"
        " ORDER BY name ON CONFLICT (name) DO NOTHING",
        list(names),
        now_at,
    )


_ENTERED = (
    "SELECT v.version, v.applied_at, v.applied_by, v.note, a.version IS NOT NULL AS in_force"
    " FROM policy_versions v LEFT JOIN policy_active a USING (version)"
)


async def history(conn: Any, limit: int = 100) -> list[Version]:
    """Entered policies, newest first, without their texts: a hundred of those may be a hundred MiB."""
    return [_version(row) for row in await conn.fetch(f"{_ENTERED} ORDER BY version DESC LIMIT $1", limit)]


async def entered(conn: Any, version: int) -> Version | None:
    """One entered policy; None where there is none of this number."""
    if not 0 < version < 1 << 31:
        return None
    row = await conn.fetchrow(f"{_ENTERED} WHERE v.version = $1", version)
    return None if row is None else _version(row)


def _version(row: Any) -> Version:
    note = row["note"]
    if row["in_force"]:
        state = "active"
    elif note == CANDIDATE:
        state = "candidate"
    else:
        state = "refused" if note.startswith(REFUSED) else "earlier"
    return Version(row["version"], row["applied_at"], row["applied_by"], note, state)
