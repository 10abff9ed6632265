"""Moving queued messages to another route: their slot is closed, so that every old reference is void (section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.admission.flows import entry_of
from gateway.domain import states
from gateway.ledger.claims import PLANNER_SETTINGS
from gateway.ledger.folds import lock_messages
from gateway.ledger.waiting import REROUTE, close_slots, put_outbox
from gateway.policy.rules.snapshot import Policy, Route
from scheduler.core.records import Entry
from scheduler.core.values import valueclass

ROUND: Final = 200
_LOOKED: Final = 5_000
_PLAN: Final = PLANNER_SETTINGS.replace("SET ", "SET LOCAL ")
# The index on sweep_at holds what is not final, the nearest deadline first; what is in the due table is not queued yet,
# and what an application's pause holds stays where it is.
_STUCK: Final = """
WITH page AS MATERIALIZED (
    SELECT m.day, m.id, m.sweep_at, m.status, m.route, m.provider, m.next_slot
      FROM messages m
     WHERE m.sweep_at >= $1 AND (m.sweep_at, m.id) > ($1, $2) {condition}
     ORDER BY m.sweep_at, m.id LIMIT $4
), stuck AS (
    SELECT p.day, p.id FROM page p
     WHERE p.status = 'queued' AND (p.route = ANY ($3::text[]) OR p.provider = ANY ($6::text[]))
       AND NOT EXISTS (SELECT FROM attempts a
                        WHERE a.day = p.day AND a.id = p.id AND a.slot = p.next_slot AND a.outcome IS NULL)
       AND NOT EXISTS (SELECT FROM due d WHERE d.day = p.day AND d.id = p.id)
       AND NOT EXISTS (SELECT FROM held h WHERE h.day = p.day AND h.id = p.id AND h.kind = 'application')
     ORDER BY p.sweep_at, p.id LIMIT $5
)
SELECT m.day, m.id, m.tenant_id, t.name AS tenant, m.class, m.status, m.next_slot, m.segments, m.application, m.sender,
       m.recipient, m.extras, m.route, m.provider, m.created_at, m.not_before, m.submit_by, m.expires_at, m.sweep_at,
       m.submit_begun, m.attempts_spent
  FROM stuck s JOIN messages m ON m.day = s.day AND m.id = s.id JOIN tenants t ON t.id = m.tenant_id
 ORDER BY m.sweep_at, m.id
"""
_STUCK_OTP: Final = _STUCK.format(condition="AND m.class = 'otp'")
_STUCK_ANY: Final = _STUCK.format(condition="")
_LAST: Final = """
SELECT sweep_at, id FROM (
    SELECT m.sweep_at, m.id FROM messages m WHERE m.sweep_at >= $1 AND (m.sweep_at, m.id) > ($1, $2)
     ORDER BY m.sweep_at, m.id LIMIT $3) AS page
 ORDER BY sweep_at DESC, id DESC LIMIT 1
"""
_MOVE: Final = """
UPDATE messages m SET route = r.route, provider = r.provider, next_slot = m.next_slot + 1, version = m.version + 1
  FROM unnest($1::date[], $2::uuid[], $3::text[], $4::text[]) AS r (day, id, route, provider)
 WHERE m.day = r.day AND m.id = r.id
"""
_UNHOLD: Final = """
DELETE FROM held h USING unnest($1::date[], $2::uuid[]) AS r (day, id) WHERE h.day = r.day AND h.id = r.id
"""
Cursor = tuple[int, UUID]


@valueclass
class Moved:
    """What went: `void` are (id, slot) of references that mean nothing any more; `entries` stand in the outbox."""

    entries: tuple[Entry, ...] = ()
    outbox_id: UUID | None = None
    void: tuple[tuple[UUID, int], ...] = ()


async def stuck_messages(
    conn: asyncpg.Connection[Any], routes: Sequence[str], after: Cursor, *, otp: bool, providers: Sequence[str] = ()
) -> tuple[list[asyncpg.Record], Cursor | None]:
    """Messages that wait for one of these routes or carriers, by deadline from a cursor on, and where to go on."""
    async with conn.transaction():
        await conn.execute(_PLAN)
        statement = _STUCK_OTP if otp else _STUCK_ANY
        rows = await conn.fetch(statement, *after, list(routes), _LOOKED, ROUND, list(providers))
        if len(rows) == ROUND:
            return rows, (rows[-1]["sweep_at"], rows[-1]["id"])
        last = None if otp else await conn.fetchrow(_LAST, *after, _LOOKED)
    return rows, None if last is None else (last["sweep_at"], last["id"])


async def move_messages(
    conn: asyncpg.Connection[Any],
    policy: Policy,
    pepper: bytes,
    wanted: Sequence[tuple[Mapping[str, Any], Route]],
    now_at: int,
) -> Moved:
    """Move messages to other routes in one transaction; one that was claimed, canceled or moved meanwhile stays."""
    routes = {row["id"]: (row["route"], route) for row, route in wanted}
    async with conn.transaction():
        locked = await lock_messages(conn, sorted((row["day"], row["id"]) for row, _ in wanted))
        rows = [
            row
            for row in locked.values()
            if row["status"] == states.QUEUED and row["route"] == routes[row["id"]][0] and begins_by(row) > now_at
        ]
        won = await close_slots(conn, rows, REROUTE, now_at)
        rows = [row for row in rows if row["id"] in won]
        if not rows:
            return Moved()
        days, ids = [row["day"] for row in rows], [row["id"] for row in rows]
        taken = [routes[row["id"]][1] for row in rows]
        await conn.execute(_MOVE, days, ids, [one.name for one in taken], [one.provider for one in taken])
        await conn.execute(_UNHOLD, days, ids)
        entries = tuple(
            entry_of(policy, pepper, row["tenant"], moved_row(row, route))
            for row, route in zip(rows, taken, strict=True)
        )
        outbox_id = await put_outbox(conn, entries, now_at)
    return Moved(entries, outbox_id, tuple((row["id"], row["next_slot"]) for row in rows))


def moved_row(row: Mapping[str, Any], route: Route) -> dict[str, Any]:
    """A row as it stands after its move."""
    return {**row, "route": route.name, "provider": route.provider, "next_slot": row["next_slot"] + 1}


def begins_by(row: Mapping[str, Any]) -> int:
    """Until when the next submit of a message must begin (UTC ms)."""
    return int(row["expires_at"] if row["submit_begun"] else row["submit_by"])
