"""Sweeps are bounded, idempotent and one at a time, each with its lag; every accepted message ends (I9, I10)."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.delivery.gauges import Gauges
from gateway.delivery.sweeps import Sweeper
from gateway.delivery.taken import LOOK_AGAIN_S
from gateway.domain import states
from gateway.ledger import sweeps
from gateway.telemetry import REGISTRY
from tests.integration.delivery.world import World

HOUR_MS = 3_600_000


def lag(name: str) -> float | None:
    return REGISTRY.get_sample_value("sluicegate_sweep_lag_seconds", {"sweep": name})


async def left(world: World) -> int:
    return int(await world.pool.fetchval("SELECT count(*) FROM idempotency"))


async def old_keys(world: World, count: int) -> None:
    for n in range(count):
        await world.pool.execute(
            "INSERT INTO idempotency VALUES (1, 'messages', $1, '', '', 202, 0, $2)", f"k{n}", world.clock.now_at() - 1
        )


async def test_a_full_batch_is_followed_at_once_and_shows_as_lag(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "DELETE_BATCH", 3)
    await old_keys(world, 7)
    sweeper = Sweeper(world.runtime())
    for rest, pause_s in ((4, 1.0), (1, 1.0), (0, 30.0)):
        assert await sweeper.house() == pause_s
        assert await left(world) == rest
        assert (lag("idempotency") == 0) is (rest in {0, 4})
    assert {lag(name) for name in ("receipts", "carrier_ids", "callbacks", "coverage")} == {0.0}


async def test_what_another_process_sweeps_is_left_to_it(world: World) -> None:
    await old_keys(world, 2)
    async with world.pool.acquire() as other, other.transaction():
        assert await sweeps.begin_alone(other, "idempotency")
        await Sweeper(world.runtime()).house()
        assert await left(world) == 2
    await Sweeper(world.runtime()).house()
    assert await left(world) == 0


async def test_a_process_that_hangs_in_a_sweep_is_seen_from_outside(world: World) -> None:
    """It holds the sweep's lock and tells nothing; the others say for how long, and no more than is late."""
    now_at = world.clock.now_at()
    past = {"created_at": now_at - 60_000, "submit_by": now_at - 3_000, "expires_at": now_at - 3_000}
    message = await world.message(sweep_at=now_at - 3_000, **past)
    sweeper = Sweeper(world.runtime())
    async with world.pool.acquire() as hung, hung.transaction():
        for lock in ("expiry", "idempotency"):
            assert await sweeps.begin_alone(hung, lock)
        for elapsed_s in (0, 2, 100):
            world.clock.shift_ms = elapsed_s * 1000
            assert await sweeper.deadlines() <= 1
            assert await sweeper.house() == LOOK_AGAIN_S
            for name in ("expiry", "idempotency"):
                assert elapsed_s <= (lag(name) or 0) < elapsed_s + 60
        assert lag("cutoff") == 0
        assert await world.status(message) == "queued"
    await sweeper.deadlines()
    await sweeper.house()
    assert await world.status(message) == "expired"
    await sweeper.deadlines()
    assert (lag("expiry"), lag("idempotency")) == (0, 0)


async def test_claims_of_the_dead_show_as_lag_until_they_are_closed(world: World) -> None:
    now_at = world.clock.now_at()
    owner = await world.pool.fetchval(
        "INSERT INTO processes (role, worker, pid, host, started_at, heartbeat_at, ended_at)"
        " VALUES ('egress', '1', 1, 'here', 0, $1, $1) RETURNING id", now_at - 60_000,
    )  # fmt: skip
    message = await world.message()
    await world.attempt(message, owner=owner)
    async with world.pool.acquire() as conn:
        assert await sweeps.oldest_dead(conn, now_at) == now_at - 60_000
    world.clock.shift_ms = 1_000
    await Sweeper(world.runtime()).dead_owners()
    assert lag("dead_owners") == 0 and await world.status(message) == "unconfirmed"


async def test_every_accepted_message_ends_by_time_alone(world: World) -> None:
    """One message in each open status whose time is over: after the sweeps none is open, and nothing changes twice."""
    at = world.clock.now_at() - 3 * HOUR_MS
    past: dict[str, Any] = {"created_at": at, "submit_by": at, "expires_at": at + HOUR_MS, "sweep_at": at + HOUR_MS}
    ends = {
        states.QUEUED: states.EXPIRED,
        states.SCHEDULED: states.EXPIRED,
        states.UNCONFIRMED: states.FAILED,
        states.SENT: states.UNKNOWN,
    }
    messages = {status: await world.message(status=status, **past) for status in ends}
    gauges, sweeper = Gauges(world.runtime()), Sweeper(world.runtime())
    await gauges.ages()
    aged = {
        status: REGISTRY.get_sample_value("sluicegate_messages_oldest_seconds", {"status": status}) for status in ends
    }
    assert all((age or 0) > 3 * 3_600 - 60 for age in aged.values()), aged
    await sweeper.deadlines()
    assert {status: await world.status(message) for status, message in messages.items()} == ends
    before = await world.pool.fetch("SELECT id, version, final_at, sweep_at FROM messages ORDER BY id")
    assert all(row["final_at"] is not None and row["sweep_at"] is None for row in before)
    await sweeper.deadlines()
    assert await world.pool.fetch("SELECT id, version, final_at, sweep_at FROM messages ORDER BY id") == before
    await gauges.ages()
    open_ages = {
        REGISTRY.get_sample_value("sluicegate_messages_oldest_seconds", {"status": one}) for one in states.OPEN
    }
    assert open_ages == {0.0}
