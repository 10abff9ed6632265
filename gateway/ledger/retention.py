"""What is forgotten and when: texts, numbers, whole days (contract, `privacy`; reliability.md section 5, PII).

Every function is one bounded, idempotent step in a transaction of its own; one process at a time does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from hashlib import blake2b
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.ledger.claims import PLANNER_SETTINGS
from gateway.ledger.usage import roll_up
from gateway.sealing import SealBroken, Sealer, about_message
from scheduler.core.values import valueclass

BATCH: Final = 2_000
HASH_MARK: Final = "#"
_LOOK_AGAIN_MS: Final = 3_600_000  # a day with messages that are still open
_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '150ms'"
_PLAN = PLANNER_SETTINGS.replace("SET ", "SET LOCAL ")
_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended('sluicegate.sweep.retention', 0))"
_WIPE = """
UPDATE messages m SET body = NULL
  FROM (SELECT day, id FROM messages
         WHERE class = $1 AND final_at <= $2 AND final_at IS NOT NULL AND body IS NOT NULL
         ORDER BY final_at LIMIT $3 FOR UPDATE SKIP LOCKED) AS w
 WHERE m.day = w.day AND m.id = w.id
"""
_NEXT_CLASS = """
SELECT class FROM messages WHERE class > $1 AND final_at IS NOT NULL AND body IS NOT NULL ORDER BY class LIMIT 1
"""
_OLDEST_TEXT = """
SELECT min(final_at) FROM messages
 WHERE class = $1 AND final_at IS NOT NULL AND body IS NOT NULL
"""
_WIPE_INBOUND = """
UPDATE inbound i SET body = NULL
  FROM (SELECT id FROM inbound WHERE body IS NOT NULL AND received_at <= $1 ORDER BY received_at LIMIT $2
           FOR UPDATE SKIP LOCKED) AS w
 WHERE i.id = w.id
"""
_DAYS = """
SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'messages'::regclass
 ORDER BY 1
"""
_HASHED = "SELECT * FROM hashed_days"
_CLEAR_NUMBERS = """
SELECT id, recipient, final_at FROM messages
 WHERE day = $1 AND id > $2 ORDER BY id LIMIT $3
"""
_PUT_HASHES = """
UPDATE messages m SET recipient = w.recipient FROM unnest($2::uuid[], $3::text[]) AS w (id, recipient)
 WHERE m.day = $1 AND m.id = w.id
