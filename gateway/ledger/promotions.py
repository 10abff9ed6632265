"""From the due table back into the queue: retries, send_at, deferral and send windows (design section 3, Retries).

Every promoted batch is one outbox row, written in the transaction that makes its messages ready; `due` rows go with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg

from gateway.admission.flows import entry_of
from gateway.domain import states
from gateway.ledger.callback_lines import tenant_names
from gateway.ledger.folds import ADD_MESSAGE_EVENTS, lock_messages
from gateway.policy.rules.snapshot import Policy
from scheduler.core.records import Entry, pack_batch

ROUND: Final = 500
CHANNEL: Final = "sluicegate_due"  # told when a retry was put into the table

_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended('sluicegate.promoter', 0))"
# Those out of time are left to the expiry sweep.
_DUE = """
SELECT d.day, d.id, d.due_at, d.kind
FROM due d JOIN messages m ON m.day = d.day AND m.id = d.id
WHERE d.due_at <= $1
  AND (m.status NOT IN ('queued', 'scheduled') OR CASE WHEN m.submit_begun THEN m.expires_at ELSE m.submit_by END > $1)
ORDER BY d.due_at
LIMIT $2
"""
_DROP = "DELETE FROM due d USING unnest($1::date[], $2::uuid[]) AS w (day, id) WHERE d.day = w.day AND d.id = w.id"
_RELEASE = """
UPDATE messages m
SET status = 'queued', version = m.version + 1,
    sweep_at = CASE WHEN m.submit_begun THEN m.expires_at ELSE m.submit_by END
FROM unnest($1::date[], $2::uuid[]) AS w (day, id)
WHERE m.day = w.day AND m.id = w.id
"""
_PUT_OUTBOX = "INSERT INTO outbox (id, created_at, payload) VALUES ($1, $2, $3)"
_NEXT = "SELECT min(due_at) FROM due WHERE due_at > $1"


@dataclass(frozen=True, slots=True)
class Promoted:
    """What one round came to: `entries` stand in the outbox under `outbox_id`, to be enqueued after the commit."""

    found: int = 0
    oldest_at: int | None = None
    entries: tuple[Entry, ...] = ()
    outbox_id: UUID | None = None
    busy: bool = False

    @property
    def full(self) -> bool:
        """Whether more is likely to be due."""
        return self.found >= ROUND


async def promote_due(conn: asyncpg.Connection[Any], policy: Policy, pepper: bytes, now_at: int) -> Promoted:
    """Make up to `ROUND` due messages ready, in one transaction."""
    async with conn.transaction():
        if not await conn.fetchval(_TRY_LOCK):
            return Promoted(busy=True)
        due = await conn.fetch(_DUE, now_at, ROUND)
        if not due:
            return Promoted()
        keys = sorted((row["day"], row["id"]) for row in due)
        locked = list((await lock_messages(conn, keys)).values())
        ready = [row for row in locked if _may_go(row, now_at)]
        await _release(conn, [row for row in ready if row["status"] == states.SCHEDULED], due, now_at)
        # What ended meanwhile needs its due row no more; what is out of time keeps it for the expiry sweep.
        gone = {row["id"] for row in ready} | {row["id"] for row in locked if not _waits(row)}
        dropped = [key for key in keys if key[1] in gone]
        await conn.execute(_DROP, [day for day, _ in dropped], [message_id for _, message_id in dropped])
        entries = await _entries(conn, policy, pepper, ready)
        outbox_id = await _put_outbox(conn, entries, now_at)
        return Promoted(len(due), due[0]["due_at"], entries, outbox_id)


async def next_due_at(conn: asyncpg.Connection[Any], now_at: int) -> int | None:
    """When the next row becomes due (UTC ms)."""
    found: int | None = await conn.fetchval(_NEXT, now_at)
    return found


def _waits(row: Mapping[str, Any]) -> bool:
    return row["status"] in (states.QUEUED, states.SCHEDULED)


def _may_go(row: Mapping[str, Any], now_at: int) -> bool:
    deadline_at = row["expires_at"] if row["submit_begun"] else row["submit_by"]
    return _waits(row) and deadline_at > now_at


async def _release(
    conn: asyncpg.Connection[Any], rows: Sequence[Mapping[str, Any]], due: Sequence[Mapping[str, Any]], now_at: int
) -> None:
    if not rows:
        return
    kinds = {row["id"]: row["kind"] for row in due}
    days, message_ids = [row["day"] for row in rows], [row["id"] for row in rows]
    await conn.execute(_RELEASE, days, message_ids)
    causes = [kinds[message_id] for message_id in message_ids]
    await conn.execute(ADD_MESSAGE_EVENTS, days, message_ids, ["released"] * len(rows), causes, now_at)


async def _entries(
    conn: asyncpg.Connection[Any], policy: Policy, pepper: bytes, rows: Sequence[Mapping[str, Any]]
) -> tuple[Entry, ...]:
    names = await tenant_names(conn, {row["tenant_id"] for row in rows}) if rows else {}
    return tuple(entry_of(policy, pepper, names[row["tenant_id"]], row) for row in rows)


async def _put_outbox(conn: asyncpg.Connection[Any], entries: Sequence[Entry], now_at: int) -> UUID | None:
    if not entries:
        return None
    outbox_id = uuid4()
    await conn.execute(_PUT_OUTBOX, outbox_id, now_at, pack_batch(entries))
    return outbox_id
