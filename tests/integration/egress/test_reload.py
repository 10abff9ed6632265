"""A new policy and the sessions: what did not change stays bound, what is gone leaves in good order (contract 3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.policy.applier import Applier
from gateway.policy.rules.parse import read_policy
from smpp.simulator import SimulatorSettings
from tests.integration.egress.world import PolicyText, World, open_world, until


class Carrier:
    """A world with three sessions, and the policies that come after the first."""

    def __init__(self, world: World, text: PolicyText) -> None:
        self.world = world
        self.text = text

    async def apply(self, applier: Applier, text: str) -> None:
        version = await applier.apply(text, "test")
        self.world.policy = read_policy(text, version)


@pytest.fixture
async def carrier(database_url: str, redis_url: str) -> AsyncIterator[Carrier]:
    texts: list[PolicyText] = []

    def first(port: int) -> PolicyText:
        texts.append(PolicyText(port, sessions=3, session="limits: {rate_per_s: 500, burst: 500}"))
        return texts[0]

    async with open_world(database_url, redis_url, SimulatorSettings(port=0), first) as world:
        yield Carrier(world, texts[0])


async def test_unchanged_sessions_stay_bound_and_removed_ones_leave(carrier: Carrier) -> None:
    world, text = carrier.world, carrier.text

    async def bound(number: int) -> bool:
        return world.carrier.bound == number

    async with world.egress() as rt:
        await until(lambda: bound(3), 30)
        before = set(map(id, world.carrier.connections))
        held = list(world.carrier.connections)  # so that no id is used again
        ids = await world.put([f"first {n}" for n in range(30)])
        await world.until_status(ids, "sent", 30)

        # Other limits of every session, of the tenant and of the provider: every connection stays.
        slower = replace(
            text,
            session="limits: {rate_per_s: 50, burst: 10}",
            provider="    limits: {rate_per_s: 100, burst: 20}\n",
        )
        await carrier.apply(rt.applier, slower.yaml())
        ids = await world.put([f"second {n}" for n in range(30)])
        await world.until_status(ids, "sent", 30)
        report = rt.report["sessions"]
        assert {one["limit"] for one in report.values()} == {50.0}
        assert set(map(id, world.carrier.connections)) == before

        # One session goes, one gets another window: the third stays.
        lines = slower.yaml().splitlines()
        changed = [
            line.replace("window: 10", "window: 11") if line.startswith("      s2:") else line
            for line in lines
            if not line.startswith("      s3:")
        ]
        await carrier.apply(rt.applier, "\n".join(changed) + "\n")

        async def settled() -> bool:
            now = set(map(id, world.carrier.connections))
            return world.carrier.bound == 2 and len(now & before) == 1 and len(now) == 2

        await until(settled, 30, lambda: f"{len(world.carrier.connections)} connections")
        ids = await world.put([f"third {n}" for n in range(30)])
        await world.until_status(ids, "sent", 30)
        assert len(held) == 3
        assert (
            await world.conn.fetchval("SELECT count(*) FROM attempts WHERE outcome NOT IN ('accepted', 'given_back')")
            == 0
        )
