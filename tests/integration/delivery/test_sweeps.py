"""What time alone brings about (design section 4; I3, I10, I17; cases Q08, R06, R18)."""

from __future__ import annotations

import asyncio
import os

import pytest

from gateway.delivery.sweeps import Sweeper
from gateway.domain.ids import uuid7
from gateway.ledger import expiries, sweeps
from gateway.ledger.merges import merge_batch
from tests.integration.delivery.world import World, until

HOUR_MS = 3_600_000


@pytest.fixture
def past(world: World) -> int:
    """A moment that is over."""
    return world.clock.now_at() - 1_000


async def test_what_waits_and_is_out_of_time_expires_and_tells(world: World, past: int) -> None:
    over = await world.message(submit_by=past, sweep_at=past)
    waiting = await world.message()
    async with world.pool.acquire() as conn:
        swept = await expiries.expire_due(conn, world.policy, world.clock.now_at())
    row = await world.row(over)
    assert (row["status"], row["expiry"]["cause"], row["expiry"]["stage"]) == ("expired", "wait_budget", "queued")
    assert row["delivery"] is None and row["sweep_at"] is None and row["final_at"] is not None
    assert await world.events(over) == [("message.expired", 2)]
    assert await world.pool.fetchval("SELECT kind FROM attempts WHERE id = $1", over) == "expire"
    assert await world.status(waiting) == "queued"
    assert [(one.cause, one.stage) for one in swept.expired] == [("wait_budget", "queued")]


async def test_a_retry_out_of_time_expires_with_cause_ttl(world: World, past: int) -> None:
    over = await world.message(
        submit_begun=True, next_slot=1, submit_by=past - 9, expires_at=past, sweep_at=past, error={"code": "RMSGQFUL"}
    )
    await world.pool.execute("INSERT INTO due SELECT day, id, expires_at, 'retry' FROM messages WHERE id = $1", over)
    async with world.pool.acquire() as conn:
        await expiries.expire_due(conn, world.policy, world.clock.now_at())
    row = await world.row(over)
    assert (row["status"], row["expiry"]["cause"], row["expiry"]["stage"]) == ("expired", "ttl", "retry")
    assert row["error"] == {"code": "RMSGQFUL"}
    assert await world.pool.fetchval("SELECT count(*) FROM due") == 0


@pytest.mark.parametrize(
    ("kind", "ends_with_ttl", "cause"),
    [("deferral", False, "wait_budget"), ("send_at", True, "ttl"), ("send_window", True, "send_window")],
)
async def test_a_scheduled_message_out_of_time(
    world: World, past: int, kind: str, ends_with_ttl: bool, cause: str
) -> None:
    expires_at = past if ends_with_ttl else past + HOUR_MS
    over = await world.message(status="scheduled", submit_by=past, expires_at=expires_at, sweep_at=past)
    await world.pool.execute("INSERT INTO due SELECT day, id, submit_by, $2 FROM messages WHERE id = $1", over, kind)
    async with world.pool.acquire() as conn:
        await expiries.expire_due(conn, world.policy, world.clock.now_at())
    row = await world.row(over)
    assert (row["status"], row["expiry"]["cause"], row["expiry"]["stage"]) == ("expired", cause, "scheduled")
    assert await world.pool.fetchval("SELECT count(*) FROM due") == 0
    assert await world.events(over) == [("message.expired", 2)]


async def test_a_submit_under_way_is_exempt(world: World, past: int) -> None:
    """R18: expired means never handed to a carrier; a message in flight is neither."""
    flying = await world.message(submit_by=past, expires_at=past, sweep_at=past)
    await world.attempt(flying)
    async with world.pool.acquire() as conn:
        swept = await expiries.expire_due(conn, world.policy, world.clock.now_at())
    assert await world.status(flying) == "queued" and swept.found == 0


async def test_expiry_is_idempotent_and_one_at_a_time(world: World, past: int) -> None:
    over = await world.message(submit_by=past, sweep_at=past)
    async with world.pool.acquire() as first, world.pool.acquire() as second:
        rounds = await asyncio.gather(
            expiries.expire_due(first, world.policy, world.clock.now_at()),
            expiries.expire_due(second, world.policy, world.clock.now_at()),
        )
    assert sum(len(swept.expired) for swept in rounds) == 1
    assert await world.events(over) == [("message.expired", 2)]


async def test_one_time_passwords_first(world: World, past: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiries, "ROUND", 2)
    for _ in range(3):
        await world.message(submit_by=past - 500, sweep_at=past - 500)
    code = await world.message(submit_by=past, sweep_at=past, **{"class": "otp"})
    async with world.pool.acquire() as conn:
        swept = await expiries.expire_due(conn, world.policy, world.clock.now_at())
    assert swept.full and await world.status(code) == "expired"


async def test_doubt_ends_as_outcome_unknown_and_a_receipt_corrects_it(world: World, past: int) -> None:
    message = await world.message(status="unconfirmed", submit_begun=True, next_slot=1, sweep_at=past)
    await world.attempt(message, outcome="unconfirmed")
    async with world.pool.acquire() as conn:
        await sweeps.end_doubt(conn, world.policy, world.clock.now_at())
        row = await world.row(message)
        assert (row["status"], row["error"]["code"], row["sweep_at"]) == ("failed", "outcome_unknown", None)
        await world.carrier_id(message, "LATE")
        await world.receipt("delivered", "LATE")
        await merge_batch(conn, world.policy, world.clock.now_at())
    assert await world.status(message) == "delivered"
    assert await world.events(message) == [("message.failed", 2), ("message.corrected", 3)]


