"""What waits in the ledger and since when: the numbers behind the gauges of the delivery role (contract section 4)."""

from __future__ import annotations

from typing import Any

import asyncpg

from gateway.domain import states
from scheduler.core.values import valueclass

_INBOX = "SELECT count(*) AS rows, min(received_at) AS oldest_at FROM receipts WHERE merged_at IS NULL"
_OLDEST = """
SELECT m.status, m.route, count(*) AS messages, min(m.created_at) AS oldest_at, min(m.sweep_at) AS due_at
  FROM messages m WHERE m.sweep_at IS NOT NULL GROUP BY m.status, m.route
"""
_OLDEST_SENDING = """
SELECT min(m.created_at) AS oldest_at, min(m.sweep_at) AS due_at
FROM attempts a JOIN messages m ON m.day = a.day AND m.id = a.id
WHERE a.outcome IS NULL AND m.status = 'queued'
"""


@valueclass
class Inbox:
    """Receipts not merged yet, unmatched ones included, and since when the oldest (UTC ms)."""

    rows: int
    oldest_at: int | None


@valueclass
class Standing:
    """Of the messages of one status: when the oldest was created, and when the first should be looked at (UTC ms)."""

    oldest_at: int
    due_at: int


async def inbox(conn: asyncpg.Connection[Any]) -> Inbox:
    """The receipt inbox now."""
    row = await conn.fetchrow(_INBOX)
    return Inbox(0, None) if row is None else Inbox(row["rows"], row["oldest_at"])


@valueclass
class Open:
    """Messages that are not final: by status (`sending` included) the oldest, by route how many are queued."""

    by_status: dict[str, Standing]
    by_route: dict[str, int]


async def open_messages(conn: asyncpg.Connection[Any]) -> Open:
    """All that is not final; costs a look at each such message."""
    oldest: dict[str, Standing] = {}
    queued: dict[str, int] = {}
    for row in await conn.fetch(_OLDEST):
        known = oldest.get(row["status"], Standing(row["oldest_at"], row["due_at"]))
        oldest[row["status"]] = Standing(min(known.oldest_at, row["oldest_at"]), min(known.due_at, row["due_at"]))
        if row["status"] == states.QUEUED:
            queued[row["route"]] = row["messages"]
    sending = await conn.fetchrow(_OLDEST_SENDING)
    if sending is not None and sending["oldest_at"] is not None:
        oldest["sending"] = Standing(sending["oldest_at"], sending["due_at"])
    return Open(oldest, queued)
