"""Stop lists and consent: who may not be written to, and who asked to be. Every statement names the tenant.

An entry is for one of the tenant's senders, or for all of them (`sender` ''). A handset can only answer a number, so
an entry for a number also covers the tenant's senders that are names (contract section 2; design section 1, hop 6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.policy.rules.snapshot import Policy
from scheduler.core.values import valueclass

OPT_OUTS, OPT_INS = "opt_outs", "opt_ins"
LISTS: Final = (OPT_OUTS, OPT_INS)
INBOUND, API, IMPORT = "inbound", "api", "import"
_S: Final = 2.0


def _covers(table: str) -> str:
    """Whether a list holds the recipient of `m` for its sender, as SQL on constant names."""
    return (
        f"EXISTS (SELECT FROM {table} c WHERE c.tenant_id = m.tenant_id AND c.recipient = m.recipient"
        " AND (c.sender = '' OR ltrim(c.sender, '+') = ltrim(m.sender, '+')"
        " OR (m.sender ~ '[A-Za-z]' AND c.sender !~ '[A-Za-z]')))"
    )


OPTED_OUT: Final = _covers(OPT_OUTS)
OPTED_IN: Final = _covers(OPT_INS)

_STANDINGS: Final = f"""
SELECT {OPTED_OUT} AS opted_out, {OPTED_IN} AS opted_in
  FROM unnest($1::int[], $2::text[], $3::text[]) WITH ORDINALITY AS m (tenant_id, recipient, sender, n)
 ORDER BY m.n
"""  # noqa: S608
_FIND: Final = {
    table: f"SELECT sender, source, created_at FROM {table}"  # noqa: S608
    " WHERE tenant_id = $1 AND recipient = $2 ORDER BY created_at, sender"
    for table in LISTS
}
_ADD: Final = {
    table: f"""
INSERT INTO {table} (tenant_id, recipient, sender, source, created_at)
SELECT $1, w.recipient, w.sender, $4, $5 FROM unnest($2::text[], $3::text[]) AS w (recipient, sender)
 ORDER BY w.recipient, w.sender
ON CONFLICT DO NOTHING
"""  # noqa: S608
    for table in LISTS
}
_REMOVE: Final = {
    table: f"DELETE FROM {table} WHERE tenant_id = $1 AND recipient = $2"  # noqa: S608
    " AND ($3::text IS NULL OR ltrim(sender, '+') = ltrim($3, '+'))"
    for table in LISTS
}
_BEGIN_IMPORT: Final = """
INSERT INTO list_imports (id, tenant_id, list, created_at, source, rows_total) VALUES ($1, $2, $3, $4, $5, $6)
"""
_IMPORT: Final = """
SELECT id, list, created_at, finished_at, rows_total, rows_done, rows_added, faults_total, faults
  FROM list_imports WHERE id = $1 AND tenant_id = $2
"""
# A row counts as a millisecond of age: short lists pass long ones, and none is passed for ever.
_OPEN_IMPORT: Final = """
SELECT id, tenant_id, list, rows_total, rows_done, faults_total, t.name AS tenant
  FROM list_imports i JOIN LATERAL (SELECT name FROM tenants WHERE tenants.id = i.tenant_id) AS t ON true
 WHERE finished_at IS NULL ORDER BY created_at + rows_total LIMIT 1 FOR UPDATE OF i SKIP LOCKED
"""
_OPEN_IMPORTS: Final = "SELECT count(*) FROM list_imports WHERE tenant_id = $1 AND finished_at IS NULL"
_ADVANCE: Final = """
UPDATE list_imports SET rows_done = $2, rows_added = rows_added + $3, faults_total = faults_total + $4,
       faults = faults || $5::jsonb, finished_at = $6, source = CASE WHEN $6::bigint IS NULL THEN source END
 WHERE id = $1
