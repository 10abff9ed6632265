"""Sweeps: what time alone brings about, in bounded, idempotent batches (design section 4).

Each function runs inside one transaction of its own and takes the lock of its sweep, so that one process at a time
does it; a sweep that finds the lock taken reports `busy` and has done nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import asyncpg

from gateway.domain import outcomes, states
from gateway.domain.ids import uuid7
from gateway.domain.outcomes import Change
from gateway.ledger.callback_lines import add_events
from gateway.ledger.claims import PLANNER_SETTINGS
from gateway.ledger.folds import lock_messages, refold
from gateway.ledger.outcomes import store_changes
from gateway.ledger.unnamed_submits import forget_unnamed
from gateway.policy.rules.snapshot import Policy
from scheduler.core.values import valueclass

ROUND: Final = 2_000
DELETE_BATCH: Final = 5_000

# The plan is always: batch -> primary key; without statistics (fresh partitions) the planner guesses worse.
_PLAN = PLANNER_SETTINGS.replace("SET ", "SET LOCAL ")
_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))"
_DUE = """
SELECT m.day, m.id, m.class, m.status, m.sweep_at
FROM messages m
WHERE m.sweep_at <= $1 AND m.status = ANY ($2::text[])
  AND NOT EXISTS (
      SELECT FROM attempts a WHERE a.day = m.day AND a.id = m.id AND a.slot = m.next_slot AND a.outcome IS NULL
  )
ORDER BY m.sweep_at
LIMIT $3
"""
_NEXT = "SELECT min(sweep_at) FROM messages WHERE sweep_at > $1"
_OLD_OUTBOX = "SELECT id, created_at, payload FROM outbox WHERE created_at <= $1 ORDER BY created_at LIMIT $2"
_FORGET_IDEMPOTENCY = """
DELETE FROM idempotency i
USING (SELECT tenant_id, endpoint, key FROM idempotency WHERE keep_until <= $1 ORDER BY keep_until LIMIT $2) AS o
WHERE i.tenant_id = o.tenant_id AND i.endpoint = o.endpoint AND i.key = o.key
"""
# Row ids rise with the time of arrival, so the oldest are found without an index on it.
_FORGET_RECEIPTS = """
DELETE FROM receipts
WHERE id IN (
    SELECT id FROM (SELECT id, received_at FROM receipts ORDER BY id LIMIT $2) AS oldest WHERE received_at < $1
)
"""
# Ids of messages rise with their creation, and an index on them is there. What was made long before it was sent
# stays at the head until its own time is over; a look is bounded all the same.
_FORGET_CARRIER_IDS = """
DELETE FROM carrier_ids c
USING (
    SELECT provider, carrier_id, day, id, slot, part
    FROM (SELECT * FROM carrier_ids WHERE id < $1 ORDER BY id LIMIT $3) AS oldest
    WHERE sent_at < $2
) AS o
WHERE c.provider = o.provider AND c.carrier_id = o.carrier_id AND c.day = o.day AND c.id = o.id AND c.slot = o.slot
  AND c.part = o.part
"""
_FORGET_CALLBACKS = """
DELETE FROM callbacks
WHERE id IN (SELECT id FROM callbacks WHERE gave_up_at < $1 ORDER BY id LIMIT $2)
"""
_PARTITION_DAYS = """
SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = ANY (ARRAY['messages'::regclass, 'attempts'::regclass])
GROUP BY 1 HAVING count(*) = 2
"""
_SILENT = "SELECT id, heartbeat_at FROM processes WHERE ended_at IS NULL AND heartbeat_at < $1"
# An egress process lives as long as it holds its own lock, however silent it is.
_END_SILENT = """
UPDATE processes p SET ended_at = $3
FROM unnest($1::bigint[], $2::bigint[]) AS w (id, heartbeat_at)
WHERE p.id = w.id AND p.heartbeat_at = w.heartbeat_at AND p.ended_at IS NULL
  AND (p.role <> 'egress' OR pg_try_advisory_xact_lock(hashtextextended('sluicegate.owner:' || p.id, 0)))
"""
_OLDEST_DEAD = """
SELECT min(coalesce(p.ended_at, p.heartbeat_at)) FROM processes p
WHERE (p.ended_at IS NOT NULL OR p.heartbeat_at < $1)
  AND EXISTS (SELECT FROM attempts a WHERE a.outcome IS NULL AND a.owner_id = p.id)