async def test_the_cut_off_and_a_receipt_after_it(world: World, past: int) -> None:
    """R06: a late fact is still a fact."""
    message = await world.sent(sweep_at=past)
    async with world.pool.acquire() as conn:
        await sweeps.cut_receipts_off(conn, world.policy, world.clock.now_at())
        row = await world.row(message)
        assert (row["status"], row["network_state"], row["sweep_at"]) == ("unknown", None, None)
        await world.receipt("undeliverable")
        await merge_batch(conn, world.policy, world.clock.now_at())
    assert await world.status(message) == "undelivered"
    assert await world.events(message) == [("message.unknown", 2), ("message.corrected", 3)]


async def test_the_cut_off_decides_by_the_parts_that_spoke(world: World, past: int) -> None:
    bad, silent = [await world.sent(f"M{n}", segments=2, sweep_at=past) for n in range(2)]
    await world.receipt("rejected", "M0")
    await world.receipt("delivered", "M1")
    async with world.pool.acquire() as conn:
        await merge_batch(conn, world.policy, world.clock.now_at())
        assert (await world.status(bad), await world.status(silent)) == ("sent", "sent")
        await sweeps.cut_receipts_off(conn, world.policy, world.clock.now_at())
    assert (await world.status(bad), await world.status(silent)) == ("undelivered", "unknown")


async def test_the_deadline_loop_expires_within_a_second(world: World) -> None:
    """I17."""
    deadline_at = world.clock.now_at() + 150
    message = await world.message(submit_by=deadline_at, sweep_at=deadline_at)
    rt = world.runtime()
    sweeper = Sweeper(rt)
    pause_s = await sweeper.deadlines()
    assert pause_s <= 0.5 or await world.status(message) == "expired"  # a busy machine comes too late to wait

    async def expired() -> bool:
        await sweeper.deadlines()
        return await world.status(message) == "expired"

    await until(expired)
    assert (await world.row(message))["final_at"] - deadline_at < 1_000


async def test_a_doubtful_clock_ends_nothing(world: World, past: int) -> None:
    """I33."""
    message = await world.message(submit_by=past, sweep_at=past)
    world.clock.doubtful = True
    await Sweeper(world.runtime()).deadlines()
    assert await world.status(message) == "queued"


async def test_idempotency_receipts_and_given_up_callbacks_are_forgotten(world: World) -> None:
    now_at = world.clock.now_at()
    for key, keep_until in (("old", now_at - 1), ("young", now_at + HOUR_MS)):
        await world.pool.execute(
            "INSERT INTO idempotency VALUES (1, 'messages', $1, '', '', 202, 0, $2)", key, keep_until
        )
    await world.receipt("delivered", received_at=now_at - 15 * 86_400_000)
    await world.receipt("delivered", received_at=now_at)
    sweeper = Sweeper(world.runtime())
    await sweeper.house()
    await sweeper.partitions()
    assert await world.pool.fetch("SELECT key FROM idempotency") == [("young",)]
    assert await world.pool.fetchval("SELECT count(*) FROM receipts") == 1
    assert await world.pool.fetchval("SELECT count(*) FROM pg_inherits WHERE inhparent = 'messages'::regclass") >= 9


async def test_silent_processes_end_after_two_looks(world: World) -> None:
    now_at = world.clock.now_at()
    for role, beat in (("api", now_at - 120_000), ("egress", now_at - 120_000), ("api", now_at)):
        await world.pool.execute(
            "INSERT INTO processes (role, worker, pid, host, started_at, heartbeat_at) VALUES ($1, '1', 1, 'h', 0, $2)",
            role, beat,
        )  # fmt: skip
    rt = world.runtime()
    rt.process_id = 99
    sweeper = Sweeper(rt)
    await sweeper.house()
    assert await world.pool.fetchval("SELECT count(*) FROM processes WHERE ended_at IS NOT NULL") == 0
    async with world.pool.acquire() as alive:
        egress = await alive.fetchval("SELECT id FROM processes WHERE role = 'egress'")
        await alive.execute("SELECT pg_advisory_lock(hashtextextended('sluicegate.owner:' || $1::bigint, 0))", egress)
        await sweeper.house()
        ended = await world.pool.fetch("SELECT role FROM processes WHERE ended_at IS NOT NULL")
        await alive.execute("SELECT pg_advisory_unlock_all()")
    assert [row["role"] for row in ended] == ["api"]


async def test_partitions_are_made_ahead(world: World) -> None:
    async with world.pool.acquire() as conn:
        later_at = world.clock.now_at() + 3 * 86_400_000
        await sweeps.keep_partitions(conn, later_at, 7)
        assert await sweeps.partitions_ahead(conn, later_at) == 7
    later = uuid7(world.clock.now_at() + 9 * 86_400_000, os.urandom(10))
    assert await world.status(await world.message(id=later)) == "queued"
