"""What follows from the end of a pause, in bounded batches: budgets moved, held messages back in the queue.

A tenant's own pause does not count against `submit_by` (contract, "The two clocks"): each message that waited through
it gets the time back once, never beyond `expires_at`. The place in `resumptions.moved_to` goes on in the transaction of
the batch, so that a process that dies moves nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg

from gateway.admission.flows import entry_of
from gateway.domain.ids import uuid7
from gateway.ledger.callback_lines import tenant_names
from gateway.ledger.claims import PLANNER_SETTINGS
from gateway.ledger.folds import lock_messages
from gateway.ledger.pauses import Place
from gateway.policy.rules.snapshot import Policy
from scheduler.core.records import Entry, pack_batch
from scheduler.core.values import valueclass

ROUND: Final = 1_000
_LOOKED: Final = 5_000
# What may still wait was accepted at most so long before: `send_at` lies at most 35 days ahead, a ttl is bounded.
_LIVES_MS: Final = 100 * 86_400_000
_PLAN: Final = PLANNER_SETTINGS.replace("SET ", "SET LOCAL ")
_TRY_LOCK: Final = "SELECT pg_try_advisory_xact_lock(hashtextextended('sluicegate.resumption', 0))"
_LIST: Final = """
SELECT r.id, r.kind, r.tenant_id, t.name AS tenant, r.name, r.since_at, r.until_at, r.moved_to
  FROM resumptions r LEFT JOIN tenants t ON t.id = r.tenant_id AND r.tenant_id <> 0
 ORDER BY r.id
"""
_PAGE: Final = """
SELECT m.day, m.id, m.status IN ('queued', 'scheduled') AND NOT m.submit_begun AS waits
  FROM messages m
 WHERE m.tenant_id = $1 AND m.application = $2 AND m.id > $3 AND m.id < $4
 ORDER BY m.id
 LIMIT $5
"""
# An open claim is left alone: it goes by the submit_by that it was given.
_MOVE: Final = """
WITH locked AS MATERIALIZED (
    SELECT m.* FROM unnest($1::date[], $2::uuid[]) AS r (day, id) CROSS JOIN LATERAL (
           SELECT m.day, m.id, m.expires_at,
                  m.submit_by + $4::bigint - greatest($3::bigint, m.created_at, m.not_before) AS submit_by
             FROM messages m
            WHERE m.day = r.day AND m.id = r.id AND m.status IN ('queued', 'scheduled') AND NOT m.submit_begun
              AND greatest($3::bigint, m.created_at, m.not_before) < $4::bigint
              FOR UPDATE) AS m
)
UPDATE messages m
   SET submit_by = least(l.submit_by, l.expires_at), sweep_at = least(l.submit_by, l.expires_at)
  FROM locked l
 WHERE m.day = l.day AND m.id = l.id
"""
# The next pause that holds anything, without reading what it holds.
_HOLDING: Final = """
WITH RECURSIVE holders AS (
    (SELECT kind, tenant_id, name FROM held ORDER BY kind, tenant_id, name LIMIT 1)
    UNION ALL
    SELECT n.kind, n.tenant_id, n.name
      FROM holders h CROSS JOIN LATERAL (
           SELECT kind, tenant_id, name FROM held d
            WHERE (d.kind, d.tenant_id, d.name) > (h.kind, h.tenant_id, h.name)
            ORDER BY kind, tenant_id, name LIMIT 1) AS n
)
SELECT h.kind, h.tenant_id, h.name FROM holders h
 WHERE NOT EXISTS (SELECT FROM pauses p
                    WHERE p.kind = h.kind AND p.tenant_id = h.tenant_id AND p.name = h.name)
"""
_TAKE: Final = """
DELETE FROM held h USING (
    SELECT day, id FROM held WHERE kind = $1 AND tenant_id = $2 AND name = $3
     ORDER BY day, id LIMIT $4 FOR UPDATE SKIP LOCKED) AS t
 WHERE h.day = t.day AND h.id = t.id
RETURNING h.day, h.id
"""
_OPEN: Final = """
SELECT m.id FROM unnest($1::date[], $2::uuid[]) AS r (day, id) JOIN messages m ON m.day = r.day AND m.id = r.id
 WHERE EXISTS (SELECT FROM attempts a
                WHERE a.day = m.day AND a.id = m.id AND a.slot = m.next_slot AND a.outcome IS NULL)
    OR EXISTS (SELECT FROM due d WHERE d.day = m.day AND d.id = m.id)
