"""What waits in the ledger and since when: the numbers behind the gauges of the delivery role (contract section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.domain.ids import uuid7

_INBOX = "SELECT count(*) AS rows, min(received_at) AS oldest_at FROM receipts WHERE merged_at IS NULL"
_OLDEST = """
SELECT m.status, min(m.created_at) AS oldest_at FROM messages m WHERE m.sweep_at IS NOT NULL GROUP BY m.status
"""
_OLDEST_SENDING = """
SELECT min(m.created_at) FROM attempts a JOIN messages m ON m.day = a.day AND m.id = a.id
WHERE a.outcome IS NULL AND m.status = 'queued'
"""
# The newest of those that are old enough to have their receipt, from two days of partitions at most.
_COVERAGE = """
SELECT provider, count(*) AS sent, count(*) FILTER (WHERE status IN ('delivered', 'undelivered')) AS decided
FROM (
    SELECT provider, status FROM messages
    WHERE day BETWEEN $1 AND $2 AND id < $3 AND status IN ('sent', 'delivered', 'undelivered', 'unknown')
    ORDER BY day DESC, id DESC
    LIMIT $4
) AS newest
GROUP BY provider
"""
COVERAGE_SAMPLE: Final = 20_000
SETTLED_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class Inbox:
    """Receipts not merged yet, unmatched ones included, and since when the oldest (UTC ms)."""

    rows: int
    oldest_at: int | None


async def inbox(conn: asyncpg.Connection[Any]) -> Inbox:
    """The receipt inbox now."""
    row = await conn.fetchrow(_INBOX)
    return Inbox(0, None) if row is None else Inbox(row["rows"], row["oldest_at"])


async def oldest_by_status(conn: asyncpg.Connection[Any]) -> dict[str, int]:
    """When the oldest message of each status that is not final was created (UTC ms); `sending` included."""
    oldest = {row["status"]: row["oldest_at"] for row in await conn.fetch(_OLDEST)}
    sending = await conn.fetchval(_OLDEST_SENDING)
    if sending is not None:
        oldest["sending"] = sending
    return oldest


async def coverage(conn: asyncpg.Connection[Any], now_at: int) -> dict[str, float]:
    """Share of each provider's newest sent messages (older than ten minutes) that have a final receipt."""
    until_at = now_at - SETTLED_MS
    last: UUID = uuid7(until_at, bytes(10))
    today = datetime.fromtimestamp(now_at / 1000, UTC).date()
    rows = await conn.fetch(_COVERAGE, today - timedelta(days=1), today, last, COVERAGE_SAMPLE)
    return {row["provider"]: row["decided"] / row["sent"] for row in rows}
