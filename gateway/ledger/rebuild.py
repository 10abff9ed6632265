"""What the index should hold, read from the truth (design section 2): for its rebuild and for the drift check."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import UUID

import asyncpg

from scheduler.core.values import valueclass

PAGE: Final = 5_000
REBUILDER_LOCK: Final = "sluicegate.rebuild"

# The index on sweep_at holds exactly what is not final, so nothing that is done is read again.
_QUEUED: Final = """
FROM messages m
WHERE m.sweep_at IS NOT NULL AND m.status = 'queued'
  AND NOT EXISTS (
      SELECT FROM attempts a WHERE a.day = m.day AND a.id = m.id AND a.slot = m.next_slot AND a.outcome IS NULL
  )
  AND NOT EXISTS (SELECT FROM due d WHERE d.day = m.day AND d.id = m.id)
  AND NOT EXISTS (SELECT FROM held h WHERE h.day = m.day AND h.id = m.id)
"""
_COLUMNS: Final = """
m.day, m.id, m.tenant_id, m.next_slot, m.segments, m.class, m.application, m.sender, m.recipient, m.route, m.provider,
m.created_at, m.not_before, m.submit_by, m.expires_at, m.submit_begun, m.attempts_spent
"""
_OF_CLASS = f"SELECT {_COLUMNS} {_QUEUED} AND m.class = $1 ORDER BY m.day, m.id"
_OF_OTHERS = f"SELECT {_COLUMNS} {_QUEUED} AND m.class <> ALL ($1::text[]) ORDER BY m.day, m.id"
_OF_LINE = f"SELECT {_COLUMNS} {_QUEUED} AND m.class = $1 AND m.provider = $2 ORDER BY m.day, m.id"
_COUNTS = f"SELECT m.provider, m.class, count(*) AS n {_QUEUED} GROUP BY m.provider, m.class"
_CLAIMED = """
SELECT m.provider, m.class, count(*) AS n
FROM attempts a JOIN messages m ON m.day = a.day AND m.id = a.id
WHERE a.outcome IS NULL
GROUP BY m.provider, m.class
"""
_TENANTS = "SELECT id, name FROM tenants"


@valueclass
class LineCounts:
    """Messages per (provider, class): those that wait for the index, and those that a claim holds."""

    waiting: dict[tuple[str, str], int]
    claimed: dict[tuple[str, str], int]
    outbox_rows: int


@asynccontextmanager
async def rebuilder(conn: asyncpg.Connection[Any]) -> AsyncIterator[bool]:
    """Whether this connection is the one that rebuilds now; the lock goes with the block, or with the connection."""
    won = bool(await conn.fetchval("SELECT pg_try_advisory_lock(hashtextextended($1, 0))", REBUILDER_LOCK))
    try:
        yield won
    finally:
        if won and not conn.is_closed():
            await conn.fetchval("SELECT pg_advisory_unlock(hashtextextended($1, 0))", REBUILDER_LOCK)


async def queued_of_class(conn: asyncpg.Connection[Any], class_name: str) -> AsyncIterator[list[asyncpg.Record]]:
    """Pages of the messages of one class that wait for their turn now, in the order of their ids."""
    async for page in _pages(conn, _OF_CLASS, class_name):
        yield page


async def queued_of_others(
    conn: asyncpg.Connection[Any], classes: Sequence[str]
) -> AsyncIterator[list[asyncpg.Record]]:
    """Pages of the waiting messages whose class is none of these."""
    async for page in _pages(conn, _OF_OTHERS, list(classes)):
        yield page


async def queued_of_line(
    conn: asyncpg.Connection[Any], provider: str, class_name: str
) -> AsyncIterator[list[asyncpg.Record]]:
    """Pages of the waiting messages of one line."""
    async for page in _pages(conn, _OF_LINE, class_name, provider):
        yield page


async def line_counts(conn: asyncpg.Connection[Any]) -> LineCounts:
    """How many messages each line of the index should hold, from one snapshot."""
    async with conn.transaction(isolation="repeatable_read", readonly=True):
        waiting = {(row["provider"], row["class"]): row["n"] for row in await conn.fetch(_COUNTS)}
        claimed = {(row["provider"], row["class"]): row["n"] for row in await conn.fetch(_CLAIMED)}
        outbox_rows = await conn.fetchval("SELECT count(*) FROM outbox")
    return LineCounts(waiting, claimed, outbox_rows)


async def all_tenants(conn: asyncpg.Connection[Any]) -> dict[int, str]:
    """The names of all tenants by row id."""
    return {row["id"]: row["name"] for row in await conn.fetch(_TENANTS)}


async def outbox_ids(conn: asyncpg.Connection[Any]) -> list[UUID]:
    """Ids of the batches that are committed and perhaps not enqueued yet."""
    return [row["id"] for row in await conn.fetch("SELECT id FROM outbox")]


async def _pages(conn: asyncpg.Connection[Any], query: str, *arguments: Any) -> AsyncIterator[list[asyncpg.Record]]:
    async with conn.transaction(readonly=True):
        cursor = await conn.cursor(query, *arguments)
        while rows := await cursor.fetch(PAGE):
            yield rows
