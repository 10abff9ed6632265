"""Keys in the ledger (reliability 5.1-5.5), and the door's rate over several workers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import asyncpg
import pytest
import redis.asyncio

from gateway.api.door_rate import DoorRate, Grant, Toll
from gateway.clock import Clock
from gateway.ledger import keys
from gateway.ledger.connect import open_pool
from gateway.ledger.keys import KeyRefused, KeyRing, KeyWish
from gateway.policy.rules.snapshot import Limit


async def test_a_key_is_shown_once_and_kept_as_a_digest(database_url: str) -> None:
    pool = await open_pool(database_url)
    try:
        async with pool.acquire() as conn:
            await conn.execute("INSERT INTO tenants (name, created_at) VALUES ('acme', 0)")
            made = await keys.create(conn, KeyWish("acme", ["send"], ["10.0.0.0/8"]), "test", 1)
            admin = await keys.create(conn, KeyWish(None), "test", 2)
            rows = await conn.fetch("SELECT * FROM api_keys ORDER BY created_at")
            dump = str([dict(row) for row in rows]) + str(await conn.fetch("SELECT detail FROM audit"))
            for one in (made, admin):
                assert one.split("_")[2] not in dump
            assert [row["tenant"] for row in await keys.list_all(conn)] == ["acme", None]
            for wish in (KeyWish("nobody"), KeyWish("acme", ["admin"]), KeyWish("acme", cidrs=["10.0.0.1/8"])):
                with pytest.raises(KeyRefused):
                    await keys.create(conn, wish, "test", 3)
        ring = KeyRing(pool, Clock())
        key = await ring.verify(made)
        assert key is not None
        assert (key.tenant, key.scopes) == ("acme", {"send"})
        assert key.allows_address("::ffff:10.1.2.3")
        assert not key.allows_address("127.0.0.1")
        assert not key.allows_address(None)
        assert (await ring.verify(admin) or key).scopes == {"admin"}
        swapped = made[:16] + admin[16:]
        for wrong in (
            "",
            "sg_",
            made[:-1],
            made + "0",
            made.upper(),
            swapped,
            "é" * len(made),
            keys._written("0" * 12, "0" * 48),
        ):
            assert await ring.verify(wrong) is None
    finally:
        await pool.close()


async def test_keys_cannot_be_verified_while_the_ledger_is_away(database_url: str) -> None:
    pool = await open_pool(database_url)
    await pool.close()
    with pytest.raises(asyncpg.InterfaceError):
        await KeyRing(pool, Clock()).verify(keys._written("0" * 12, "0" * 48))


async def take_for(door: DoorRate, toll: Toll, seconds: float, passed: list[int], enough: int) -> None:
    """Takes as fast as it can for some time, and on until all together passed more than the burst alone allows."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while loop.time() < began + seconds or (len(passed) <= enough and loop.time() < began + 30.0):
        grant = await door.take(toll)
        assert isinstance(grant, Grant)
        if grant.allowed:
            passed.append(1)
        else:
            await asyncio.sleep(0.005)


@pytest.mark.timing
@pytest.mark.parametrize(("rate", "burst"), [(200.0, 100), (7.0, 3)])
async def test_workers_share_one_rate(redis_url: str, rate: float, burst: int) -> None:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(redis.asyncio.Redis.from_url(redis_url))
        doors = [DoorRate(client, "c1") for _ in range(3)]
        runs = [asyncio.create_task(door.run()) for door in doors]
        began = asyncio.get_running_loop().time()
        toll = Toll(1, Limit(rate, burst))
        passed: list[int] = []
        await asyncio.gather(*(take_for(door, toll, 1.0, passed, burst) for door in doors))
        took = asyncio.get_running_loop().time() - began
        assert burst < len(passed) <= rate * took + burst + 1
        for door in doors:
            door.stop()
        await asyncio.gather(*runs)


async def test_what_was_taken_in_advance_is_given_back(redis_url: str) -> None:
    async with redis.asyncio.Redis.from_url(redis_url) as client:
        door = DoorRate(client, "c1")
        running = asyncio.create_task(door.run())
        toll = Toll(1, Limit(100.0, 100))
        first = await door.take(toll)
        second = await door.take(toll)
        assert first is not None and second is not None
        assert (first.remaining, second.remaining) == (99, 98)
        whole = await door.take(Toll(1, Limit(100.0, 100), cost=98))
        assert whole is not None and whole.allowed
        refused = await door.take(Toll(1, Limit(100.0, 100), cost=50))
        assert refused is not None and not refused.allowed
        assert refused.retry_after_s == 1
        door.stop()
        await running


class _Held(Clock):
    """A clock whose monotonic side a test moves."""

    mono = 1_000.0

    def now_mono(self) -> float:
        return self.mono


async def test_a_revoked_key_is_dead_everywhere_within_five_seconds(database_url: str) -> None:
    """Nobody has to be told: what a process believes is never older than that, counted from when it asked."""
    pool = await open_pool(database_url)
    try:
        clocks = [_Held(), _Held()]
        rings = [KeyRing(pool, clock) for clock in clocks]
        async with pool.acquire() as conn:
            await conn.execute("INSERT INTO tenants (name, created_at) VALUES ('acme', 0)")
            made = await keys.create(conn, KeyWish("acme"), "test", 1)
            assert all([await ring.verify(made) is not None for ring in rings])
            assert await keys.revoke(conn, made.split("_")[1], "test", 2)
        assert await rings[0].verify(made) is not None  # believed still
        for clock, ring in zip(clocks, rings, strict=True):
            clock.mono += 5.0
            assert await ring.verify(made) is None
    finally:
        await pool.close()


async def test_keys_that_come_together_are_read_together_and_their_use_is_noted(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = await open_pool(database_url)
    try:
        ring = KeyRing(pool, Clock())
        async with pool.acquire() as conn:
            await conn.execute("INSERT INTO tenants (name, created_at) VALUES ('acme', 0)")
            made = [await keys.create(conn, KeyWish("acme"), "test", 1) for _ in range(20)]
        load, sizes = ring._load, []

        async def counted(key_ids: list[str]) -> object:
            sizes.append(len(key_ids))
            return await load(key_ids)

        monkeypatch.setattr(ring, "_load", counted)
        unknown = keys._written("0" * 12, "0" * 48)
        found = await asyncio.gather(*(ring.verify(one) for one in (*made, unknown, made[0])))
        assert [key and key.id for key in found] == [*(one.split("_")[1] for one in made), None, made[0].split("_")[1]]
        assert sum(sizes) == 21 and len(sizes) <= 2
        assert await pool.fetchval("SELECT count(*) FROM api_keys WHERE last_used_at IS NOT NULL") == 20
    finally:
        await pool.close()


async def test_an_answer_that_took_its_time_is_believed_less_long(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = await open_pool(database_url)
    try:
        clock = _Held()
        ring = KeyRing(pool, clock)
        async with pool.acquire() as conn:
            await conn.execute("INSERT INTO tenants (name, created_at) VALUES ('acme', 0)")
            made = await keys.create(conn, KeyWish("acme"), "test", 1)
        load = ring._load

        async def slow(key_ids: list[str]) -> object:
            found = await load(key_ids)
            clock.mono += 3.0  # revoked meanwhile
            return found

        monkeypatch.setattr(ring, "_load", slow)
        assert await ring.verify(made) is not None
        await pool.execute("UPDATE api_keys SET revoked_at = 2")
        clock.mono += 2.0
        assert await ring.verify(made) is None
    finally:
        await pool.close()
