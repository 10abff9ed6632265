"""Locks on batches of message rows that others are changing at that moment."""

from __future__ import annotations

import asyncio

import asyncpg

from gateway.domain.ids import day_of
from gateway.ledger.message_rows import LOCK_MESSAGES
from tests.integration.delivery.world import World


async def test_a_batch_waits_for_rows_that_others_change_and_sees_them_changed(world: World) -> None:
    """Two rows changed by others in one batch took a server process of PostgreSQL 18.6 down, and all connections."""
    ids = sorted([await world.message() for _ in range(4)])
    async with world.pool.acquire() as changing, world.pool.acquire() as locking:
        async with changing.transaction():
            await changing.execute("UPDATE messages SET version = version + 1 WHERE id = ANY ($1)", ids[:3])
            waiting = asyncio.create_task(locking.fetch(LOCK_MESSAGES, [day_of(one) for one in ids], ids))
            await _until_waiting(changing)
        rows: list[asyncpg.Record] = await waiting
    assert [(row["id"], row["version"]) for row in rows] == list(zip(ids, (2, 2, 2, 1), strict=True))
    assert {row["tenant"] for row in rows} == {"acme"}


async def _until_waiting(conn: asyncpg.Connection[asyncpg.Record]) -> None:
    waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"
    async with asyncio.timeout(60):
        while not await conn.fetchval(waits):
            await asyncio.sleep(0.01)
