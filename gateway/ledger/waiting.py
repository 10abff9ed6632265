"""Messages that change how they wait: slots closed without a submit, rows of the due table, entries for the queue.

Shared by what sends a claimed-for message back to wait (closed send windows) and what moves it to another route.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg

from scheduler.core.records import Entry, pack_batch
from scheduler.core.values import valueclass

# Kinds of `attempts` rows that close a slot so that old references to the message are void. Neither is a submit.
WINDOW: Final = "window"
REROUTE: Final = "reroute"
# The word of `due.kind` for what a carrier refused and may take later.
RETRY: Final = "retry"

_WIN: Final = """
INSERT INTO attempts (day, id, slot, kind, provider, claimed_at, outcome, outcome_at)
SELECT r.day, r.id, r.slot, $5, r.provider, $6, 'closed', $6
  FROM unnest($1::date[], $2::uuid[], $3::smallint[], $4::text[]) AS r (day, id, slot, provider)
ON CONFLICT DO NOTHING
RETURNING id
"""
_PUT_DUE: Final = """
INSERT INTO due (day, id, due_at, kind, class, provider, tenant_id, flow, segments)
SELECT * FROM unnest($1::date[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::int[], $8::text[],
                     $9::smallint[])
ON CONFLICT (day, id) DO UPDATE
   SET due_at = excluded.due_at, kind = excluded.kind, class = excluded.class, provider = excluded.provider,
       tenant_id = excluded.tenant_id, flow = excluded.flow, segments = excluded.segments
"""
_PUT_OUTBOX: Final = "INSERT INTO outbox (id, created_at, payload) VALUES ($1, $2, $3)"


@valueclass
class DueRow:
    """What waits for a time (UTC ms); `flow` is the key of the flow that it will join."""

    day: date
    id: UUID
    due_at: int
    kind: str
    class_name: str
    provider: str
    tenant_id: int
    flow: str
    segments: int


async def close_slots(
    conn: asyncpg.Connection[Any], rows: Sequence[Mapping[str, Any]], kind: str, now_at: int
) -> set[UUID]:
    """Win the next slot of locked messages, in key order; returns the ids of those that were not claimed before."""
    if not rows:
        return set()
    won = await conn.fetch(
        _WIN,
        [row["day"] for row in rows],
        [row["id"] for row in rows],
        [row["next_slot"] for row in rows],
        [row["provider"] for row in rows],
        kind,
        now_at,
    )
    return {row["id"] for row in won}


async def put_due(conn: asyncpg.Connection[Any], rows: Sequence[DueRow]) -> None:
    """Write rows of the due table; one that a message had before is replaced."""
    if not rows:
        return
    ordered = sorted(rows, key=lambda row: (row.day, row.id))
    await conn.execute(
        _PUT_DUE,
        [row.day for row in ordered],
        [row.id for row in ordered],
        [row.due_at for row in ordered],
        [row.kind for row in ordered],
        [row.class_name for row in ordered],
        [row.provider for row in ordered],
        [row.tenant_id for row in ordered],
        [row.flow for row in ordered],
        [row.segments for row in ordered],
    )


async def put_outbox(conn: asyncpg.Connection[Any], entries: Sequence[Entry], now_at: int) -> UUID | None:
    """Write what must be enqueued after the commit; None where there is nothing."""
    if not entries:
        return None
    outbox_id = uuid4()
    await conn.execute(_PUT_OUTBOX, outbox_id, now_at, pack_batch(entries))
    return outbox_id
