"""The give-up list: callbacks that are no longer tried, for what reason, and how they are sent again."""

from __future__ import annotations

from typing import Any, Final

import asyncpg

from gateway.ledger.callback_lines import CHANNEL

_BULK: Final = 1_000

_REPLAY = """
UPDATE callbacks SET gave_up_at = NULL, tries = 0, created_at = $3, due_at = $3
WHERE tenant_id = $1 AND gave_up_at >= $2
"""
_AUDIT = "INSERT INTO audit (at, actor, action, detail) VALUES ($1, $2, 'callbacks.replay', $3)"
_COME_BACK = "UPDATE endpoints SET gone_version = NULL WHERE tenant_id = $1 AND gone_version IS NOT NULL"
_GONE = "UPDATE endpoints SET gone_version = $2 WHERE id = $1"
_GIVE_UP_LINE = """
UPDATE callbacks SET gave_up_at = $2, last_status = $3 WHERE id IN (
    SELECT id FROM callbacks WHERE endpoint_id = $1 AND gave_up_at IS NULL ORDER BY due_at LIMIT $4)
"""
_GIVE_UP_OLD = """
UPDATE callbacks SET gave_up_at = $2, last_status = coalesce(last_status, 'not_tried') WHERE id IN (
    SELECT id FROM callbacks WHERE gave_up_at IS NULL AND created_at <= $1 ORDER BY id LIMIT $3)
"""
_FORGET = """
DELETE FROM callbacks WHERE id IN (
    SELECT id FROM callbacks WHERE gave_up_at IS NOT NULL AND gave_up_at <= $1 ORDER BY id LIMIT $2)
"""
# One that said 410 is remembered while that policy version is in use.
_UNOWED = """
    NOT EXISTS (SELECT FROM callbacks c WHERE c.endpoint_id = e.id) AND e.gone_version IS DISTINCT FROM $1::int
"""
_MARK_IDLE = f"UPDATE endpoints e SET idle_at = $2 WHERE e.idle_at IS NULL AND {_UNOWED}"  # noqa: S608
_FORGET_IDLE = f"DELETE FROM endpoints e WHERE e.idle_at <= $2 AND {_UNOWED}"  # noqa: S608
# Longer than any transaction that read an endpoint's id before the mark and writes a callback to it.
IDLE_MS: Final = 600_000
_SUMMARY = """
SELECT t.name AS tenant, e.id AS endpoint, e.url,
       count(*) FILTER (WHERE c.gave_up_at IS NULL) AS owed, count(c.gave_up_at) AS gave_up,
       min(c.created_at) FILTER (WHERE c.gave_up_at IS NULL) AS oldest_at, max(c.gave_up_at) AS last_gave_up_at,
       (array_agg(c.last_status ORDER BY c.id DESC) FILTER (WHERE c.last_status IS NOT NULL))[1] AS last_status
  FROM callbacks c JOIN endpoints e ON e.id = c.endpoint_id JOIN tenants t ON t.id = c.tenant_id
 GROUP BY 1, 2, 3 ORDER BY owed DESC, gave_up DESC LIMIT $1
"""


async def replay(
    conn: asyncpg.Connection[asyncpg.Record], tenant_id: int, since_at: int, now_at: int, *, by: str
) -> int:
    """Send again what was given up since an instant; returns how many. Their `webhook-id` stays.

    Endpoints that had said 410 are asked again. Whose wish it was is kept.
    """
    async with conn.transaction():
        await conn.execute(_COME_BACK, tenant_id)
        count = _count(await conn.execute(_REPLAY, tenant_id, since_at, now_at))
        detail = {"tenant_id": tenant_id, "since_at": since_at, "callbacks": count}
        await conn.execute(_AUDIT, now_at, by, detail)
        await conn.execute("SELECT pg_notify($1, '')", CHANNEL)
    return count


async def close_line(
    conn: asyncpg.Connection[asyncpg.Record], endpoint_id: int, word: str, now_at: int, *, gone_version: int | None
) -> int:
    """Gives up what an endpoint is owed; with `gone_version` it gets nothing more under that policy version."""
    if gone_version is not None:
        await conn.execute(_GONE, endpoint_id, gone_version)
    total = 0
    while True:
        done = _count(await conn.execute(_GIVE_UP_LINE, endpoint_id, now_at, word, _BULK))
        total += done
        if done < _BULK:
            return total


async def give_up_old(conn: asyncpg.Connection[asyncpg.Record], created_until: int, now_at: int) -> int:
    """Gives up what was owed since that instant or longer, tried or not; returns how many (bounded)."""
    return _count(await conn.execute(_GIVE_UP_OLD, created_until, now_at, _BULK))


async def forget(conn: asyncpg.Connection[asyncpg.Record], gave_up_until: int) -> int:
    """Deletes from the give-up list what stands there since that instant or longer; returns how many (bounded)."""
    return _count(await conn.execute(_FORGET, gave_up_until, _BULK))


async def forget_endpoints(conn: asyncpg.Connection[asyncpg.Record], policy_version: int, now_at: int) -> int:
    """Deletes endpoints that have been owed nothing for IDLE_MS or longer; marks those that are owed nothing now."""
    forgotten = _count(await conn.execute(_FORGET_IDLE, policy_version, now_at - IDLE_MS))
    await conn.execute(_MARK_IDLE, policy_version, now_at)
    return forgotten


async def summary(conn: asyncpg.Connection[asyncpg.Record], limit: int) -> list[dict[str, Any]]:
    """What each endpoint is owed and what was given up, the longest lines first."""
    return [dict(row) for row in await conn.fetch(_SUMMARY, limit)]


def _count(done: str) -> int:
    return int(done.rpartition(" ")[2])
