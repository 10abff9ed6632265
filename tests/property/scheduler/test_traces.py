"""Random traces on the real scripts: limits, conservation, exact counters (I12, I16, I18, I19; scheduling.md 2d M)."""

from __future__ import annotations

import random

import pytest
from redis.asyncio import Redis

from scheduler.core.asks import Ask, LeaseAsk, Leased
from scheduler.core.records import Entry, Flow
from tests.property.scheduler.world import CLASSES, World, flow

TENANTS = ("a", "b|pipe", "c%", "d e", "ü")
SESSIONS = {"s1": "p", "s2": "p", "s3": "q"}


def random_limits(dice: random.Random) -> dict[str, tuple[float, int]]:
    """Limits on some of the scopes of every kind."""
    names = [f"tenant:{tenant}" for tenant in TENANTS] + [
        "destination:it",
        "destination:fr",
        "route:r1",
        "sender:a/+39",
    ]
    names += ["provider:p", "provider:q", "session:s1", "session:s2", "application:a/spring"]
    limits = {
        name: (dice.choice([0.5, 3, 10, 33.3, 120]), dice.choice([1, 3, 10, 60]))
        for name in names
        if dice.random() < 0.6
    }
    limits["number:it"] = (dice.choice([0.5, 2]), dice.choice([1, 3]))
    return limits


def random_flow(dice: random.Random) -> Flow:
    """One of a few dozen flows."""
    tenant = dice.choice(TENANTS)
    scopes = [s for s in ("route:r1",) if dice.random() < 0.5]
    if dice.random() < 0.5:
        scopes += ["destination:it", "number:it"] if dice.random() < 0.5 else ["destination:fr"]
    if tenant == "a" and dice.random() < 0.5:
        scopes.append(dice.choice(["sender:a/+39", "application:a/spring"]))
    return flow(dice.choice("pq"), dice.choice(list(CLASSES)), tenant, *scopes)


class Trace:
    """One seeded run."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self.world = world
        self.dice = dice
        self.out: list[tuple[Leased, float]] = []

    def entry(self) -> Entry:
        dice = self.dice
        reference = self.world.reference(
            ttl_ms=dice.choice([50, 500, 3_000, 60_000]),
            segments=dice.choice([1, 1, 1, 1, 2, 5]),
            number=dice.choice([bytes(8), b"number-1", b"number-2", dice.randbytes(8)]),
        )
        return Entry(random_flow(dice), reference, front=dice.random() < 0.1, retry=dice.random() < 0.1)

    async def step(self) -> None:
        dice, world = self.dice, self.world
        # No two calls see the same microsecond on a server: which of two charges came first decides what may come back.
        world.clock.at += dice.choice([0, 1, 7, 20, 130, 900]) + 0.001
        roll = dice.random()
        if roll < 0.3:
            await world.enqueue([self.entry() for _ in range(dice.randint(1, 40))], repeat=dice.random() < 0.2)
        elif roll < 0.72:
            await self.lease()
        elif roll < 0.78 and self.out:
            await self.settle(self.out.pop(0))
        elif roll < 0.83:
            await self.cancel()
        elif roll < 0.87:
            await world.scheduler.admit([Ask((random_flow(dice),), 1, 10_000, 5_000, 10_000, dice.randbytes(8))])
        elif roll < 0.9:
            scope = dice.choice(["tenant:a", "route:r1", "provider:p", "session:s1", "destination:it"])
            await world.scheduler.pause(scope, dice.choice([None, int(world.clock.at) + 300]))
            world.clock.at += dice.choice([0, 100, 700])
            await self.lease()
            await world.scheduler.resume(scope)
        elif roll < 0.93:
            await world.scheduler.answered("p", dice.randint(1, 20), dice.choice(list(CLASSES)))
            await world.scheduler.slow("s1", 0.7, 100)

    async def lease(self) -> None:
        session = self.dice.choice(list(SESSIONS))
        ask = LeaseAsk(
            SESSIONS[session], session, self.dice.choice([1, 5, 30, 100]), want_segments=self.dice.choice([None, 7, 60])
        )
        if self.dice.random() < 0.6:
            await self.world.send(ask)
            return
        leased = await self.world.lease(ask)  # left open: acknowledged later, given back, or lapsing
        if leased.items:
            unsent = self.dice.random() < 0.3
            if not unsent:
                self.world.record(session, leased)
            self.out.append((leased, self.world.clock.at if unsent else -1))

    async def settle(self, pending: tuple[Leased, float]) -> None:
        leased, unsent = pending
        scheduler = self.world.scheduler
        if unsent < 0:
            if await scheduler.ack(leased.lease_id):
                for item in leased.items:
                    self.world.end(item.reference)
        elif self.dice.random() < 0.5:
            await scheduler.restore(leased.lease_id)
        elif await scheduler.ack(leased.lease_id, [(i.reference, i.flow_key) for i in leased.items]):
            for item in leased.items:
                self.world.end(item.reference)

    async def cancel(self) -> None:
        """Tombstones one reference that waits; it must never be leased again."""
        # In an order of their own: a server lists its keys in another one each time, and a seed must be one trace.
        waiting = sorted(octets[:16] for _, octets, where in await self.world.queued() if where != "lease")
        if waiting:
            chosen = self.dice.choice(waiting)
            await self.world.scheduler.tombstone([chosen], 3_600_000)
            self.world.canceled.add(chosen)


# 55: what two leases gave back was more than the bucket still held of them.
@pytest.mark.parametrize("seed", [*range(1, 13), 55])
async def test_random_trace_keeps_every_invariant(index: Redis, seed: int) -> None:
    dice = random.Random(seed)
    world = await World.create(index, random_limits(dice), {"a": 5, "b|pipe": 2})
    for session, provider in SESSIONS.items():
        await world.scheduler.session_up(provider, session)
    trace = Trace(world, dice)
    for number in range(250):
        await trace.step()
        if number % 25 == 24:
            await book_dropped(world)
            await world.check_index()
    world.check_limits()
    await drain(world)
    await world.check_index()
    world.check_limits()


async def book_dropped(world: World) -> None:
    """A tombstoned reference that is gone from the index was dropped, as it should be."""
    if not world.canceled:
        return
    there = {octets[:16] for _, octets, _ in await world.queued()}
    for id_ in [id_ for id_ in world.canceled if id_ not in there]:
        world.canceled.discard(id_)
        if not world.ended[id_]:
            world.end(world.enqueued[id_])


async def drain(world: World) -> None:
    """With the faults off everything ends: sent, expired or dropped (liveness)."""
    for _ in range(2_000):
        world.clock.at += 500
        for session, provider in SESSIONS.items():
            await world.send(LeaseAsk(provider, session, 100))
        if not sum((await world.scheduler.counts()).values()):
            await book_dropped(world)
            return
    raise AssertionError("something waits for ever")
