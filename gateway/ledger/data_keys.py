"""Which data keys this database's texts are sealed under. The keys themselves are never stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import asyncpg

from gateway.sealing import Sealer, check_value

_LOCK: Final = "sluicegate.data_keys"
_ADD = """
INSERT INTO data_keys (id, check_value, created_at) SELECT coalesce(max(id), 0) + 1, $1, $2 FROM data_keys
ON CONFLICT (check_value) DO NOTHING
"""


class KeyMissing(Exception):
    """Texts of this database are sealed under a key that was not given; the text says which and what to do."""


async def load(conn: asyncpg.Connection[Any], keys: Sequence[bytes], now_at: int) -> Sealer:
    """The sealer of a process that was given these keys, the current one first; new ones are made known.

    Raises KeyMissing while the database knows a key that is not among them.
    """
    async with conn.transaction():
        await conn.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", _LOCK)
        known = {bytes(row["check_value"]): row["id"] for row in await conn.fetch("SELECT * FROM data_keys")}
        missing = sorted(set(known.values()) - {known.get(check_value(key)) for key in keys})
        if missing:
            raise KeyMissing(
                f"texts in this database are sealed under data key {', '.join(map(str, missing))}, which is not given:"
                " set SLUICEGATE_DATA_KEY to the key in use, and earlier ones in SLUICEGATE_DATA_KEYS_BEFORE"
            )
        for key in reversed(keys):  # an earlier key has the smaller id
            await conn.execute(_ADD, check_value(key), now_at)
        rows = await conn.fetch("SELECT id, check_value FROM data_keys")
    known = {bytes(row["check_value"]): row["id"] for row in rows}
    return Sealer({known[check_value(key)]: key for key in keys}, known[check_value(keys[0])])


async def earlier(conn: asyncpg.Connection[Any], current: int) -> list[int]:
    """Ids of the other keys that the database knows."""
    return [row["id"] for row in await conn.fetch("SELECT id FROM data_keys WHERE id <> $1 ORDER BY id", current)]


async def is_whole(conn: asyncpg.Connection[Any], current: int) -> bool:
    """Whether a whole pass found no text that is not under this key (rows from before texts were sealed included)."""
    return await conn.fetchval("SELECT whole_at FROM data_keys WHERE id = $1", current) is not None


async def mark_whole(conn: asyncpg.Connection[Any], current: int, now_at: int) -> None:
    """A whole pass found nothing to do."""
    await conn.execute("UPDATE data_keys SET whole_at = coalesce(whole_at, $2) WHERE id = $1", current, now_at)


async def since(conn: asyncpg.Connection[Any], key_id: int) -> int:
    """When a key was first given, UTC ms."""
    return int(await conn.fetchval("SELECT created_at FROM data_keys WHERE id = $1", key_id))


async def in_use_elsewhere(conn: asyncpg.Connection[Any], current: int) -> bool:
    """Whether a process that has not ended seals under another key: then rows under it may still come.

    One that is silent may only be stopped, and go on: the sweep that ends the silent decides, not its heartbeat.
    """
    return bool(
        await conn.fetchval(
            "SELECT EXISTS (SELECT FROM processes WHERE ended_at IS NULL"
            " AND report ? 'data_key' AND (report ->> 'data_key')::int <> $1)",
            current,
        )
    )


async def retire(conn: asyncpg.Connection[Any], key_ids: Sequence[int]) -> None:
    """Nothing is sealed under these keys any more: they need not be given again."""
    await conn.execute("DELETE FROM data_keys WHERE id = ANY ($1::smallint[])", list(key_ids))
