"""What the queue index costs: microseconds of server CPU per call, per message, and octets per queued message.

Starts an embedded Valkey of its own (or uses `--redis URL`, which is emptied), fills it to each size, and prints a
table: `python -m loadtests.index_cost [--full] [--redis URL]`. Time is the CPU of the server's main thread, network
included; what the client or other processes do does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from redis.asyncio import Redis

from gateway.embedded.home import Home
from gateway.embedded.valkey import ValkeyServer
from scheduler.core.asks import Ask, ExplainAsk, LeaseAsk
from scheduler.core.records import Entry, Flow, Reference
from scheduler.core.tuning import ClassTuning, Tuning
from scheduler.store.scheduler import Scheduler

CLASSES = {
    "otp": ClassTuning(60, 1, 10_000),
    "transactional": ClassTuning(25, 4, 120_000),
    "marketing": ClassTuning(10, 32, 14_400_000),
}
_LIMIT = (1_000_000.0, 1_000_000)  # wide open: what is measured is the work, not the waiting
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Size:
    """A state of the index: how many tenants, and how many messages wait."""

    tenants: int
    queued: int


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds per message (per call for `lease_1` and `explain`), and octets per queued message."""

    enqueue: float
    lease_100: float
    lease_1: float
    admit_1: float
    admit_50: float
    refuse_50: float
    explain: float
    octets: float


class Bench:
    """One scheduler on one server, filled as asked."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.scheduler = Scheduler(redis)
        self._number = 0

    def flow(self, tenant: int, class_name: str = "transactional") -> Flow:
        """A tenant's flow under five limits."""
        name = f"tenant-{tenant:05d}"
        scopes = (f"tenant:{name}", f"destination:d{tenant % 20}", "route:main", "provider:carrier")
        return Flow("carrier", class_name, name, scopes, 11)

    def reference(self, now_at: int) -> Reference:
        """A new message."""
        self._number += 1
        return Reference(self._number.to_bytes(16, "big"), 0, 1, now_at + _DAY_MS, now_at)

    async def prepare(self, size: Size) -> None:
        """An emptied index with limits for every tenant, filled to the size."""
        await self.redis.flushall()
        limits = {f"tenant:tenant-{n:05d}": _LIMIT for n in range(size.tenants)}
        limits |= {f"destination:d{n}": _LIMIT for n in range(20)}
        limits |= {"route:main": _LIMIT, "provider:carrier": _LIMIT, "session:a1": _LIMIT}
        await self.scheduler.tune(Tuning(1, CLASSES, limits=limits))
        epoch = await self.scheduler.begin_rebuild()
        assert epoch is not None
        await self.scheduler.finish_rebuild(epoch)
        await self.scheduler.session_up("carrier", "a1")
        await self.fill(size)

    async def fill(self, size: Size) -> None:
        """Messages spread evenly over the tenants, in batches of 500."""
        now_at = await self.scheduler.now_at()
        for start in range(0, size.queued, 500):
            entries = [
                Entry(self.flow(n % size.tenants), self.reference(now_at))
                for n in range(start, min(start + 500, size.queued))
            ]
            await self.scheduler.enqueue(self._number.to_bytes(8, "big"), entries)

    async def server_us(self) -> float:
        """Microseconds of CPU that the server's main thread has taken since it started."""
        cpu = await self.redis.info("cpu")
        return 1e6 * (float(cpu["used_cpu_user_main_thread"]) + float(cpu["used_cpu_sys_main_thread"]))

    async def cost(self, work: Callable[[], Awaitable[int]], times: int) -> float:
        """Server microseconds per unit of what `work` says it did; the best of three."""
        best = float("inf")
        for _ in range(3):
            before, units = await self.server_us(), 0
            for _ in range(times):
                units += await work()
            best = min(best, (await self.server_us() - before) / max(1, units))
        return best


