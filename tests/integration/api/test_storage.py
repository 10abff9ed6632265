"""When a store is slow, away or cut off: 503 in time, and the same key finds out (I7, I8; design section 2)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import asyncpg
import pytest

from tests.integration.api.conftest import Gateway, until

MESSAGE = {"to": "+447700900123", "from": "ACME", "text": "hi"}


@asynccontextmanager
async def locked(database_url: str, table: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Holds a table so that nobody can write it."""
    conn = await asyncpg.connect(database_url)
    try:
        async with conn.transaction():
            await conn.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            yield conn
    finally:
        await conn.close()


@pytest.mark.timing
async def test_a_silent_valkey_means_503_but_known_keys_are_answered(gateway: Gateway) -> None:
    first = await gateway.send(MESSAGE, key="known")
    await gateway.rt.redis.execute_command("CLIENT", "PAUSE", "6000", "ALL")
    # The door holds a little of the rate in advance; it is asked again a quarter of a second later.
    await asyncio.sleep(0.3)
    began = time.monotonic()
    refused, replayed = await asyncio.gather(gateway.send(MESSAGE, key="new"), gateway.send(MESSAGE, key="known"))
    assert time.monotonic() - began < 5  # not when the silence ends
    assert (refused.status, refused.code) == (503, "capacity.storage")
    assert refused.headers["retry-after"] == "1"
    assert (replayed.status, replayed.octets) == (202, first.octets)

    async def taken() -> bool:
        return (await gateway.send(MESSAGE, key="new")).status == 202

    await until(taken)
    assert await gateway.count() == 2


async def test_an_index_that_is_being_rebuilt_means_503(gateway: Gateway) -> None:
    epoch = await gateway.rt.scheduler.begin_rebuild()
    reply = await gateway.send(MESSAGE, key="k")
    assert (reply.status, reply.code) == (503, "capacity.storage")
    assert epoch is not None
    await gateway.rt.scheduler.finish_rebuild(epoch)

    async def taken() -> bool:
        return (await gateway.send(MESSAGE, key="k")).status == 202

    await until(taken)
    assert await gateway.count() == 1


async def test_a_commit_that_hangs_is_answered_503_and_the_key_stays_usable(
    gateway: Gateway, database_url: str
) -> None:
    async with locked(database_url, "messages"):
        began = time.monotonic()
        refused = await gateway.send(MESSAGE, key="hangs")
        assert (refused.status, refused.code) == (503, "capacity.storage")
        assert time.monotonic() - began < 30
    repeated = await gateway.send(MESSAGE, key="hangs")
    assert repeated.status == 202
    assert await gateway.count() == 1


async def test_connections_killed_under_load_lose_nothing_that_was_answered(
    gateway: Gateway, database_url: str
) -> None:
    answered: dict[str, str] = {}
    refused: set[str] = set()
    unknown: set[str] = set()
    stop = asyncio.Event()

    async def client(number: int) -> None:
        n = 0
        while not stop.is_set():
            key = f"c{number}-{n}"
            n += 1
            try:
                reply = await gateway.send(MESSAGE | {"client_ref": key, "class": "non_priority"}, key=key)
            except aiohttp.ClientConnectionError:
                unknown.add(key)
                continue
            if reply.status == 202:
                answered[key] = reply.json["id"]
            else:
                assert reply.status == 503, reply.octets
                refused.add(key)

    clients = [asyncio.create_task(client(number)) for number in range(10)]
    killer = await asyncpg.connect(database_url)
    for _ in range(5):
        await asyncio.sleep(0.2)
        await killer.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    await asyncio.sleep(0.2)
    stop.set()
    await asyncio.gather(*clients)
    rows = await killer.fetch("SELECT client_ref, 'msg_' || replace(id::text, '-', '') AS id FROM messages")
    await killer.close()
    kept = {row["client_ref"]: row["id"] for row in rows}
    assert len(kept) == len(rows)
    assert answered.items() <= kept.items()
    assert not refused & kept.keys()
    # What nobody told is told when it is asked again under its key.
    for key in unknown:
        reply = await gateway.send(MESSAGE | {"client_ref": key, "class": "non_priority"}, key=key)
        assert reply.status == 202
        assert reply.json["id"] == kept.get(key, reply.json["id"])


async def test_a_stopping_door_answers_what_is_open(gateway: Gateway) -> None:
    sends = [asyncio.create_task(gateway.send(MESSAGE | {"class": "non_priority"})) for _ in range(20)]
    await asyncio.sleep(0.02)
    gateway.rt.stopping.set()
    replies = await asyncio.gather(*sends, return_exceptions=True)
    accepted = [reply for reply in replies if not isinstance(reply, BaseException) and reply.status == 202]
    assert await gateway.count() == len(accepted)


async def test_losers_wait_for_nobody_and_nobody_waits_for_them(gateway: Gateway, database_url: str) -> None:
    """Another process holds the key's lock: 409 at once, while others are taken."""
    from gateway.admission.fingerprints import key_token

    tenant_id = await gateway.rt.pool.fetchval("SELECT id FROM tenants WHERE name = 'acme'")
    conn = await asyncpg.connect(database_url)
    async with conn.transaction():
        await conn.execute("SELECT pg_advisory_xact_lock($1)", key_token(tenant_id, "messages", "contested"))
        busy, free = await asyncio.gather(gateway.send(MESSAGE, key="contested"), gateway.send(MESSAGE, key="free"))
        assert (busy.status, busy.code) == (409, "idempotency.in_progress")
        assert free.status == 202
    await conn.close()
    assert (await gateway.send(MESSAGE, key="contested")).status == 202
