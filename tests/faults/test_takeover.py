"""Two egress processes share four sessions; when one is killed the other has them all within 15 s."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from pathlib import Path

import pytest

from loadtests.evidence import binds_since, collect, settle
from loadtests.oracle import judge
from loadtests.strikes import strike
from loadtests.traffic import Traffic
from loadtests.world import Shape, World

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

SESSIONS = 4
TAKEOVER_S = 15.0


async def test_the_sessions_of_a_killed_process_move() -> None:
    with tempfile.TemporaryDirectory(prefix="sluicegate-takeover-") as scratch:
        world = World(Path(scratch), Shape(sessions=SESSIONS, strays=1))
        await world.start()
        try:
            await _play(world)
        finally:
            code = await world.stop()
        assert code == 0


async def _play(world: World) -> None:
    await _until_shared(world, (2, 2))
    traffic = Traffic(world.url, world.key, 240, 7, "takeover")
    sending = asyncio.create_task(traffic.run_until_stopped())
    await asyncio.sleep(3)
    # No supervisor looks after this one: the other must notice its silence by itself.
    kill = await strike(world, "stray", random.Random(7))
    moved_s = await _until_bound(world, kill.done_at, 2)
    await _until_shared(world, (SESSIONS,))
    traffic.stop()
    await sending
    assert await settle(world, 60)
    found = judge(await collect(world, traffic.journal, [kill]))
    assert found.violations == []
    assert found.in_flight[0] > 0
    assert moved_s <= TAKEOVER_S


async def _until_shared(world: World, shares: tuple[int, ...]) -> None:
    """Wait until the living processes report these shares of the sessions."""
    end_mono = time.monotonic() + 60
    while sorted(len(holder.holds) for holder in await world.holders()) != sorted(shares):
        held = [sorted(holder.holds) for holder in await world.holders()]
        assert time.monotonic() < end_mono, f"{held}\n{world.told('stray-1')}\n{world.told('up')}"
        await asyncio.sleep(0.2)


async def _until_bound(world: World, since_at: int, count: int) -> float:
    """Seconds until the carrier saw so many new binds."""
    end_mono = time.monotonic() + 60
    while binds_since(world.journal_path, since_at) < count:
        assert time.monotonic() < end_mono
        await asyncio.sleep(0.1)
    return (time.time() * 1000 - since_at) / 1000
