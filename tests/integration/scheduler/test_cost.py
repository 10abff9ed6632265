"""What questions cost the server, as ratios: flat in tenants and backlog, a refusal cheaper than an acceptance."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from redis.asyncio import Redis

from loadtests.index_cost import Bench, Size
from scheduler.core.asks import Ask, ExplainAsk, LeaseAsk
from scheduler.core.records import Entry

SLACK = 3.0  # the machine is shared: every bound is taken threefold, and the best of three


async def costs(bench: Bench, size: Size) -> dict[str, float]:
    """Server microseconds per message at one size (per call for `explain`), and octets per queued message."""
    await bench.prepare(Size(size.tenants, 0))
    before = (await bench.redis.info("memory"))["used_memory"]
    await bench.fill(size)
    octets = ((await bench.redis.info("memory"))["used_memory"] - before) / size.queued
    turn = iter(range(10**6))

    async def enqueue() -> int:
        now_at = await bench.scheduler.now_at()
        entries = [Entry(bench.flow(next(turn) % size.tenants), bench.reference(now_at)) for _ in range(50)]
        await bench.scheduler.enqueue(bench.reference(now_at).id, entries)
        return 50

    async def lease() -> int:
        leased = await bench.scheduler.lease(LeaseAsk("carrier", "a1", 100))
        await bench.scheduler.ack(leased.lease_id)
        return len(leased.items)

    def admit(limit_ms: int) -> Callable[[], Awaitable[int]]:
        async def call() -> int:
            asks = []
            for _ in range(50):
                number = next(turn)
                way = bench.flow(number % size.tenants)
                asks.append(Ask((way,), 1, 120_000, limit_ms, 86_400_000, number.to_bytes(8, "big")))
            await bench.scheduler.admit(asks)
            return 50

        return call

    waiting = Entry(bench.flow(0), bench.reference(await bench.scheduler.now_at()))
    await bench.scheduler.enqueue(b"explained", [waiting])

    async def explain() -> int:
        await bench.scheduler.explain(ExplainAsk(waiting.flow, waiting.reference))
        return 1

    return {
        "octets": octets,
        "explain": await bench.cost(explain, 10),
        "admit": await bench.cost(admit(10**9), 5),
        "refuse": await bench.cost(admit(-1), 5),
        "enqueue": await bench.cost(enqueue, 5),
        "lease": await bench.cost(lease, 5),
    }


async def test_cost_is_flat_in_tenants_and_backlog(index: Redis) -> None:
    small = await costs(Bench(index), Size(100, 4_000))
    large = await costs(Bench(index), Size(4_000, 40_000))
    for name in ("admit", "refuse", "enqueue", "lease"):
        assert large[name] <= 2 * SLACK * small[name], (name, small, large)
    assert large["explain"] <= 5_000, large  # 5 ms; it is some hundred microseconds
    assert max(small["octets"], large["octets"]) <= 250
    for found in (small, large):  # PostgreSQL's and Python's part of an acceptance comes on top of this
        assert found["refuse"] <= SLACK * 0.5 * (found["admit"] + found["enqueue"]), found
