"""Messages from handsets: parts that wait for their siblings, and texts handed over to the tenant that owns the number.

Everything of one batch happens in one transaction: the text, the stop or start word that it is, the callback.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.domain import ids
from gateway.sealing import SealBroken, Sealer, about_message
from scheduler.core.values import valueclass

CHANNEL: Final = "sluicegate_inbound"
PREFIX: Final = "in_"
PARKED: Final = b""  # the join_key of a part that cannot be opened by now
_LOCK: Final = "sluicegate.inbound"
_READ_S: Final = 2.0

_UNREAD: Final = """
SELECT id, provider, sender, recipient, received_at, raw, data_sm
  FROM inbound_parts WHERE done_at IS NULL AND join_key IS NULL ORDER BY id LIMIT $1
"""
_MARK: Final = """
UPDATE inbound_parts p SET join_key = w.join_key
  FROM unnest($1::bigint[], $2::bytea[]) AS w (id, join_key) WHERE p.id = w.id
"""
_SIBLINGS: Final = """
SELECT id, provider, sender, recipient, received_at, raw, data_sm, join_key, done_at
  FROM inbound_parts WHERE join_key = ANY ($1::bytea[]) ORDER BY id
"""
_LATE: Final = """
SELECT DISTINCT join_key FROM (
    SELECT join_key FROM inbound_parts
     WHERE done_at IS NULL AND join_key IS NOT NULL AND join_key <> '' AND received_at <= $1
     ORDER BY received_at LIMIT $2) AS late
"""
_OLDEST: Final = """
SELECT min(received_at) FROM inbound_parts WHERE done_at IS NULL AND join_key IS NOT NULL AND join_key <> ''
"""
_UNPARK: Final = "UPDATE inbound_parts SET join_key = NULL WHERE join_key = '' AND done_at IS NULL"
_DONE: Final = "UPDATE inbound_parts SET done_at = $2 WHERE id = ANY ($1::bigint[])"
_FORGET: Final = """
DELETE FROM inbound_parts WHERE id IN (
    SELECT id FROM inbound_parts WHERE done_at IS NOT NULL AND done_at <= $1 ORDER BY done_at LIMIT $2)
