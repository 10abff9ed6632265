"""A database that came back from a backup: noticed before any role works, and reviewed (docs/operations.md, Restore).

The backup knows nothing of what happened after it was made. What waited then may have been sent since, so all of it
becomes `unconfirmed` and is held, whatever its class says of doubt: nothing is sent again unasked. What was `sent` or
final stays. What falls due only in the future cannot have been sent and stays too. Providers are paused by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.domain import review
from gateway.ledger import outcomes, owners
from gateway.ledger.message_rows import LOCK_MESSAGES
from gateway.ledger.pauses import PAUSE, PROVIDER, Place, clear_pause, list_pauses, set_pause
from gateway.ledger.unnamed_submits import take_named
from gateway.policy.rules.snapshot import Policy
from scheduler.core.values import valueclass

BY: Final = "restore"
_BATCH: Final = 1_000
_LOCK: Final = "SELECT pg_advisory_lock(hashtextextended('sluicegate.restore', 0))"
_UNLOCK: Final = "SELECT pg_advisory_unlock(hashtextextended('sluicegate.restore', 0))"

# A dump that is restored makes its tables anew, in another database or not, so their oid moves.
_PLACE = """
SELECT (SELECT oid FROM pg_database WHERE datname = current_database()) || '/' || 'instance'::regclass::oid
"""
_CLUSTER = "SELECT system_identifier::text FROM pg_control_system()"
_LIVE = "SELECT count(*) FROM processes WHERE ended_at IS NULL AND heartbeat_at > $1"
_OWNER = """
INSERT INTO processes (role, worker, pid, host, started_at, heartbeat_at, ended_at)
VALUES ('restore', 'restore', 0, '', $1, $1, $1) RETURNING id
"""
_INHERIT = "UPDATE attempts SET owner_id = $1 WHERE outcome IS NULL AND owner_id IS DISTINCT FROM $1"
# Due before the restore: it may have been released after the backup was made, and sent.
_RELEASE = """
UPDATE messages m SET status = 'queued', version = version + 1
  FROM due d
 WHERE d.due_at <= $1 AND m.day = d.day AND m.id = d.id AND m.status = 'scheduled'
"""
# What may have been sent: everything that waits, but for what falls due only later.
_CLAIM = """
WITH page AS (
    SELECT m.day, m.id, m.next_slot, m.provider, m.created_at, m.status
      FROM messages m WHERE (m.day, m.id) > ($2, $3) ORDER BY m.day, m.id LIMIT $4
), claimed AS (
    INSERT INTO attempts (day, id, slot, kind, owner_id, provider, claimed_at)
    SELECT p.day, p.id, p.next_slot, 'submit', $1, p.provider, p.created_at FROM page p
     WHERE p.status = 'queued' AND NOT EXISTS (SELECT FROM due d WHERE d.day = p.day AND d.id = p.id AND d.due_at > $5)
    ON CONFLICT DO NOTHING
)
SELECT day, id FROM page ORDER BY day DESC, id DESC LIMIT 1
"""
_FORGET_WAYS_BACK = ("DELETE FROM outbox", "DELETE FROM held", "DELETE FROM due WHERE due_at <= $1")
_OPEN_OF = """
SELECT a.day, a.id, m.class, m.expires_at, m.possible_duplicate, a.slot
  FROM attempts a JOIN messages m ON m.day = a.day AND m.id = a.id
 WHERE a.owner_id = ANY ($1::bigint[]) AND m.status = 'unconfirmed' AND a.slot = m.next_slot - 1
"""
_COUNTS = f"SELECT class, count(*) AS messages FROM ({_OPEN_OF}) AS o GROUP BY class ORDER BY class"  # noqa: S608
_PAGE = f"""
SELECT day, id, slot FROM ({_OPEN_OF}) AS o WHERE $2::text[] IS NULL OR class = ANY ($2) ORDER BY id LIMIT $3
"""  # noqa: S608 - constants only
_AUDIT = "INSERT INTO audit (at, actor, action, detail) VALUES ($1, $2, $3, $4)"


class StillRunning(Exception):
    """Processes work on this database: a review would take their claims."""


@valueclass
class Review:
    """What stands under review: restores as (noticed_at, noticed_by), messages by class, providers still paused."""

    restores: list[tuple[int, str]]
    messages: dict[str, int]
    paused: list[str]


async def identity(conn: asyncpg.Connection[Any]) -> str:
    """Where this database is. A server that does not tell its cluster's number is known by the rest alone."""
    place = str(await conn.fetchval(_PLACE))
    try:
        return f"{await conn.fetchval(_CLUSTER)}/{place}"
    except asyncpg.InsufficientPrivilegeError:
        return f"?/{place}"