async def measure(bench: Bench, size: Size) -> Costs:
    """Everything at one size."""
    base = (await bench.redis.info("memory"))["used_memory"]
    await bench.prepare(Size(size.tenants, 0))
    base = (await bench.redis.info("memory"))["used_memory"]
    await bench.fill(size)
    octets = ((await bench.redis.info("memory"))["used_memory"] - base) / size.queued
    turn = iter(range(10**9))

    async def enqueue() -> int:
        now_at = await bench.scheduler.now_at()
        entries = [Entry(bench.flow(next(turn) % size.tenants), bench.reference(now_at)) for _ in range(50)]
        await bench.scheduler.enqueue(bench.reference(now_at).id, entries)
        return 50

    async def lease(want: int) -> int:
        leased = await bench.scheduler.lease(LeaseAsk("carrier", "a1", want))
        await bench.scheduler.ack(leased.lease_id)
        return len(leased.items)

    def ask(limit_ms: int) -> Ask:
        number = next(turn)
        place = number.to_bytes(8, "big")
        return Ask((bench.flow(number % size.tenants),), 1, 120_000, limit_ms, _DAY_MS, place, probe=limit_ms > 0)

    async def admit(count: int, limit_ms: int) -> int:
        await bench.scheduler.admit([ask(limit_ms) for _ in range(count)])
        return count

    waiting = Entry(bench.flow(0), bench.reference(await bench.scheduler.now_at()))
    await bench.scheduler.enqueue(b"explained", [waiting])

    async def explain() -> int:
        await bench.scheduler.explain(ExplainAsk(waiting.flow, waiting.reference))
        return 1

    return Costs(
        enqueue=await bench.cost(enqueue, 40),
        admit_1=await bench.cost(lambda: admit(1, 10**9), 100),
        admit_50=await bench.cost(lambda: admit(50, 10**9), 20),
        refuse_50=await bench.cost(lambda: admit(50, -1), 20),
        explain=await bench.cost(explain, 30),
        lease_100=await bench.cost(lambda: lease(100), 15),
        lease_1=await bench.cost(lambda: lease(1), 100),
        octets=octets,
    )


async def run(arguments: argparse.Namespace) -> None:
    """Measures the sizes and prints the table."""
    sizes = [Size(100, 10_000), Size(10_000, 100_000)]
    if arguments.full:
        sizes = [
            Size(1, 10_000),
            Size(100, 10_000),
            Size(100, 1_000_000),
            Size(10_000, 100_000),
            Size(10_000, 1_000_000),
        ]
    async with AsyncExitStack() as stack:
        url = arguments.redis or await _own_server(stack)
        client = Redis.from_url(url)
        stack.push_async_callback(client.aclose)
        print("us of server CPU           per message                                  per call        octets")
        print("tenants   queued   enqueue  lease/100  admit/50  refuse/50   admit/1  lease/1  explain  per message")
        for size in sizes:
            began = time.monotonic()
            costs = await measure(Bench(client), size)
            print(
                f"{size.tenants:7d} {size.queued:8d}  {costs.enqueue:8.1f} {costs.lease_100:10.1f}"
                f" {costs.admit_50:9.1f} {costs.refuse_50:10.1f} {costs.admit_1:9.1f}"
                f" {costs.lease_1:8.1f} {costs.explain:8.1f}"
                f" {costs.octets:8.1f}   ({time.monotonic() - began:.0f} s)",
                flush=True,
            )


async def _own_server(stack: AsyncExitStack) -> str:
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="sluicegate-cost-"))
    home = Home(Path(directory))
    home.hold()
    stack.callback(home.release)
    server = ValkeyServer(home)
    server.start()
    stack.push_async_callback(server.stop)
    await server.ready()
    return server.url()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Cost of the queue index, as a table.")
    parser.add_argument("--full", action="store_true", help="up to 10,000 tenants and 1,000,000 queued (minutes)")
    parser.add_argument("--redis", default="", help="URL of a server to use; it is emptied")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