"""


@valueclass
class Asked:
    """Whom a message would go to, from which sender, for which tenant."""

    tenant_id: int
    recipient: str
    sender: str


@valueclass
class Standing:
    """What the lists hold on one recipient."""

    opted_out: bool
    opted_in: bool


@valueclass
class Advance:
    """How far a batch brought an import; `finished_at` (UTC ms) once it is through."""

    rows_done: int
    added: int
    faults_total: int
    faults: list[dict[str, Any]]
    finished_at: int | None


def classes_with(policy: Policy, consent: str) -> list[str]:
    """The classes that ask for this kind of consent (`opt_out`, `opt_in`); opt_in ones heed the stop list too."""
    return [
        name
        for name, traffic in policy.classes.items()
        if traffic.consent == consent or (consent == "opt_out" and traffic.consent == "opt_in")
    ]


async def standings(conn: asyncpg.Connection[Any], asked: Sequence[Asked]) -> list[Standing]:
    """What the lists hold, in the order asked."""
    rows = await conn.fetch(
        _STANDINGS,
        [one.tenant_id for one in asked],
        [one.recipient for one in asked],
        [one.sender for one in asked],
        timeout=_S,
    )
    return [Standing(row["opted_out"], row["opted_in"]) for row in rows]


async def find(conn: asyncpg.Connection[Any], table: str, tenant_id: int, recipient: str) -> list[asyncpg.Record]:
    """The entries of a number, oldest first."""
    return list(await conn.fetch(_FIND[table], tenant_id, recipient, timeout=_S))


async def add(
    conn: asyncpg.Connection[Any],
    table: str,
    tenant_id: int,
    entries: Sequence[tuple[str, str]],
    told: tuple[str, int],
) -> int:
    """Adds (recipient, sender) entries, `told` by source and instant; returns how many were new."""
    if not entries:
        return 0
    source, now_at = told
    pairs = sorted(set(entries))
    done = await conn.execute(
        _ADD[table], tenant_id, [pair[0] for pair in pairs], [pair[1] for pair in pairs], source, now_at
    )
    return int(done.rpartition(" ")[2])


async def remove(
    conn: asyncpg.Connection[Any], table: str, tenant_id: int, recipient: str, sender: str | None = None
) -> int:
    """Removes the entry of one sender, or with None all entries of the number; returns how many there were."""
    done = await conn.execute(_REMOVE[table], tenant_id, recipient, sender)
    return int(done.rpartition(" ")[2])


async def stop(conn: asyncpg.Connection[Any], tenant_id: int, recipient: str, sender: str, now_at: int) -> bool:
    """A handset said stop to one of the tenant's numbers; whether that is news."""
    await remove(conn, OPT_INS, tenant_id, recipient, sender)
    return bool(await add(conn, OPT_OUTS, tenant_id, [(recipient, sender)], (INBOUND, now_at)))


async def start(conn: asyncpg.Connection[Any], tenant_id: int, recipient: str, sender: str, now_at: int) -> None:
    """A handset said start to one of the tenant's numbers; what the tenant itself listed for all senders stays."""
    await remove(conn, OPT_OUTS, tenant_id, recipient, sender)
    await add(conn, OPT_INS, tenant_id, [(recipient, sender)], (INBOUND, now_at))


@valueclass
class NewImport:
    """A list as it was handed in."""

    id: UUID
    tenant_id: int
    table: str
    source: bytes
    rows_total: int


async def begin_import(conn: asyncpg.Connection[Any], new: NewImport, now_at: int) -> None:
    """Keeps a list that is to be worked through."""
    await conn.execute(_BEGIN_IMPORT, new.id, new.tenant_id, new.table, now_at, new.source, new.rows_total, timeout=_S)


async def find_import(conn: asyncpg.Connection[Any], tenant_id: int, import_id: UUID) -> Mapping[str, Any] | None:
    """How far an import of this tenant is; None for unknown and foreign ones."""
    found: Mapping[str, Any] | None = await conn.fetchrow(_IMPORT, import_id, tenant_id, timeout=_S)
    return found


async def open_import(conn: asyncpg.Connection[Any]) -> asyncpg.Record | None:
    """The import whose turn it is and that nobody else works on, locked in this transaction; without its source."""
    return await conn.fetchrow(_OPEN_IMPORT)


async def source_of(conn: asyncpg.Connection[Any], import_id: UUID) -> bytes:
    """The CSV of an import that is not through."""
    return bytes(await conn.fetchval("SELECT source FROM list_imports WHERE id = $1", import_id))


async def open_imports(conn: asyncpg.Connection[Any], tenant_id: int) -> int:
    """How many of a tenant's lists are not through."""
    return int(await conn.fetchval(_OPEN_IMPORTS, tenant_id, timeout=_S))


async def advance(conn: asyncpg.Connection[Any], import_id: UUID, step: Advance) -> None:
    """Writes how far an import came."""
    await conn.execute(
        _ADVANCE, import_id, step.rows_done, step.added, step.faults_total, step.faults, step.finished_at
    )


async def forget_imports(conn: asyncpg.Connection[Any], finished_until: int) -> None:
    """Forgets imports that were through by that instant; what they added stays."""
    await conn.execute("DELETE FROM list_imports WHERE finished_at <= $1", finished_until)