async def notice(conn: asyncpg.Connection[Any], pepper: bytes, policy: Policy | None, now_at: int) -> bool:
    """Reviews a database that stands elsewhere than the roles last found it; True where it did.

    Every role calls this before it works. `policy` is the one in force, None before the first.
    """
    here = await identity(conn)
    if await conn.fetchval("SELECT identity FROM instance") == here:
        return False
    await conn.execute(_LOCK)
    try:
        known = await conn.fetchval("SELECT identity FROM instance")
        if known == here:
            return False
        if known is not None and policy is not None:
            await _review(conn, pepper, policy, now_at, BY)
        await conn.execute("UPDATE instance SET identity = $1", here)
        return known is not None
    finally:
        await conn.execute(_UNLOCK)


async def mark(conn: asyncpg.Connection[Any], pepper: bytes, policy: Policy, by: str, now_at: int) -> None:
    """Reviews a database that nothing can tell from its original (a copy of the files). Raises StillRunning."""
    if await conn.fetchval(_LIVE, now_at - owners.DEAD_AFTER_MS):
        raise StillRunning
    await conn.execute(_LOCK)
    try:
        await _review(conn, pepper, policy, now_at, by)
    finally:
        await conn.execute(_UNLOCK)


async def standing(conn: asyncpg.Connection[Any]) -> Review:
    """What stands under review now."""
    rows = await conn.fetch("SELECT owner_id, noticed_at, noticed_by FROM restores ORDER BY owner_id")
    counts = await conn.fetch(_COUNTS, [row["owner_id"] for row in rows])
    paused = [one.place.name for one in await list_pauses(conn) if one.place.kind == PROVIDER and one.paused_by == BY]
    return Review(
        [(row["noticed_at"], row["noticed_by"]) for row in rows],
        {row["class"]: row["messages"] for row in counts},
        paused,
    )


async def settle(
    conn: asyncpg.Connection[Any], bench: outcomes.Bench, verdict: str, classes: Sequence[str] | None
) -> int:
    """Decides messages under review as the operator says (`gateway.domain.review`), a batch; returns how many.

    Call until it returns 0. What goes back into the queue is in the outbox when the batch is committed.
    """
    ids = [row["owner_id"] for row in await conn.fetch("SELECT owner_id FROM restores")]
    async with conn.transaction():
        page = await conn.fetch(_PAGE, ids, None if classes is None else list(classes), _BATCH)
        slots = {row["id"]: row["slot"] for row in page}
        rows = await conn.fetch(LOCK_MESSAGES, [row["day"] for row in page], [row["id"] for row in page])
        changes = [
            (row, change)
            for row in sorted(rows, key=lambda row: row["id"].int)
            if (change := review.settle(outcomes.standing_of(row), verdict, bench.now_at)) is not None
        ]
        if verdict == review.NEVER_SENT:
            places = [(r["day"], r["id"], slots[r["id"]], n) for r, _ in changes for n in range(1, r["segments"] + 1)]
            await take_named(conn, places)
        await outcomes.follow(conn, changes, bench)
    return len(changes)


async def resume(conn: asyncpg.Connection[Any], by: str, now_at: int) -> list[str]:
    """Ends the pauses that a restore made; returns the providers' names."""
    names = [one.place for one in await list_pauses(conn) if one.place.kind == PROVIDER and one.paused_by == BY]
    return [place.name for place in names if await clear_pause(conn, place, by, now_at)]


async def _review(conn: asyncpg.Connection[Any], pepper: bytes, policy: Policy, now_at: int, by: str) -> None:
    owner_id = await _begin(conn, policy, now_at, by)
    after: tuple[date, UUID] | None = (date.min, UUID(int=0))
    while after is not None:
        row = await conn.fetchrow(_CLAIM, owner_id, *after, _BATCH, now_at)
        after = None if row is None else (row["day"], row["id"])
    held = {name: replace(one, unconfirmed="hold") for name, one in policy.classes.items()}
    bench = outcomes.Bench(replace(policy, classes=held), pepper, now_at, lambda: 0.0)
    while await owners.close_claims(conn, bench, owner_id):
        pass
    await conn.execute("UPDATE restores SET reviewed_at = $2 WHERE owner_id = $1", owner_id, now_at)


async def _begin(conn: asyncpg.Connection[Any], policy: Policy, now_at: int, by: str) -> int:
    """The owner of what may have been sent; a review that broke off goes on under the same."""
    async with conn.transaction():
        unfinished = await conn.fetchval("SELECT owner_id FROM restores WHERE reviewed_at IS NULL")
        if unfinished is not None:
            return int(unfinished)
        await conn.execute("UPDATE processes SET ended_at = $1 WHERE ended_at IS NULL", now_at)
        owner_id: int = await conn.fetchval(_OWNER, now_at)
        await conn.execute("INSERT INTO restores (owner_id, noticed_at, noticed_by) VALUES ($1, $2, $3)",
                           owner_id, now_at, by)  # fmt: skip
        for name in sorted(policy.providers):
            await set_pause(conn, Place(PROVIDER, name), PAUSE, BY, now_at)
        await conn.execute(_INHERIT, owner_id)
        await conn.execute(_RELEASE, now_at)
        for statement in _FORGET_WAYS_BACK:
            await conn.execute(statement, *([now_at] if "$1" in statement else []))
        await conn.execute(_AUDIT, now_at, by, "database.restored", {})
        return owner_id
