"""What waits in the ledger and since when: the numbers behind the gauges of the delivery role (contract section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import asyncpg

_INBOX = "SELECT count(*) AS rows, min(received_at) AS oldest_at FROM receipts WHERE merged_at IS NULL"
_OLDEST = """
SELECT m.status, min(m.created_at) AS oldest_at, min(m.sweep_at) AS due_at
  FROM messages m WHERE m.sweep_at IS NOT NULL GROUP BY m.status
"""
_OLDEST_SENDING = """
SELECT min(m.created_at) AS oldest_at, min(m.sweep_at) AS due_at
FROM attempts a JOIN messages m ON m.day = a.day AND m.id = a.id
WHERE a.outcome IS NULL AND m.status = 'queued'
"""


@dataclass(frozen=True, slots=True)
class Inbox:
    """Receipts not merged yet, unmatched ones included, and since when the oldest (UTC ms)."""

    rows: int
    oldest_at: int | None


@dataclass(frozen=True, slots=True)
class Standing:
    """Of the messages of one status: when the oldest was created, and when the first should be looked at (UTC ms)."""

    oldest_at: int
    due_at: int


async def inbox(conn: asyncpg.Connection[Any]) -> Inbox:
    """The receipt inbox now."""
    row = await conn.fetchrow(_INBOX)
    return Inbox(0, None) if row is None else Inbox(row["rows"], row["oldest_at"])


async def oldest_by_status(conn: asyncpg.Connection[Any]) -> dict[str, Standing]:
    """The oldest of each status that is not final; `sending` included."""
    oldest = {row["status"]: Standing(row["oldest_at"], row["due_at"]) for row in await conn.fetch(_OLDEST)}
    sending = await conn.fetchrow(_OLDEST_SENDING)
    if sending is not None and sending["oldest_at"] is not None:
        oldest["sending"] = Standing(sending["oldest_at"], sending["due_at"])
    return oldest
