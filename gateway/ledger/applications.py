"""Applications of a tenant as a whole: what they have by status, and canceling all that waits (contract section 2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.domain import states
from gateway.domain.ids import uuid7
from gateway.ledger.claims import PLANNER_SETTINGS
from scheduler.core.values import valueclass

_LOOKED: Final = 5_000
_COUNT_S: Final = 5.0
_PLAN: Final = PLANNER_SETTINGS.replace("SET ", "SET LOCAL ")
_COUNTS: Final = """
SELECT m.application, m.status, count(*) AS n
  FROM messages m
 WHERE m.tenant_id = $1 AND m.application IS NOT NULL AND ($2::text IS NULL OR m.application = $2)
 GROUP BY m.application, m.status
"""
_SENDING: Final = """
SELECT m.application, count(*) AS n
  FROM attempts a JOIN messages m ON m.day = a.day AND m.id = a.id
 WHERE a.outcome IS NULL AND m.tenant_id = $1 AND m.application IS NOT NULL AND m.status = 'queued'
   AND m.next_slot = a.slot AND ($2::text IS NULL OR m.application = $2)
 GROUP BY m.application
"""
_THERE: Final = "SELECT EXISTS (SELECT FROM messages WHERE tenant_id = $1 AND application = $2)"
_PAGE: Final = """
SELECT m.day, m.id, m.status IN ('queued', 'scheduled') AS waits
  FROM messages m
 WHERE m.tenant_id = $1 AND m.application = $2 AND m.id > $3 AND m.id < $4
 ORDER BY m.id
 LIMIT $5
"""
# As one message is canceled (`gateway.ledger.cancellation`), for a batch in key order.
_CANCEL: Final = """
WITH wanted AS MATERIALIZED (
    SELECT m.* FROM unnest($1::date[], $2::uuid[]) AS r (day, id) CROSS JOIN LATERAL (
           SELECT m.day, m.id, m.next_slot FROM messages m
            WHERE m.day = r.day AND m.id = r.id AND m.status IN ('queued', 'scheduled') FOR UPDATE) AS m
), won AS (
    INSERT INTO attempts (day, id, slot, kind, claimed_at, outcome, outcome_at)
    SELECT w.day, w.id, w.next_slot, 'cancel', $3, 'closed', $3 FROM wanted w
     WHERE NOT EXISTS (SELECT FROM attempts a WHERE a.day = w.day AND a.id = w.id AND a.outcome = 'unconfirmed')
    ON CONFLICT DO NOTHING
    RETURNING day, id
), undue AS (
    DELETE FROM due d USING won w WHERE d.day = w.day AND d.id = w.id
), unheld AS (
    DELETE FROM held h USING won w WHERE h.day = w.day AND h.id = w.id
)
UPDATE messages m SET status = 'canceled', version = m.version + 1, final_at = $3, sweep_at = NULL
  FROM won w WHERE m.day = w.day AND m.id = w.id
RETURNING m.id
"""
_AUDIT: Final = "INSERT INTO audit (at, actor, action, detail) VALUES ($1, $2, $3, $4)"
_FIRST: Final = UUID(int=0)


@valueclass
class Sweepings:
    """One batch of a cancellation: which messages were canceled, and where the next goes on (None: at the end)."""

    canceled: tuple[UUID, ...]
    after: UUID | None


async def counts(conn: asyncpg.Connection[Any], tenant_id: int, name: str | None = None) -> dict[str, dict[str, int]]:
    """Messages by application and status, of one application or of all that the tenant ever named."""
    found: dict[str, dict[str, int]] = {}
    for row in await conn.fetch(_COUNTS, tenant_id, name, timeout=_COUNT_S):
        found.setdefault(row["application"], {})[row["status"]] = row["n"]
    for row in await conn.fetch(_SENDING, tenant_id, name, timeout=_COUNT_S):
        by_status = found.setdefault(row["application"], {})
        waiting = max(0, by_status.get(states.QUEUED, 0) - row["n"])
        by_status[states.SENDING] = row["n"]
        by_status[states.QUEUED] = waiting
    return {one: {status: n for status, n in by_status.items() if n} for one, by_status in found.items()}


async def has_messages(conn: asyncpg.Connection[Any], tenant_id: int, name: str) -> bool:
    """Whether the tenant has ever sent under this name."""
    return bool(await conn.fetchval(_THERE, tenant_id, name))


async def cancel_waiting(
    conn: asyncpg.Connection[Any], tenant_id: int, name: str, now_at: int, after: UUID | None = None
) -> Sweepings:
    """Cancel the next batch of what waits of an application and was there at `now_at`, in one transaction.

    Every message is decided by its claim slot: what a session has claimed goes on.
    """
    async with conn.transaction():
        await conn.execute(_PLAN)
        last = uuid7(now_at + 1, bytes(10))
        page = await conn.fetch(_PAGE, tenant_id, name, after or _FIRST, last, _LOOKED)
        waiting = [row for row in page if row["waits"]]
        canceled: Sequence[asyncpg.Record] = ()
        if waiting:
            canceled = await conn.fetch(
                _CANCEL, [row["day"] for row in waiting], [row["id"] for row in waiting], now_at
            )
    return Sweepings(tuple(row["id"] for row in canceled), page[-1]["id"] if len(page) == _LOOKED else None)


async def note_cancellation(
    conn: asyncpg.Connection[Any], where: tuple[str, str], canceled: int, by: str, now_at: int
) -> None:
    """The audit's row of a cancellation; `where` is (tenant, application)."""
    tenant, name = where
    detail = {"name": name, "tenant": tenant, "canceled": canceled}
    await conn.execute(_AUDIT, now_at, by, "application.cancel", detail)
