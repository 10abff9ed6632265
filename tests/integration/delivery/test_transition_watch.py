"""The watch over changes of status notices what the table does not allow, and nothing else (I1)."""

from __future__ import annotations

from loadtests.transition_watch import strayed, watch
from tests.integration.delivery.test_merging import merge
from tests.integration.delivery.world import World


async def test_the_watch_sees_what_strays(world: World) -> None:
    async with world.pool.acquire() as conn:
        await watch(conn)
        message = await world.sent("W1")
        await world.receipt("undeliverable", "W1", done_at=1)
        await merge(world)
        await world.receipt("delivered", "W1", done_at=2)
        await merge(world)
        assert await world.status(message) == "delivered"
        assert await strayed(conn) == []
        await world.pool.execute("UPDATE messages SET status = 'queued', version = version + 1 WHERE id = $1", message)
        other = await world.sent("W2")
        await world.pool.execute("UPDATE messages SET status = 'delivered' WHERE id = $1", other)
        told = await strayed(conn)
    assert [line.split(": ", 1)[1] for line in told] == [
        "delivered -> queued (version +1)",
        "sent -> delivered (version +0)",
    ]