"""
_INSERT: Final = """
INSERT INTO inbound (id, tenant_id, provider, sender, recipient, body, received_at, parts, total, keyword, body_key_id)
SELECT *, $11::smallint
  FROM unnest($1::uuid[], $2::int[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bigint[], $8::smallint[],
              $9::smallint[], $10::text[])
ON CONFLICT DO NOTHING
"""
_UNOWNED: Final = """
SELECT id, provider, sender, recipient, body, body_key_id, received_at, parts, total, keyword
  FROM inbound WHERE tenant_id IS NULL AND recipient = ANY ($1::text[]) ORDER BY id LIMIT $2 FOR UPDATE
"""
_UNOWNED_NUMBERS: Final = """
SELECT provider, recipient, count(*) AS messages, min(received_at) AS first_at, max(received_at) AS last_at
  FROM inbound WHERE tenant_id IS NULL GROUP BY 1, 2 ORDER BY max(received_at) DESC LIMIT $1
"""
_COLUMNS: Final = "id, sender, recipient, body, body_key_id, received_at, parts, total, keyword"
_ONE: Final = f"SELECT {_COLUMNS} FROM inbound WHERE id = $1 AND tenant_id = $2"  # noqa: S608
_ADOPT: Final = """
UPDATE inbound i SET tenant_id = w.tenant_id, recipient = w.recipient, sender = w.sender
  FROM unnest($1::uuid[], $2::int[], $3::text[], $4::text[]) AS w (id, tenant_id, recipient, sender) WHERE i.id = w.id
"""


@valueclass
class Handed:
    """A text as it is handed over. `tenant_id` None: nobody owns the number. Instants are UTC ms."""

    id: UUID
    tenant_id: int | None
    provider: str
    sender: str
    recipient: str
    text: str
    received_at: int
    parts: int = 1
    total: int = 1
    keyword: str | None = None


@valueclass
class Filter:
    """Which texts of a tenant; None does not filter. `before_id` is where a page goes on."""

    sender: str | None = None
    recipient: str | None = None
    received_after: int | None = None
    received_before: int | None = None
    before_id: UUID | None = None
    limit: int = 50


async def begin(conn: asyncpg.Connection[Any]) -> bool:
    """Whether this transaction is the one that joins now: parts seen by two at once would complete unseen."""
    return bool(await conn.fetchval("SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))", _LOCK))


async def unread(conn: asyncpg.Connection[Any], limit: int) -> list[asyncpg.Record]:
    """Parts that nobody has looked into yet, oldest first."""
    return list(await conn.fetch(_UNREAD, limit))


async def wait(conn: asyncpg.Connection[Any], keys: Mapping[int, bytes]) -> None:
    """Puts parts (by row id) under the keys that they share with their siblings."""
    if keys:
        await conn.execute(_MARK, list(keys), list(keys.values()))


async def unpark(conn: asyncpg.Connection[Any]) -> None:
    """Parts that could not be opened are looked at once more."""
    await conn.execute(_UNPARK)


async def siblings(conn: asyncpg.Connection[Any], keys: Sequence[bytes]) -> list[asyncpg.Record]:
    """Every part under these keys in the order in which they came, those done lately too."""
    return list(await conn.fetch(_SIBLINGS, list(keys))) if keys else []


async def late(conn: asyncpg.Connection[Any], received_until: int, limit: int) -> list[bytes]:
    """Keys under which a part has waited since that instant or longer."""
    return [row["join_key"] for row in await conn.fetch(_LATE, received_until, limit)]


async def oldest_waiting(conn: asyncpg.Connection[Any]) -> int | None:
    """Since when the oldest part waits for its siblings (UTC ms)."""
    found: int | None = await conn.fetchval(_OLDEST)
    return found


async def finish(conn: asyncpg.Connection[Any], rows: Sequence[int], now_at: int) -> None:
    """Parts that were handed over or are doubles."""
    if rows:
        await conn.execute(_DONE, list(rows), now_at)


async def forget(conn: asyncpg.Connection[Any], done_until: int, limit: int) -> int:
    """Deletes parts that were done by that instant; returns how many."""
    done = await conn.execute(_FORGET, done_until, limit)
    return int(done.rpartition(" ")[2])


async def insert(conn: asyncpg.Connection[Any], sealer: Sealer, texts: Sequence[Handed]) -> None:
    """Keeps texts that are handed over, sealed."""
    if texts:
        await conn.execute(
            _INSERT,
            [one.id for one in texts],
            [one.tenant_id for one in texts],
            [one.provider for one in texts],
            [one.sender for one in texts],
            [one.recipient for one in texts],
            [sealer.seal(one.text.encode("utf-8", "replace"), _about(one.id)) for one in texts],
            [one.received_at for one in texts],
            [one.parts for one in texts],
            [one.total for one in texts],
            [one.keyword for one in texts],
            sealer.current,
        )


async def unowned_numbers(conn: asyncpg.Connection[Any], limit: int) -> list[dict[str, Any]]:
    """Numbers that handsets wrote to and no tenant owns, with how many texts wait for an owner."""
    return [dict(row) for row in await conn.fetch(_UNOWNED_NUMBERS, limit)]


async def unowned(conn: asyncpg.Connection[Any], recipients: Sequence[str], limit: int) -> list[asyncpg.Record]:
    """Texts to these numbers that nobody owns so far, locked."""
    return list(await conn.fetch(_UNOWNED, list(recipients), limit))


async def adopt(conn: asyncpg.Connection[Any], texts: Sequence[Handed]) -> None:
    """Gives texts that nobody owned to their tenants."""
    await conn.execute(
        _ADOPT,
        [one.id for one in texts],
        [one.tenant_id for one in texts],
        [one.recipient for one in texts],
        [one.sender for one in texts],
    )


async def find(conn: asyncpg.Connection[Any], tenant_id: int, message_id: UUID) -> asyncpg.Record | None:
    """One text of a tenant; unknown and foreign ids are the same."""
    return await conn.fetchrow(_ONE, message_id, tenant_id, timeout=_READ_S)


async def find_page(conn: asyncpg.Connection[Any], tenant_id: int, wanted: Filter) -> list[asyncpg.Record]:
    """A page of a tenant's texts, newest first, with one row more than `limit` where there is a next page."""
    arguments: list[Any] = [tenant_id]
    conditions = ["tenant_id = $1"]
    for condition, value in (
        ("sender = {}", wanted.sender),
        ("recipient = {}", wanted.recipient),
        ("received_at > {}", wanted.received_after),
        ("received_at < {}", wanted.received_before),
        ("id < {}", wanted.before_id),
    ):
        if value is not None:
            arguments.append(value)
            conditions.append(condition.format(f"${len(arguments)}"))
    arguments.append(wanted.limit + 1)
    # Only constant text is put together here; every value is bound.
    statement = (
        f"SELECT {_COLUMNS} FROM inbound"  # noqa: S608
        f" WHERE {' AND '.join(conditions)} ORDER BY id DESC LIMIT ${len(arguments)}"
    )
    return list(await conn.fetch(statement, *arguments, timeout=_READ_S))


def text_of(row: Mapping[str, Any], sealer: Sealer) -> str | None:
    """The text of an `inbound` row; None once it was wiped. Raises SealBroken."""
    if row["body"] is None:
        return None
    return sealer.open(row["body_key_id"], bytes(row["body"]), _about(row["id"])).decode("utf-8")


def readable(row: Mapping[str, Any], sealer: Sealer) -> str | None:
    """The text where it can be shown: None where it was wiped, or this process has not its key."""
    try:
        return text_of(row, sealer)
    except SealBroken:
        return None


def _about(inbound_id: UUID) -> bytes:
    return about_message(0, inbound_id)  # whoever owns it: that may change


def shown_id(message_id: UUID) -> str:
    """The id of an inbound text as tenants see it."""
    return PREFIX + message_id.hex


def shown(row: Mapping[str, Any], text: str | None) -> dict[str, Any]:
    """An inbound entry (contract section 2): incomplete where parts never came."""
    return {
        "id": shown_id(row["id"]),
        "from": row["sender"],
        "to": row["recipient"],
        "text": text,
        "received_at": ids.rfc3339(row["received_at"]),
        "parts": row["total"],
        "parts_received": row["parts"],
        "incomplete": row["parts"] < row["total"],
        "keyword": row["keyword"],
    }