"""
_PUT_OUTBOX: Final = "INSERT INTO outbox (id, created_at, payload) VALUES ($1, $2, $3)"


@valueclass
class Resumption:
    """The end of one pause of `place`, which lasted from `since_at` to `until_at` (UTC ms)."""

    id: int
    place: Place
    since_at: int
    until_at: int
    moved_to: UUID | None


@valueclass
class Released:
    """Held messages that are queued again: `entries` stand in the outbox under `outbox_id`, to be enqueued."""

    found: int = 0
    entries: tuple[Entry, ...] = ()
    outbox_id: UUID | None = None


async def list_resumptions(conn: asyncpg.Connection[Any]) -> list[Resumption]:
    """Ends of pauses whose consequences are not all drawn, oldest first."""
    return [
        Resumption(
            row["id"],
            Place(row["kind"], row["name"], row["tenant_id"], row["tenant"]),
            row["since_at"],
            row["until_at"],
            row["moved_to"],
        )
        for row in await conn.fetch(_LIST)
    ]


async def move_budgets(conn: asyncpg.Connection[Any], ended: Resumption) -> bool:
    """Give the next batch of an application's messages the paused time back; whether more is left to do."""
    async with conn.transaction():
        if not await conn.fetchval(_TRY_LOCK):
            return True
        row = await conn.fetchrow("SELECT moved_to FROM resumptions WHERE id = $1", ended.id)
        if row is None:
            return False
        first = row["moved_to"] or uuid7(max(0, ended.since_at - _LIVES_MS), bytes(10))
        last = uuid7(ended.until_at + 1, bytes(10))
        await conn.execute(_PLAN)
        page = await conn.fetch(_PAGE, ended.place.tenant_id, ended.place.name, first, last, _LOOKED)
        waiting = [one for one in page if one["waits"]]
        if waiting:
            days, ids = [one["day"] for one in waiting], [one["id"] for one in waiting]
            await conn.execute(_MOVE, days, ids, ended.since_at, ended.until_at)
        if page:
            await conn.execute("UPDATE resumptions SET moved_to = $2 WHERE id = $1", ended.id, page[-1]["id"])
    return len(page) == _LOOKED


async def forget_resumption(conn: asyncpg.Connection[Any], ended: Resumption) -> None:
    """All that follows from this end is done."""
    await conn.execute("DELETE FROM resumptions WHERE id = $1", ended.id)


async def free_holders(conn: asyncpg.Connection[Any]) -> list[tuple[str, int, str]]:
    """(kind, tenant id, name) of what holds messages and is not paused any more."""
    return [(row["kind"], row["tenant_id"], row["name"]) for row in await conn.fetch(_HOLDING)]


async def release_held(
    conn: asyncpg.Connection[Any], policy: Policy, pepper: bytes, holder: tuple[str, int, str], now_at: int
) -> Released:
    """Put up to `ROUND` messages that a pause held back into the queue, in one transaction with their outbox row."""
    async with conn.transaction():
        await conn.execute(_PLAN)
        taken = await conn.fetch(_TAKE, *holder, ROUND)
        if not taken:
            return Released()
        keys = sorted((row["day"], row["id"]) for row in taken)
        locked = await lock_messages(conn, keys)
        elsewhere = await _elsewhere(conn, keys)
        rows = [row for row in locked.values() if row["status"] == "queued" and row["id"] not in elsewhere]
        if not rows:
            return Released(len(taken))
        names = await tenant_names(conn, {row["tenant_id"] for row in rows})
        entries = tuple(entry_of(policy, pepper, names[row["tenant_id"]], row, front=True) for row in rows)
        outbox_id = uuid4()
        await conn.execute(_PUT_OUTBOX, outbox_id, now_at, pack_batch(entries))
        return Released(len(taken), entries, outbox_id)


async def _elsewhere(conn: asyncpg.Connection[Any], keys: Sequence[tuple[date, UUID]]) -> set[UUID]:
    """Those that a claim or the due table has: they come into the queue by themselves."""
    return {row["id"] for row in await conn.fetch(_OPEN, [day for day, _ in keys], [id_ for _, id_ in keys])}
