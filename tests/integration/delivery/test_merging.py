"""Receipts into the two columns (design section 1 hop 10, section 4; I4, I5, I28, I29; cases R01 to R15)."""

from __future__ import annotations

import asyncio
import itertools

from gateway.ledger.merges import Merged, merge_batch, wake_waiting
from gateway.receipts.merger import Merger
from tests.integration.delivery.world import World, until


async def merge(world: World, shift_ms: int = 0) -> Merged:
    async with world.pool.acquire() as conn:
        return await merge_batch(conn, world.policy, world.clock.now_at() + shift_ms)


async def test_a_receipt_moves_both_columns_and_tells_the_tenant(world: World) -> None:
    message = await world.sent()
    await world.receipt("delivered")
    done = await merge(world)
    row = await world.row(message)
    assert (row["status"], row["network_state"], row["version"], row["sweep_at"]) == ("delivered", "delivered", 2, None)
    assert row["final_at"] is not None and row["delivery"]["conflict"] is False
    assert await world.events(message) == [("message.delivered", 2)]
    assert (done.merged, done.unmatched, done.notices) == (1, 0, 1)
    assert await world.pool.fetchval("SELECT count(*) FROM receipts WHERE merged_at IS NULL") == 0


async def test_every_order_of_arrival_ends_the_same(world: World) -> None:
    """P8: all orders of four receipts, each merged before the next arrives."""
    told = [("enroute", 1), ("undeliverable", 5), ("delivered", 9), ("delivered", 7)]
    ends = set()
    for n, order in enumerate(itertools.permutations(told)):
        message, received_at = await world.sent(f"P{n}"), world.clock.now_at()
        for state, done_at in order:
            await world.receipt(state, f"P{n}", done_at=done_at, received_at=received_at)
            await merge(world)
        row = await world.row(message)
        ends.add((row["status"], row["delivery"]["state"], row["delivery"]["done_at"], row["delivery"]["conflict"]))
    assert ends == {("delivered", "delivered", 7, True)}


async def test_a_correction_of_a_final_status(world: World) -> None:
    message = await world.sent()
    await world.receipt("undeliverable", done_at=1)
    await merge(world)
    assert await world.status(message) == "undelivered"
    await world.receipt("delivered", done_at=2)
    await merge(world)
    row = await world.row(message)
    assert (row["status"], row["version"], row["delivery"]["conflict"]) == ("delivered", 3, True)
    assert await world.events(message) == [("message.undelivered", 2), ("message.corrected", 3)]
    events = await world.pool.fetch("SELECT type, cause FROM message_events WHERE id = $1", message)
    assert [tuple(event) for event in events] == [("corrected", "undelivered")]


async def test_a_repeated_final_changes_nothing(world: World) -> None:
    message = await world.sent()
    await world.receipt("delivered", done_at=1)
    await merge(world)
    await world.receipt("delivered", done_at=5)
    await world.receipt("enroute", done_at=9)
    await merge(world)
    assert (await world.row(message))["version"] == 2
    assert await world.events(message) == [("message.delivered", 2)]


async def test_a_receipt_before_the_answer_waits_and_joins(world: World) -> None:
    """I29, R01, R02: the carrier id is committed after the receipt."""
    message = await world.message()
    await world.attempt(message)
    receipt = await world.receipt("delivered")
    before_at = world.clock.now_at()
    assert (await merge(world)).unmatched == 1
    after_at = world.clock.now_at()
    look = await world.pool.fetchval("SELECT next_try_at FROM receipts WHERE id = $1", receipt)
    assert before_at + 200 <= look <= after_at + 200
    await world.carrier_id(message, "C1")
    await world.pool.execute("UPDATE messages SET status = 'sent' WHERE id = $1", message)
    await merge(world, shift_ms=200)
    assert await world.status(message) == "delivered"


async def test_a_receipt_of_a_part_while_the_others_are_still_out(world: World) -> None:
    """The part's receipt is bound, moves `delivery`, and is folded again once our side knows its end."""
    message = await world.message(segments=2)
    await world.attempt(message)
    await world.carrier_id(message, "A", part=1)
    await world.receipt("delivered", "A")
    await merge(world)
    row = await world.row(message)
    assert (row["status"], row["delivery"]["state"]) == ("queued", "enroute")
    await world.carrier_id(message, "B", part=2)
    await world.receipt("delivered", "B")
    await merge(world)
    assert await world.status(message) == "queued"
    await world.pool.execute("UPDATE messages SET status = 'sent' WHERE id = $1", message)
    await merge(world, shift_ms=400)
    assert await world.status(message) == "delivered"
    assert await world.pool.fetchval("SELECT count(*) FROM receipts WHERE merged_at IS NULL") == 0


