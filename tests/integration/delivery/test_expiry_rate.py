"""Deadlines by the thousand a second, with nothing being sent: each recorded within a second (I17).

The clock here runs with the processor time that this process and its database session use, and over their rests: a
machine that is busy with something else changes nothing.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.delivery.sweeps import Sweeper
from gateway.domain.ids import day_of, uuid7
from gateway.ledger.connect import open_pool
from tests.integration.delivery.world import WallClock, World, world_of

SECONDS = 2
SLACK = 3  # machines are noisy: the figure itself is 1
COLUMNS = """day id tenant_id class status recipient sender body encoding segments route provider created_at submit_by
             expires_at sweep_at predicted_wait_ms policy_version"""


class WorkClock(WallClock):
    """UTC ms that pass only while somebody works, or where a rest is added."""

    def __init__(self, session: int) -> None:
        super().__init__()
        self._session = Path(f"/proc/{session}/schedstat")
        self._start_at = int(time.time() * 1_000)
        self._rested_ms = 0.0
        self._began_ms = 0.0
        self._began_ms = self._worked_ms()

    def now_at(self) -> int:
        return self._start_at + int(self._rested_ms + self._worked_ms() - self._began_ms)

    def rest(self, seconds: float) -> None:
        self._rested_ms += seconds * 1_000

    def _worked_ms(self) -> float:
        return time.process_time() * 1_000 + int(self._session.read_text().split()[0]) / 1e6


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """A ledger that is worked on through one session."""
    async with world_of(database_url) as made:
        wide, made.pool = made.pool, await open_pool(database_url, max_size=1)
        await wide.close()
        yield made
        made.pool.terminate()


async def overdue_soon(world: World, rate: int) -> None:
    """As many messages as end at `rate` a second for `SECONDS`, a quarter of them codes, from a second on."""
    now_at = world.clock.now_at()
    rows = []
    for n in range(rate * SECONDS):
        one, ends_at = uuid7(now_at, os.urandom(10)), now_at + 1_000 + n * 1_000 // rate
        rows.append((
            day_of(one), one, world.tenants["acme"], "otp" if n % 4 == 0 else "marketing", "queued", "+447700900123",
            "ACME", b"x", "gsm7", 1, "main", "carrier-a", now_at, ends_at, ends_at + 60_000, ends_at, 0, 1,
        ))  # fmt: skip
    await world.pool.copy_records_to_table("messages", records=rows, columns=COLUMNS.split())


@pytest.mark.timing
@pytest.mark.parametrize("rate", [2_000, 5_000])
async def test_each_is_recorded_within_a_second(world: World, rate: int) -> None:
    clock = world.clock = WorkClock(await world.pool.fetchval("SELECT pg_backend_pid()"))
    await overdue_soon(world, rate)
    sweeper, rounds = Sweeper(world.runtime()), list[int]()
    while await world.pool.fetchval("SELECT EXISTS (SELECT FROM messages WHERE status = 'queued')"):
        rest_s = await sweeper.deadlines()
        rounds.append(clock.now_at())  # a round's own instant says when it began; now it is committed
        clock.rest(rest_s)
    ended = await world.pool.fetch("SELECT class, final_at, submit_by, expiry ->> 'cause' AS cause FROM messages")
    assert {row["cause"] for row in ended} == {"wait_budget"} and len(ended) == rate * SECONDS
    assert await world.pool.fetchval("SELECT count(*) FROM callbacks WHERE type = 'message.expired'") == len(ended)
    lags = {
        name: sorted(
            rounds[bisect_left(rounds, row["final_at"])] - row["submit_by"] for row in ended if row["class"] == name
        )
        for name in ("otp", "marketing")
    }
    assert min(lags["otp"][0], lags["marketing"][0]) >= 0, "nothing ends before its time"
    p99 = {name: found[len(found) * 99 // 100] for name, found in lags.items()}
    assert p99["otp"] <= SLACK * 1_000
    assert p99["marketing"] <= SLACK * (1_000 if rate <= 2_000 else 3_000)