"""
_KEEP_PLACE = """
INSERT INTO hashed_days (day, up_to, waits, next_at, done_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (day) DO UPDATE SET up_to = excluded.up_to, waits = excluded.waits, next_at = excluded.next_at,
                                done_at = excluded.done_at
"""
_INBOUND_NUMBERS = """
SELECT id, sender, recipient FROM inbound WHERE id < $1 AND left(sender, 1) <> '#' ORDER BY id LIMIT $2
"""
_PUT_INBOUND_HASHES = """
UPDATE inbound i SET sender = w.sender FROM unnest($1::uuid[], $2::text[]) AS w (id, sender) WHERE i.id = w.id
"""
_STILL_OPEN = "SELECT EXISTS (SELECT FROM messages WHERE day = $1 AND final_at IS NULL)"
# Asked while the road stands still: an index step, since a message that is open has an instant in it.
_OPENED_AGAIN = "SELECT EXISTS (SELECT FROM messages WHERE day = $1 AND sweep_at IS NOT NULL)"
# Who holds what a day's lock needs for longer than a statement of the road takes (a backup, a report): whoever asks for
# the lock then has everybody behind itself wait in vain.
_HELD_LONG = """
SELECT EXISTS (
    SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
     WHERE l.relation IN ('messages'::regclass, 'attempts'::regclass) AND l.pid <> pg_backend_pid()
       AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND a.xact_start < clock_timestamp() - interval '250 milliseconds')
"""
_LEAVING = """
SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'leaving_messages'::regclass
 ORDER BY 1
"""
_LEDGER_CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_FORGET_EVENTS = """
DELETE FROM message_events e
 USING (SELECT day, id, n FROM message_events WHERE day <= $1 ORDER BY day, id LIMIT $2) AS w
 WHERE e.day = w.day AND e.id = w.id AND e.n = w.n
"""
_OTHER_KEYS = """
SELECT day, id, tenant_id, body, body_key_id FROM messages
 WHERE day >= $1 AND (day, id) > ($1, $2) AND body IS NOT NULL ORDER BY day, id LIMIT $3
"""
_RESEAL = """
UPDATE messages m SET body = w.body, body_key_id = $1
  FROM unnest($2::date[], $3::uuid[], $4::bytea[]) AS w (day, id, body)
 WHERE m.day = w.day AND m.id = w.id AND m.body IS NOT NULL AND m.body_key_id <> $1
"""


@valueclass
class Dropped:
    """A day that is gone, or why it is not: `open` messages still live, or a `lock` was not to be had."""

    day: date
    waits_for: str | None = None


async def begin(conn: asyncpg.Connection[Any]) -> bool:
    """Whether this transaction is the one that forgets now."""
    await conn.execute(_PLAN)
    return bool(await conn.fetchval(_TRY_LOCK))


async def classes_with_texts(conn: asyncpg.Connection[Any]) -> list[str]:
    """Classes of which a final message still has its text, those that no policy names any more included."""
    found: list[str] = []
    while (one := await conn.fetchval(_NEXT_CLASS, found[-1] if found else "")) is not None:
        found.append(one)
    return found


async def wipe_texts(conn: asyncpg.Connection[Any], class_name: str, final_until: int) -> int:
    """Removes texts of a class whose messages were final by that instant; returns how many."""
    return _count(await conn.execute(_WIPE, class_name, final_until, BATCH))


async def oldest_text(conn: asyncpg.Connection[Any], class_name: str) -> int | None:
    """Since when the longest kept text of a class belongs to a final message (UTC ms)."""
    found: int | None = await conn.fetchval(_OLDEST_TEXT, class_name)
    return found


async def wipe_inbound(conn: asyncpg.Connection[Any], received_until: int) -> int:
    """Removes texts of handsets received by that instant; returns how many."""
    return _count(await conn.execute(_WIPE_INBOUND, received_until, BATCH))


def hashed(pepper: bytes, number: str) -> str:
    """What stands for a number whose time is over: the same number gives the same mark, nothing leads back."""
    return HASH_MARK + blake2b(number.encode(), digest_size=16, key=pepper[:64]).hexdigest()


async def hash_numbers(conn: asyncpg.Connection[Any], pepper: bytes, final_until: int, now_at: int) -> bool:
    """One step of replacing numbers of messages that were final by that instant; True when more is to be done now."""
    days = [row["day"] for row in await conn.fetch(_DAYS)]
    known = {row["day"]: row for row in await conn.fetch(_HASHED)}
    last = day_at(final_until)
    for day in days:
        place = known.get(day)
        if day > last:
            return False
        if place is not None and (place["done_at"] is not None or place["next_at"] > now_at):
            continue
        await _hash_day(conn, pepper, day, place, (final_until, now_at))
        return True
    return False


async def _hash_day(
    conn: asyncpg.Connection[Any], pepper: bytes, day: date, place: Mapping[str, Any] | None, instants: tuple[int, int]
) -> None:
    final_until, now_at = instants
    up_to = place["up_to"] if place is not None and place["up_to"] is not None else UUID(int=0)
    rows = await conn.fetch(_CLEAR_NUMBERS, day, up_to, BATCH)
    ready = [row for row in rows if row["final_at"] is not None and row["final_at"] <= final_until]
    changed = [row for row in ready if not row["recipient"].startswith(HASH_MARK)]
    if changed:
        await conn.execute(
            _PUT_HASHES,
            day,
            [row["id"] for row in changed],
            [hashed(pepper, row["recipient"]) for row in changed],
        )
    waits = len(ready) < len(rows) or (place is not None and place["waits"])
    if len(rows) == BATCH:
        await conn.execute(_KEEP_PLACE, day, rows[-1]["id"], waits, 0, None)
    elif waits:
        await conn.execute(_KEEP_PLACE, day, None, False, now_at + _LOOK_AGAIN_MS, None)
    else:
        await conn.execute(_KEEP_PLACE, day, None, False, 0, now_at)


async def hash_inbound(conn: asyncpg.Connection[Any], pepper: bytes, before: UUID) -> int:
    """Replaces handsets' numbers in texts handed over before an id; returns how many."""
    rows = await conn.fetch(_INBOUND_NUMBERS, before, BATCH)
    if rows:
        await conn.execute(
            _PUT_INBOUND_HASHES, [row["id"] for row in rows], [hashed(pepper, row["sender"]) for row in rows]
        )
    return len(rows)


async def days_before(conn: asyncpg.Connection[Any], first_kept: date) -> list[date]:
    """Days that still have a partition although their time is over, oldest first."""
    return [row["day"] for row in await conn.fetch(_DAYS) if row["day"] < first_kept]


async def let_go(conn: asyncpg.Connection[Any], day: date) -> Dropped:
    """Takes a day whose messages are all final off the ledger; `bury` sums it up and drops it.

    Belongs into a transaction of its own: the road stands still from the lock to its end. The lock is waited for 150 ms
    at most, and not at all while somebody reads for long.
    """
    if await conn.fetchval(_STILL_OPEN, day):
        return Dropped(day, "open")
    if await conn.fetchval(_HELD_LONG):
        return Dropped(day, "lock")
    try:
        async with conn.transaction():
            await conn.execute(_LOCK_TIMEOUT)
            await conn.execute("LOCK TABLE ONLY messages, ONLY attempts IN ACCESS EXCLUSIVE MODE")
            if await conn.fetchval(_OPENED_AGAIN, day):
                return Dropped(day, "open")
            for parent in ("attempts", "messages"):
                await conn.execute(f"ALTER TABLE {parent} DETACH PARTITION {parent}_{day:%Y%m%d}")
            await conn.execute(f"ALTER TABLE messages_{day:%Y%m%d} INHERIT leaving_messages")
    except asyncpg.LockNotAvailableError:
        return Dropped(day, "lock")
    await conn.execute("DELETE FROM due WHERE day = $1", day)
    await conn.execute("DELETE FROM held WHERE day = $1", day)
    await conn.execute("DELETE FROM hashed_days WHERE day = $1", day)
    await conn.execute("DELETE FROM daily_usage WHERE day <= $1", day)
    return Dropped(day)


async def leaving(conn: asyncpg.Connection[Any]) -> list[date]:
    """Days that were let go and are not dropped yet, oldest first."""
    return [row["day"] for row in await conn.fetch(_LEAVING)]


async def bury(conn: asyncpg.Connection[Any], day: date) -> bool:
    """Drops a day that was let go; what it came to stays in `usage_days`. False while somebody counts in it.

    Belongs into a transaction of its own, with the lock of `begin`.
    """
    try:
        async with conn.transaction():
            await conn.execute(_LOCK_TIMEOUT)
            await conn.execute(f"LOCK TABLE messages_{day:%Y%m%d} IN ACCESS EXCLUSIVE MODE")
            await roll_up(conn, day)
            await conn.execute(f"DROP TABLE messages_{day:%Y%m%d}")
            await conn.execute(f"DROP TABLE IF EXISTS attempts_{day:%Y%m%d}")
    except asyncpg.LockNotAvailableError:
        return False
    return True


async def ledger_clock(conn: asyncpg.Connection[Any]) -> int:
    """What PostgreSQL's own clock shows (UTC ms): a second opinion on what is over."""
    return int(await conn.fetchval(_LEDGER_CLOCK))


async def forget_events(conn: asyncpg.Connection[Any], last: date) -> int:
    """Deletes events of messages of days that are gone; returns how many."""
    return _count(await conn.execute(_FORGET_EVENTS, last, BATCH))


async def reseal(
    conn: asyncpg.Connection[Any], sealer: Sealer, after: tuple[date, UUID]
) -> tuple[tuple[date, UUID] | None, int]:
    """One step of bringing texts under the current key: where the next step begins (None: through), and how many.

    Raises SealBroken where a text opens under none of our keys.
    """
    rows = await conn.fetch(_OTHER_KEYS, *after, BATCH)
    old = [row for row in rows if row["body_key_id"] != sealer.current]
    bodies = []
    for row in old:
        about = about_message(row["tenant_id"], row["id"])
        try:
            text = sealer.open(row["body_key_id"], bytes(row["body"]), about)
        except SealBroken as broken:
            raise SealBroken(f"message {row['id']}: {broken}") from None
        bodies.append(sealer.seal(text, about))
    if old:
        await conn.execute(_RESEAL, sealer.current, [row["day"] for row in old], [row["id"] for row in old], bodies)
    return (None if len(rows) < BATCH else (rows[-1]["day"], rows[-1]["id"])), len(old)


def day_at(instant: int) -> date:
    """The UTC day of an instant (UTC ms)."""
    return datetime.fromtimestamp(instant / 1000, UTC).date()


def _count(done: str) -> int:
    return int(done.rpartition(" ")[2])
