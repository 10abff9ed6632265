"""The delivery role as a whole: everything at once, and a stop that leaves nothing in hand (I34)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

from gateway.delivery.role import run
from gateway.domain.ids import show
from tests.integration.delivery.test_callbacks import sink
from tests.integration.delivery.world import World, index_of, policy_of, until


async def test_receipt_callback_promotion_and_expiry_in_one_process(world: World, redis_url: str) -> None:
    async with sink() as endpoint, index_of(redis_url) as (scheduler, _):
        world.policy = policy_of(endpoint.url)
        now_at = world.clock.now_at()
        delivered = await world.sent()
        released = await world.message(status="scheduled", not_before=now_at)
        await world.pool.execute(
            "INSERT INTO due SELECT day, id, created_at, 'send_at' FROM messages WHERE id = $1", released
        )
        over = await world.message(submit_by=now_at - 1, sweep_at=now_at - 1)
        rt = world.runtime(scheduler)
        tasks: list[asyncio.Task[Any]] = []

        def spawn(work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
            tasks.append(asyncio.create_task(work, name=name))
            return tasks[-1]

        rt.spawn = spawn
        role = asyncio.create_task(run(rt))
        await world.receipt("delivered")

        async def settled() -> bool:
            words = [await world.status(one) for one in (delivered, released, over)]
            return words == ["delivered", "queued", "expired"] and len(endpoint.got) == 2

        await until(settled)

        async def indexed() -> bool:
            return (await scheduler.counts()).get(("carrier-a", "transactional"), 0) >= 1

        await until(indexed)
        rt.stopping.set()
        await asyncio.wait_for(role, 60)
        # Each part ended by itself: what takes too long is cut off, which is a cancellation.
        assert all(task.done() and not task.cancelled() and not task.exception() for task in tasks)
    told = {json.loads(body)["type"] for _, body in endpoint.got}
    assert told == {"message.delivered", "message.expired"}
    assert await world.pool.fetchval("SELECT count(*) FROM callbacks") == 0


async def test_the_role_outlives_its_stores(world: World, redis_url: str) -> None:
    """The ledger's connections are cut under it; it goes on by itself."""
    async with sink() as endpoint, index_of(redis_url) as (scheduler, _):
        world.policy = policy_of(endpoint.url)
        rt = world.runtime(scheduler)
        rt.spawn = lambda work, name: asyncio.create_task(work, name=name)
        role = asyncio.create_task(run(rt))
        first = await world.sent("A")
        await world.receipt("delivered", "A")

        async def told(message: Any) -> bool:
            return show(message) in {json.loads(body)["data"]["id"] for _, body in endpoint.got}

        await until(lambda: told(first))
        await world.pool.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
        second = await retried(world, "B")
        await until(lambda: told(second))
        rt.stopping.set()
        await asyncio.wait_for(role, 60)
    assert [await world.status(one) for one in (first, second)] == ["delivered", "delivered"]


async def retried(world: World, carrier_id: str) -> Any:
    """A sent message and its receipt, written over connections that may just have been cut."""
    for _ in range(10):
        try:
            message = await world.sent(carrier_id)
            await world.receipt("delivered", carrier_id)
        except Exception:
            await asyncio.sleep(0.05)
        else:
            return message
    raise AssertionError("the ledger did not come back")
