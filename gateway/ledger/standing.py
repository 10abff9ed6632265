"""What the ledger knows of a message that waits: for its time, for a pause to end, for an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.domain import ids
from gateway.domain.explanation import Wait
from gateway.ledger.message_rows import MESSAGE_COLUMNS
from scheduler.core.values import valueclass

_S: Final = 2.0
_FIND: Final = f"""
SELECT m.*, t.name AS tenant, d.due_at, d.kind AS due_kind, h.kind AS held_kind, h.name AS held_name,
       a.claimed_at, a.written_at, a.session, p.kind AS paused_kind, p.name AS paused_name
  FROM (SELECT {MESSAGE_COLUMNS} FROM messages m WHERE m.day = $1 AND m.id = $2) AS m
  JOIN tenants t ON t.id = m.tenant_id
  LEFT JOIN due d ON d.day = m.day AND d.id = m.id
  LEFT JOIN held h ON h.day = m.day AND h.id = m.id
  LEFT JOIN attempts a ON a.day = m.day AND a.id = m.id AND a.slot = m.next_slot AND a.outcome IS NULL
  LEFT JOIN LATERAL (SELECT kind, name FROM pauses
                      WHERE tenant_id = 0 AND (kind, name) IN (('route', m.route), ('provider', m.provider))
                      ORDER BY kind DESC LIMIT 1) AS p ON true
 WHERE $3::int IS NULL OR m.tenant_id = $3
"""  # noqa: S608 - constant text only


@valueclass
class Standing:
    """A message's row with its tenant's name, and what it waits for beside the queue."""

    row: Mapping[str, Any]
    tenant: str
    wait: Wait


async def find(conn: asyncpg.Connection[Any], tenant_id: int | None, message_id: UUID) -> Standing | None:
    """Where a message stands; None: there is none, or it is another tenant's (`tenant_id` None: any tenant's)."""
    row = await conn.fetchrow(_FIND, ids.day_of(message_id), message_id, tenant_id, timeout=_S)
    if row is None:
        return None
    wait = Wait(
        due_at=row["due_at"],
        due_kind=row["due_kind"],
        held_kind=row["held_kind"],
        held_name=row["held_name"],
        claimed_at=row["claimed_at"],
        written_at=row["written_at"],
        session=row["session"],
        paused_kind=row["paused_kind"],
        paused_name=row["paused_name"],
    )
    return Standing(row, row["tenant"], wait)
