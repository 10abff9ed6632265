"""Days come and go under load: usage stays exact, the road is not held up, and no jump of a clock costs a row."""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import suppress
from datetime import date, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from gateway.delivery import retention as retention_role
from gateway.delivery.retention import Retention
from gateway.delivery.sweeps import Sweeper
from gateway.domain.ids import day_of, uuid7
from gateway.ledger import data_keys, retention, sweeps, usage
from gateway.ledger.merges import merge_batch
from gateway.sealing import Sealer, about_message
from tests.integration.delivery.test_retention import DAY, HOUR, column, days, final
from tests.integration.delivery.world import World


async def counted(world: World) -> tuple[int, dict[str, int]]:
    """All messages of the tenant, and by status, as GET /v1/usage counts them in one statement."""
    async with world.pool.acquire() as conn:
        span = (date(2000, 1, 1), date(2100, 1, 1))
        rows = await usage.count(conn, world.tenants["acme"], span, ("day",), 10_000)
    by_status: dict[str, int] = {}
    for row in rows:
        by_status[row["status"]] = by_status.get(row["status"], 0) + row["messages"]
    return sum(by_status.values()), by_status


async def test_usage_is_exact_while_states_move_and_days_go(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Corrections commit at every moment around the end of a day: what is summed up is what they left behind."""
    monkeypatch.setattr(retention_role, "DROP_AGAIN_S", 0.0)
    old = [await final(world, (91 + n % 4) * DAY) for n in range(60)]
    young = [await final(world, HOUR) for _ in range(20)]
    last = dict.fromkeys(old + young, "delivered")
    over = asyncio.Event()
    chance = random.Random(7)

    async def move(ids: list[UUID]) -> None:
        async with world.pool.acquire() as conn:
            while not over.is_set():
                one, status = chance.choice(ids), chance.choice(("delivered", "undelivered"))
                async with conn.transaction():
                    done = await conn.execute(
                        "UPDATE messages SET status = $3, version = version + 1 WHERE day = $1 AND id = $2",
                        day_of(one), one, status,
                    )  # fmt: skip
                    await asyncio.sleep(chance.random() * 0.02)
                if done == "UPDATE 1":
                    last[one] = status

    async def drop() -> None:
        worker = Retention(world.runtime())
        for _ in range(2_000):
            await worker.turn()
            if await world.pool.fetchval("SELECT sum(messages) FROM usage_days") == len(old):
                return
            await asyncio.sleep(0.02)
        raise AssertionError("the days do not go")

    async def look() -> None:
        while not over.is_set():
            assert (await counted(world))[0] == len(last)
            await asyncio.sleep(0.005)

    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(move(old + young))
        group.create_task(look())
        await group.create_task(drop())
        over.set()
    total, by_status = await counted(world)
    assert total == len(last)
    assert by_status == {name: sum(one == name for one in last.values()) for name in set(last.values())}
    assert await world.pool.fetchval("SELECT count(*) FROM leaving_messages") == 0


async def test_a_day_that_a_late_answer_opened_again_stays(world: World) -> None:
    """`failed` may become `sent` between the first look and the lock."""
    doubted = await final(world, 91 * DAY, status="failed")
    async with world.pool.acquire() as late:
        answer = late.transaction()
        await answer.start()
        await late.execute(
            "UPDATE messages SET status = 'sent', final_at = NULL, sweep_at = $2 WHERE id = $1", doubted, 2**40
        )

        async def let_go() -> retention.Dropped:
            async with world.pool.acquire() as conn, conn.transaction():
                assert await retention.begin(conn)
                return await retention.let_go(conn, day_of(doubted))

        letting = asyncio.create_task(let_go())
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'messages'::regclass"
        while not letting.done() and not await world.pool.fetchval(waiting):
            await asyncio.sleep(0.005)
        await answer.commit()
        assert (await letting).waits_for in {"open", "lock"}
    assert await column(world, "status", doubted) == ["sent"]


async def test_nobody_waits_behind_a_lock_that_a_long_read_withholds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup reads for hours: the lock is not even asked for, since everybody would wait behind who asks."""
    monkeypatch.setattr(retention, "_LOCK_TIMEOUT", "SET LOCAL lock_timeout = '10min'")
    old = await final(world, 95 * DAY)
    worker = Retention(world.runtime())
    async with world.pool.acquire() as backup, backup.transaction():
        await backup.fetch("SELECT count(*) FROM messages")
        await asyncio.sleep(0.3)
        for _ in range(3):
            async with asyncio.timeout(60):
                await worker.turn()
        assert f"messages_{day_of(old):%Y%m%d}" in await days(world)
    await worker.turn()  # it is not asked for again at once either
    assert f"messages_{day_of(old):%Y%m%d}" in await days(world)
    await Retention(world.runtime()).turn()
    assert f"messages_{day_of(old):%Y%m%d}" not in await days(world)


async def test_a_long_count_of_usage_delays_the_end_of_a_day_and_nobody_else(world: World) -> None:
    old = await final(world, 95 * DAY)
    async with world.pool.acquire() as conn, conn.transaction():
        assert await retention.begin(conn)
        assert (await retention.let_go(conn, day_of(old))).waits_for is None
    async with world.pool.acquire() as reader, reader.transaction():
        await reader.fetch("SELECT count(*) FROM leaving_messages")
        await Retention(world.runtime()).turn()
        assert (await counted(world))[0] == 1
        assert await world.pool.fetchval("SELECT count(*) FROM usage_days") == 0
        await world.message()  # the road goes on
    # A process that died in between leaves nothing that the next one does not finish.
    await Retention(world.runtime()).turn()
    assert (await counted(world))[1] == {"delivered": 1, "queued": 1}
    assert await world.pool.fetchval("SELECT count(*) FROM usage_days") == 1
    assert not await world.pool.fetchval(
        "SELECT count(*) FROM pg_class WHERE relname = $1", f"attempts_{day_of(old):%Y%m%d}"
    )


async def test_receipts_for_a_day_that_goes_and_is_gone_stop_nothing(world: World) -> None:
    old = await final(world, 91 * DAY)
    await world.carrier_id(old, "OLD")
    young = await world.sent("YOUNG")
    over = asyncio.Event()

    async def merge() -> None:
        while not over.is_set():
            await world.receipt("undeliverable", "OLD")
            async with world.pool.acquire() as conn:
                await merge_batch(conn, world.policy, world.clock.now_at() + 1)

    merging = asyncio.create_task(merge())
    worker = Retention(world.runtime())
    for _ in range(500):
        worker._drop_again_mono = 0.0
        await worker.turn()
        if f"messages_{day_of(old):%Y%m%d}" not in await days(world):
            break
        await asyncio.sleep(0.01)
    over.set()
    await merging
    await world.receipt("delivered", "YOUNG")
    async with world.pool.acquire() as conn:
        await merge_batch(conn, world.policy, world.clock.now_at() + 1)
    assert await world.status(young) == "delivered"
    _, by_status = await counted(world)
    told = [kind for kind, _ in await world.events(old)]
    # What the sum says is what the tenant was told last.
    assert by_status == ({"undelivered": 1, "delivered": 1} if told else {"delivered": 2})


async def test_a_queue_clock_far_ahead_of_the_ledgers_forgets_nothing(world: World) -> None:
    texts = [await final(world, HOUR), await final(world, 80 * DAY)]
    world.clock.shift_ms = 400 * DAY
    assert await Retention(world.runtime()).turn() >= 10
    assert all(body is not None for body in await column(world, "body", *texts))
    world.clock.shift_ms = -400 * DAY  # behind: less is over, and nothing breaks
    await Retention(world.runtime()).turn()
    assert all(body is not None for body in await column(world, "body", *texts))


async def test_days_ahead_are_counted_up_to_the_first_gap(world: World) -> None:
    """A clock that was ahead for an hour left days behind; they are no reason to be calm."""
    now_at = world.clock.now_at()
    gap = retention.day_at(now_at) + timedelta(days=2)
    async with world.pool.acquire() as conn:
        await sweeps.keep_partitions(conn, now_at + 30 * DAY, 7)
        assert await sweeps.partitions_ahead(conn, now_at + 30 * DAY) == 7
        assert 7 <= await sweeps.partitions_ahead(conn, now_at) < 29
        for parent in ("attempts", "messages"):
            await conn.execute(f"DROP TABLE {parent}_{gap:%Y%m%d}")
        assert await sweeps.partitions_ahead(conn, now_at) == 1
        await sweeps.keep_partitions(conn, now_at, 7)
        assert await sweeps.partitions_ahead(conn, now_at) >= 7
        assert await sweeps.partitions_ahead(conn, now_at + 400 * DAY) == -1


@pytest.mark.parametrize("jump_days", [30, -30, -120, 400])
async def test_a_day_that_a_clock_jumps_to_has_a_place_at_the_next_look(world: World, jump_days: int) -> None:
    sweeper = Sweeper(world.runtime())
    await sweeper.partitions()
    world.clock.shift_ms = jump_days * DAY
    message_id = uuid7(world.clock.now_at(), os.urandom(10))
    with suppress(asyncpg.CheckViolationError):  # nothing has looked yet
        await world.message(id=message_id)
        return
    await sweeper.partitions()
    await world.message(id=message_id)
    assert await world.status(message_id) == "queued"
    world.clock.doubtful = True
    world.clock.shift_ms = 4_000 * DAY
    await sweeper.partitions()  # a clock in doubt makes nothing
    row: Any = await world.pool.fetchval(
        "SELECT to_regclass($1)", f"messages_{retention.day_at(world.clock.now_at()):%Y%m%d}"
    )
    assert row is None


async def test_a_key_changes_while_texts_are_sealed_and_wiped(world: World) -> None:
    """One process still seals under the old key, others under the new one: every text opens, none that was wiped comes
    back, and the old key stays until nobody uses it."""
    old_key, new_key = bytes(range(32)), bytes(32)
    async with world.pool.acquire() as conn:
        first = await data_keys.load(conn, [old_key], 1)
        second = await data_keys.load(conn, [new_key, old_key], 1)
        await conn.execute(
            "INSERT INTO processes (role, worker, pid, host, started_at, heartbeat_at, report)"
            " VALUES ('api', 'api-1', 1, 'h', 0, 0, $1)",
            {"data_key": first.current},
        )  # stopped for long, and not ended
    tenant, texts, wiped = world.tenants["acme"], dict[UUID, bytes](), set[UUID]()
    over = asyncio.Event()

    async def accept(sealer: Sealer) -> None:
        for n in range(40):
            message_id = uuid7(world.clock.now_at(), os.urandom(10))
            texts[message_id] = text = f"{sealer.current}-{n}".encode()
            sealed = sealer.seal(text, about_message(tenant, message_id))
            await world.message(id=message_id, body=sealed, body_key_id=sealer.current)
            await asyncio.sleep(0)

    async def wipe() -> None:
        while not over.is_set():
            for one in random.sample(sorted(texts), min(3, len(texts))):
                if await world.pool.execute("UPDATE messages SET body = NULL WHERE id = $1", one) == "UPDATE 1":
                    wiped.add(one)
            await asyncio.sleep(0.001)

    world.sealer = second
    worker = Retention(world.runtime())
    wiping = asyncio.create_task(wipe())
    accepting = asyncio.gather(accept(first), accept(second))
    while not accepting.done():
        await worker.keys()
    await accepting
    over.set()
    await wiping
    for _ in range(4):
        await worker.keys()
    alone = Sealer({second.current: new_key}, second.current)
    for row in await world.pool.fetch("SELECT id, body, body_key_id FROM messages"):
        if row["id"] in wiped:
            assert row["body"] is None
        else:
            about = about_message(tenant, row["id"])
            assert alone.open(row["body_key_id"], bytes(row["body"]), about) == texts[row["id"]]
    world.clock.shift_ms = 30 * DAY
    await worker.keys()
    assert await world.pool.fetchval("SELECT count(*) FROM data_keys") == 2
    await world.pool.execute("UPDATE processes SET ended_at = 1")
    await worker.keys()
    assert await world.pool.fetchval("SELECT count(*) FROM data_keys") == 1