"""
_SILENT_MS: Final = 15_000
_FORGET_PROCESSES = """
DELETE FROM processes p
WHERE p.ended_at < $1 AND NOT EXISTS (SELECT FROM attempts a WHERE a.outcome IS NULL AND a.owner_id = p.id)
"""


@valueclass
class Swept:
    """What one round came to. `oldest_at`: the due time of what waited longest (UTC ms)."""

    found: int = 0
    oldest_at: int | None = None
    busy: bool = False

    @property
    def full(self) -> bool:
        """Whether more is likely to be due."""
        return self.found >= ROUND


async def end_doubt(conn: asyncpg.Connection[Any], policy: Policy, now_at: int) -> Swept:
    """Fail what stayed in doubt beyond the last useful moment as `outcome_unknown`; a later receipt corrects it."""
    async with conn.transaction():
        due, rows = await _take_due(conn, "sluicegate.sweep.doubt", states.UNCONFIRMED, now_at)
        changes = [(row, _doubt_fails(row, now_at)) for row in rows]
        changed = await store_changes(conn, changes)
        event = outcomes.EVENTS[states.FAILED]
        await add_events(conn, policy, [(row, event) for row in changed], now_at)
        return due


async def cut_receipts_off(conn: asyncpg.Connection[Any], policy: Policy, now_at: int) -> Swept:
    """Decide messages whose wait for receipts is over: by what the network said so far, else `unknown`."""
    async with conn.transaction():
        due, rows = await _take_due(conn, "sluicegate.sweep.cutoff", states.SENT, now_at)
        await refold(conn, policy, rows, now_at, cut_off=True)
        return due


async def next_due_at(conn: asyncpg.Connection[Any], now_at: int) -> int | None:
    """When the next message must be looked at (UTC ms)."""
    found: int | None = await conn.fetchval(_NEXT, now_at)
    return found


async def old_outbox(conn: asyncpg.Connection[Any], before_at: int, limit: int) -> list[asyncpg.Record]:
    """Outbox rows that should have been enqueued long ago: id, created_at, payload."""
    rows: list[asyncpg.Record] = await conn.fetch(_OLD_OUTBOX, before_at, limit)
    return rows


async def begin_alone(conn: asyncpg.Connection[Any], name: str) -> bool:
    """Whether this transaction alone does a sweep now; the lock goes with it."""
    return bool(await conn.fetchval(_TRY_LOCK, f"sluicegate.sweep.{name}"))


async def oldest_dead(conn: asyncpg.Connection[Any], now_at: int) -> int | None:
    """Since when the claims of a process that is dead, or silent for 15 s, are open (UTC ms); None where none are."""
    found: int | None = await conn.fetchval(_OLDEST_DEAD, now_at - _SILENT_MS)
    return found


async def forget_idempotency(conn: asyncpg.Connection[Any], now_at: int) -> int:
    """Delete idempotency rows that nobody can ask for any more; returns how many."""
    return _count(await conn.execute(_FORGET_IDEMPOTENCY, now_at, DELETE_BATCH))


async def forget_receipts(conn: asyncpg.Connection[Any], before_at: int) -> int:
    """Delete inbox rows received before an instant; returns how many."""
    return _count(await conn.execute(_FORGET_RECEIPTS, before_at, DELETE_BATCH))


async def forget_carrier_ids(conn: asyncpg.Connection[Any], before_at: int) -> int:
    """Delete the carriers' ids of parts sent before an instant, known or never learnt; returns how many."""
    async with conn.transaction():
        await conn.execute(_PLAN)
        named = _count(await conn.execute(_FORGET_CARRIER_IDS, uuid7(before_at, bytes(10)), before_at, DELETE_BATCH))
    return max(named, await forget_unnamed(conn, before_at, DELETE_BATCH))


async def forget_callbacks(conn: asyncpg.Connection[Any], before_at: int) -> int:
    """Delete callbacks given up before an instant; returns how many."""
    return _count(await conn.execute(_FORGET_CALLBACKS, before_at, DELETE_BATCH))


async def keep_partitions(conn: asyncpg.Connection[Any], now_at: int, days_ahead: int) -> None:
    """Make the partitions of the coming days."""
    await conn.execute("SELECT ensure_partitions($1, $2)", _day(now_at), days_ahead)


async def partitions_ahead(conn: asyncpg.Connection[Any], now_at: int) -> int:
    """For how many days from today on partitions exist without a gap; -1 for none.

    A clock that was ahead for a while left days behind that are of no use until the days before them are there.
    """
    today, days = _day(now_at), {row["day"] for row in await conn.fetch(_PARTITION_DAYS)}
    return next(n for n in range(-1, len(days)) if today + timedelta(days=n + 1) not in days)


def _day(now_at: int) -> date:
    return datetime.fromtimestamp(now_at / 1000, UTC).date()


async def silent_processes(conn: asyncpg.Connection[Any], before_at: int) -> dict[int, int]:
    """Processes without an end whose heartbeat is older than an instant: id -> heartbeat_at."""
    return {row["id"]: row["heartbeat_at"] for row in await conn.fetch(_SILENT, before_at)}


async def end_processes(conn: asyncpg.Connection[Any], silent: Mapping[int, int], now_at: int) -> int:
    """Write the end of processes whose heartbeat has not moved; returns how many."""
    if not silent:
        return 0
    return _count(await conn.execute(_END_SILENT, list(silent), list(silent.values()), now_at))


async def forget_processes(conn: asyncpg.Connection[Any], before_at: int) -> int:
    """Delete rows of processes that ended before an instant and hold no claim; returns how many."""
    return _count(await conn.execute(_FORGET_PROCESSES, before_at))


async def _take_due(
    conn: asyncpg.Connection[Any], lock: str, status: str, now_at: int
) -> tuple[Swept, list[asyncpg.Record]]:
    if not await conn.fetchval(_TRY_LOCK, lock):
        return Swept(busy=True), []
    await conn.execute(_PLAN)
    due = await conn.fetch(_DUE, now_at, [status], ROUND)
    if not due:
        return Swept(), []
    locked = await lock_messages(conn, sorted((row["day"], row["id"]) for row in due))
    rows = [row for row in locked.values() if row["status"] == status and (row["sweep_at"] or now_at + 1) <= now_at]
    return Swept(len(due), due[0]["sweep_at"]), rows


def _doubt_fails(row: Mapping[str, Any], now_at: int) -> Change:
    return Change(
        outcome=outcomes.CLOSED,
        status=states.FAILED,
        next_slot=row["next_slot"],
        attempts_spent=row["attempts_spent"],
        submit_begun=row["submit_begun"],
        possible_duplicate=row["possible_duplicate"],
        error={"code": outcomes.OUTCOME_UNKNOWN, "permanent": False},
        expiry=None,
        sweep_at=None,
        final_at=now_at,
    )


def _count(done: str) -> int:
    return int(done.rpartition(" ")[2] or 0)
