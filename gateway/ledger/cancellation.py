"""Cancel: one more bidder for a message's next slot (design section 4, "one arbiter").

The message row is locked first, then (day, id, next_slot) is inserted: the order that every closing of a slot keeps. A
claim inserts without the lock, so whoever inserted first has won.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.domain import ids
from scheduler.core.values import valueclass

_CANCEL: Final = """
WITH wanted AS MATERIALIZED (
    SELECT m.day, m.id, m.next_slot FROM messages m
     WHERE m.day = $1 AND m.id = $2 AND m.tenant_id = $3 AND m.status IN ('queued', 'scheduled')
       FOR UPDATE
), won AS (
    INSERT INTO attempts (day, id, slot, kind, claimed_at, outcome, outcome_at)
    SELECT w.day, w.id, w.next_slot, 'cancel', $4, 'closed', $4 FROM wanted w
     WHERE NOT EXISTS (SELECT FROM attempts a WHERE a.day = w.day AND a.id = w.id AND a.outcome = 'unconfirmed')
    ON CONFLICT DO NOTHING
    RETURNING day, id
), undue AS (
    DELETE FROM due d USING won w WHERE d.day = w.day AND d.id = w.id
)
UPDATE messages m SET status = 'canceled', version = m.version + 1, final_at = $4, sweep_at = NULL
  FROM won w WHERE m.day = w.day AND m.id = w.id
RETURNING m.expires_at
"""
_THERE: Final = "SELECT 1 FROM messages WHERE day = $1 AND id = $2 AND tenant_id = $3"


@valueclass
class Canceled:
    """A message that will never be submitted; its reference in the index is void until `expires_at` (UTC ms)."""

    expires_at: int


@valueclass
class NotCancelable:
    """The message is there but begun, in doubt or over."""


async def cancel(
    conn: asyncpg.Connection[Any], tenant_id: int, message_id: UUID, now_at: int
) -> Canceled | NotCancelable | None:
    """Cancels a message that waits; None where the tenant has no such message."""
    day = ids.day_of(message_id)
    expires_at = await conn.fetchval(_CANCEL, day, message_id, tenant_id, now_at, timeout=2.0)
    if expires_at is not None:
        return Canceled(expires_at)
    if await conn.fetchval(_THERE, day, message_id, tenant_id, timeout=2.0) is None:
        return None
    return NotCancelable()
