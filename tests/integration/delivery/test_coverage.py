"""Coverage is counted where it changes, by the hour in which a message was sent (issue "receipts", point 4)."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from gateway.delivery.gauges import Gauges
from gateway.domain import outcomes
from gateway.domain.coverage import HOUR_MS, HourCounts
from gateway.domain.ids import day_of
from gateway.ledger.coverage import add_up, forget_hours, hours
from gateway.ledger.inbox import ReceivedReceipt, keep
from gateway.ledger.merges import merge_batch
from gateway.ledger.outcomes import Bench, Closing, store_accepted, store_endings
from gateway.ledger.sweeps import cut_receipts_off
from gateway.telemetry import REGISTRY
from tests.integration.delivery.world import World


def closing(world: World, message: UUID, carrier_id: str, **values: object) -> Closing:
    now_at = world.clock.now_at()
    row = {"written_at": now_at, "accepted_parts": 1, "carrier_ids": [(1, carrier_id)], "parts_total": 1}
    return Closing(
        day_of(message), message, 0, outcomes.ACCEPTED, "carrier-a", "+447700900123",
        outcome_at=now_at, **(row | values),  # type: ignore[arg-type]
    )  # fmt: skip


async def accepted(world: World, carrier_id: str, **values: object) -> UUID:
    """A message as egress stores it: claimed, submitted, answered."""
    message = await world.message(**values)
    await world.attempt(message)
    async with world.pool.acquire() as conn, conn.transaction():
        bench = Bench(world.policy, b"p" * 32, world.clock.now_at(), lambda: 0.5)
        await store_accepted(conn, [closing(world, message, carrier_id)], bench)
    return message


def received(world: World, carrier_id: str, word: str | None = "delivered") -> ReceivedReceipt:
    now_at = world.clock.now_at()
    raw = f"{carrier_id}{word}".encode()
    return ReceivedReceipt(
        "carrier-a", "a1", now_at, carrier_id, carrier_id, "447700900123", "ACME", word, "000", now_at, raw
    )


async def arrive(world: World, *receipts: ReceivedReceipt) -> None:
    async with world.pool.acquire() as conn:
        await keep(conn, world.sealer, receipts, ())
        await merge_batch(conn, world.policy, world.clock.now_at() + 10)


async def total(world: World) -> HourCounts:
    now_at = world.clock.now_at()
    async with world.pool.acquire() as conn:
        return add_up(await hours(conn, now_at - 100 * HOUR_MS, now_at + 60_000))["carrier-a"]


def told(one: HourCounts) -> tuple[int, int, int, int, int]:
    return one.sent, one.decided, one.delivered, one.receipts, one.unmatched


async def test_each_message_counts_once_whatever_its_receipts_do(world: World) -> None:
    for n in range(3):
        await accepted(world, f"C{n}")
    assert told(await total(world)) == (3, 0, 0, 0, 0)
    await arrive(world, received(world, "C0", "undeliverable"), received(world, "C1", "enroute"))
    assert told(await total(world)) == (3, 1, 0, 2, 0)
    repeat = received(world, "C0", "undeliverable")
    await arrive(world, repeat, received(world, "C0", "delivered"))
    assert told(await total(world)) == (3, 1, 1, 3, 0), "a correction moves the delivered, a repeat nothing"
    await arrive(world, received(world, "C1"), received(world, "STRANGE"))
    assert told(await total(world)) == (3, 2, 2, 5, 1)
    async with world.pool.acquire() as conn:
        fresh = add_up(await hours(conn, 0, world.clock.now_at()))["carrier-a"]
    assert fresh.unmatched == 0, "it may still find its message"


async def test_doubt_and_the_cut_off_count_too(world: World) -> None:
    """A message in doubt counts as sent when its answer or receipt comes; one that was cut off stays without."""
    late = await world.message()
    await world.attempt(late)
    async with world.pool.acquire() as conn, conn.transaction():
        bench = Bench(world.policy, b"p" * 32, world.clock.now_at(), lambda: 0.5)
        lost = closing(world, late, "", accepted_parts=0, carrier_ids=[])
        lost.outcome = outcomes.UNCONFIRMED
        await store_endings(conn, [lost], bench)
        await store_endings(conn, [closing(world, late, "L1", late=True)], bench)
    assert told(await total(world))[:2] == (1, 0)
    silent = await accepted(world, "S1")
    await world.pool.execute("UPDATE messages SET sweep_at = 1 WHERE id = $1", silent)
    async with world.pool.acquire() as conn:
        await cut_receipts_off(conn, world.policy, world.clock.now_at())
    assert told(await total(world))[:2] == (2, 0)
    await arrive(world, received(world, "S1"), received(world, "L1"))
    assert told(await total(world))[:3] == (2, 2, 2)


async def test_the_gauge_looks_at_what_is_six_to_48_hours_old(world: World) -> None:
    now_at = world.clock.now_at()
    for hours_ago, sent, decided in ((1, 100, 0), (12, 50, 25), (40, 50, 50), (60, 100, 0)):
        at = (now_at - hours_ago * HOUR_MS) // HOUR_MS * HOUR_MS
        await world.pool.execute(
            "INSERT INTO coverage_hours (provider, hour_at, shard, sent, decided, delivered)"
            " VALUES ('carrier-a', $1, 1, $2, $3, $4)", at, sent, decided, decided * 4 // 5,
        )  # fmt: skip
    await Gauges(world.runtime()).coverage()
    labels = {"provider": "carrier-a"}
    assert REGISTRY.get_sample_value("sluicegate_receipt_coverage_ratio", labels) == 0.75
    assert REGISTRY.get_sample_value("sluicegate_receipt_delivered_ratio", labels) == pytest.approx(0.8)
    async with world.pool.acquire() as conn:
        assert await forget_hours(conn, now_at - 50 * HOUR_MS) == 1


async def test_the_verb_tells_a_race_from_a_silent_carrier(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gateway.cli import coverage as verb

    now_at = world.clock.now_at()
    for provider, receipts in (("silent", 0), ("carrier-a", 40)):
        await world.pool.execute(
            "INSERT INTO coverage_hours (provider, hour_at, shard, sent, receipts) VALUES ($1, $2, 1, 40, $3)",
            provider, (now_at - 12 * HOUR_MS) // HOUR_MS * HOUR_MS, receipts,
        )  # fmt: skip
    for n in range(40):
        await world.receipt("delivered", f"N{n}", received_at=now_at - 12 * HOUR_MS)
    monkeypatch.setenv("SLUICEGATE_DATABASE_URL", world.url)
    seen = await verb._look(48 * HOUR_MS, None)
    words = {one["provider"]: (one["verdict"], one["unmatched"]) for one in seen["hours"]}
    assert words == {"silent": ("silent", 0), "carrier-a": ("unmatched", 40)}
    assert json.loads(json.dumps(seen))["providers"]["silent"]["coverage"] == 0.0
    verb.show(seen)
    out = capsys.readouterr().out
    assert "silent: the carrier sends no receipts" in out and "unmatched: receipts are in the inbox" in out