async def test_one_bad_part_of_three_ends_the_message_once(world: World) -> None:
    """R11."""
    message = await world.sent("A", segments=3)
    await world.carrier_id(message, "B", part=2)
    await world.carrier_id(message, "C", part=3)
    for state, carrier_id in (("delivered", "A"), ("undeliverable", "C"), ("delivered", "B")):
        await world.receipt(state, carrier_id)
        await merge(world)
    row = await world.row(message)
    assert (row["status"], row["delivery"]["state"]) == ("undelivered", "undeliverable")
    assert await world.events(message) == [("message.undelivered", 2)]


async def test_the_same_id_at_two_carriers(world: World) -> None:
    """R08, I28."""
    ours, theirs = await world.sent("1001"), await world.message(status="sent", provider="carrier-b")
    await world.carrier_id(theirs, "1001", provider="carrier-b")
    await world.receipt("undeliverable", "1001", provider="carrier-b")
    await merge(world)
    assert (await world.status(ours), await world.status(theirs)) == ("sent", "undelivered")


async def test_an_id_used_again_for_another_handset(world: World) -> None:
    old = await world.sent("7", recipient="+447700900111")
    new = await world.sent("7", recipient="+447700900222")
    await world.receipt("delivered", "7", recipient="447700900111")
    await merge(world)
    assert (await world.status(old), await world.status(new)) == ("delivered", "sent")


async def test_doubt_and_unknown_are_corrected_and_our_own_ends_never(world: World) -> None:
    """I2, I3."""
    wanted = {
        ("failed", "outcome_unknown"): "delivered",
        ("failed", "parts_incomplete"): "failed",
        ("unknown", None): "delivered",
        ("expired", None): "expired",
        ("canceled", None): "canceled",
        ("rejected", None): "rejected",
    }
    messages = {}
    for n, (status, code) in enumerate(wanted):
        error = None if code is None else {"code": code}
        messages[status, code] = await world.sent(f"D{n}", status=status, error=error, final_at=1, sweep_at=None)
        await world.receipt("delivered", f"D{n}")
    await merge(world)
    assert {key: await world.status(message) for key, message in messages.items()} == wanted
    assert (await world.row(messages["expired", None]))["delivery"] is None
    assert await world.events(messages["failed", "outcome_unknown"]) == [("message.corrected", 2)]
    assert (await world.row(messages["failed", "outcome_unknown"]))["error"] is None


async def test_unmatched_receipts_back_off_and_stay(world: World) -> None:
    """R07: kept, looked at ever more seldom, never an error."""
    now_at = world.clock.now_at()
    receipt = await world.receipt("delivered", "NEVER", received_at=now_at - 3_600_000)
    await merge(world)
    look = await world.pool.fetchval("SELECT next_try_at FROM receipts WHERE id = $1", receipt)
    assert 3_000_000 < look - now_at <= 6 * 3_600_000


async def test_a_late_carrier_id_joins_a_receipt_that_was_put_off(world: World) -> None:
    message = await world.message(status="sent")
    receipt = await world.receipt("delivered", next_try_at=world.clock.now_at() + 3_600_000)
    other = await world.receipt("delivered", "OTHER", next_try_at=world.clock.now_at() + 3_600_000)
    await world.carrier_id(message, "C1")
    async with world.pool.acquire() as conn:
        assert await wake_waiting(conn, world.clock.now_at(), 0) == 1
    await merge(world)
    assert await world.status(message) == "delivered"
    assert receipt != other and await world.pool.fetchval("SELECT merged_at FROM receipts WHERE id = $1", other) is None


async def test_one_merger_at_a_time(world: World) -> None:
    await world.sent()
    await world.receipt("delivered")
    async with world.pool.acquire() as other, other.transaction():
        await other.execute("SELECT pg_advisory_xact_lock(hashtextextended('sluicegate.merge', 0))")
        assert (await merge(world)).busy
    assert (await merge(world)).merged == 1


async def test_receipts_that_say_nothing_are_merged_without_effect(world: World) -> None:
    message = await world.sent()
    await world.receipt(None)
    assert (await merge(world)).merged == 1
    assert (await world.row(message))["delivery"] is None


async def test_the_loop_is_woken_and_merges_a_backlog(world: World) -> None:
    """R16: a backlog is worked off in bounded batches."""
    messages = [await world.sent(f"L{n}") for n in range(40)]
    for n in range(40):
        await world.receipt("delivered", f"L{n}")
    rt = world.runtime()
    task = asyncio.create_task(Merger(rt).run())

    async def all_delivered() -> bool:
        return all([await world.status(message) == "delivered" for message in messages])

    await until(all_delivered)
    rt.stopping.set()
    await asyncio.wait_for(task, 60)
