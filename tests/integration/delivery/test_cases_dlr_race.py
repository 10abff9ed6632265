"""The cases of kind `dlr-race`, by id: real PDUs, read, kept and merged as egress and delivery do it.

R10, R16 and the early receipts on the wire stand in tests/integration/receipts.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from gateway.delivery.gauges import Gauges
from gateway.domain import outcomes
from gateway.domain.ids import day_of
from gateway.egress.inbox_writer import read_delivery
from gateway.ledger.expiries import expire_due
from gateway.ledger.inbox import ReceivedReceipt, keep
from gateway.ledger.merges import Merged, merge_batch
from gateway.ledger.outcomes import Bench, Closing, hurry_receipts, store_accepted, store_endings
from gateway.ledger.sweeps import cut_receipts_off
from gateway.policy.rules.snapshot import Dialect
from gateway.telemetry import REGISTRY
from smpp.protocol.codec import decode
from smpp.protocol.pdu import DeliverSm, SubmitSmResp
from smpp.receipts import normal_id
from tests.integration.delivery.world import World

CASES = {
    one["id"]: one["input"]
    for one in map(json.loads, Path(__file__).with_name("cases.jsonl").read_text(encoding="utf-8").splitlines())
}
DAY_MS = 86_400_000
DIALECT = Dialect()


def read(world: World, pdu: DeliverSm, dialect: Dialect = DIALECT, provider: str = "carrier-a") -> ReceivedReceipt:
    kept = read_delivery((provider, "a1"), pdu, dialect, world.clock.now_at())
    assert isinstance(kept, ReceivedReceipt)
    return kept


def pdu_of(text: str) -> DeliverSm:
    pdu = decode(bytes.fromhex(text))
    assert isinstance(pdu, DeliverSm)
    return pdu


def written(carrier_id: str, stat: str, dates: str = "", **fields: Any) -> DeliverSm:
    """A receipt in the form of appendix B; without dates unless given as `submit date:.. done date:..`."""
    return DeliverSm(
        source_addr="447700900123",
        destination_addr="60070",
        esm_class=0x04,
        short_message=f"id:{carrier_id} sub:001 dlvrd:001 {dates}stat:{stat} err:000 text:".encode(),
        **fields,
    )


async def deliver(world: World, *pdus: DeliverSm, dialect: Dialect = DIALECT, provider: str = "carrier-a") -> None:
    async with world.pool.acquire() as conn:
        await keep(conn, world.sealer, [read(world, pdu, dialect, provider) for pdu in pdus], ())


async def merge(world: World, shift_ms: int = 300) -> Merged:
    async with world.pool.acquire() as conn:
        return await merge_batch(conn, world.policy, world.clock.now_at() + shift_ms)


async def claimed(world: World, **values: Any) -> UUID:
    message = await world.message(sender="60070", **values)
    await world.attempt(message)
    return message


async def answered(world: World, message: UUID, *carrier_ids: str, provider: str = "carrier-a") -> None:
    """The answer as egress stores it, and its look into the inbox."""
    now_at = world.clock.now_at()
    total = len(carrier_ids)
    closing = Closing(
        day_of(message), message, 0, outcomes.ACCEPTED, provider, "+447700900123", total, now_at, written_at=now_at,
        accepted_parts=total,
        carrier_ids=[(part, normal_id(one, "as_is", "answer")) for part, one in enumerate(carrier_ids, 1)],
    )  # fmt: skip
    async with world.pool.acquire() as conn:
        bench = Bench(world.policy, b"p" * 32, now_at, lambda: 0.5)
        async with conn.transaction():
            await (store_accepted if total == 1 else store_endings)(conn, [closing], bench)
        await hurry_receipts(conn, [one for _, one in closing.carrier_ids], now_at)


async def sent(world: World, carrier_id: str, **values: Any) -> UUID:
    message = await claimed(world, **values)
    await answered(world, message, carrier_id)
    return message


async def told(world: World, message: UUID) -> list[str]:
    return [kind for kind, _ in await world.events(message)]


async def test_r01_a_receipt_before_its_own_answer(world: World) -> None:
    receipt, answer = CASES["R01"]["pdus_hex"]
    message = await claimed(world)
    await deliver(world, pdu_of(receipt))
    assert (await merge(world, 0)).unmatched == 1
    response = decode(_answer(answer))
    assert isinstance(response, SubmitSmResp)
    await answered(world, message, response.message_id)
    await merge(world, 0)
    assert await world.status(message) == "delivered"
    assert await told(world, message) == ["message.sent", "message.delivered"]


def _answer(text: str) -> bytes:
    """The case counts one octet too many in its command_length; what it means is plain."""
    octets = bytes.fromhex(text)
    return len(octets).to_bytes(4, "big") + octets[4:]


async def test_r02_a_receipt_before_the_commit_of_its_id(
    world: World, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    message = await claimed(world)
    await deliver(world, written("P1", "DELIVRD"))
    for _ in range(3):
        await merge(world, 0)
    await answered(world, message, "P1")
    await merge(world, 0)
    assert await world.status(message) == "delivered"
    assert "error" not in caplog.text + "".join(capsys.readouterr())


async def test_r04_words_on_the_way_after_the_final_one(world: World) -> None:
    message = await sent(world, "ORD1")
    for text in CASES["R04"]["pdus_hex"]:
        await deliver(world, pdu_of(text))
        await merge(world)
        assert await world.status(message) == "delivered"
    history = await world.pool.fetch("SELECT state FROM receipts WHERE message_id = $1 ORDER BY id", message)
    assert [row["state"] for row in history] == ["delivered", "enroute", "accepted"]
    assert (await world.row(message))["network_state"] == "delivered"
    assert await told(world, message) == ["message.sent", "message.delivered"]


async def test_r06_a_receipt_long_after_the_cut_off(world: World) -> None:
    message = await sent(world, "LATE1")
    world.clock.shift_ms = 3 * DAY_MS + 1_000
    async with world.pool.acquire() as conn:
        await cut_receipts_off(conn, world.policy, world.clock.now_at())
    row = await world.row(message)
    assert (row["status"], row["network_state"], row["delivery"]) == ("unknown", None, None)
    world.clock.shift_ms = 9 * DAY_MS
    await deliver(world, pdu_of(CASES["R06"]["pdu_hex"]))
    await merge(world)
    row = await world.row(message)
    assert (row["status"], row["network_state"]) == ("delivered", "delivered")
    assert (await told(world, message))[1:] == ["message.unknown", "message.corrected"]


async def test_r07_a_receipt_of_an_id_that_was_never_issued(world: World) -> None:
    """It is kept and shows in the gauges; nothing cures it and nobody is woken."""
    await deliver(world, pdu_of(CASES["R07"]["pdu_hex"]))
    assert (await merge(world)).unmatched == 1
    world.clock.shift_ms = 5 * DAY_MS
    assert (await merge(world)).unmatched == 1
    await Gauges(world.runtime()).lines()
    assert REGISTRY.get_sample_value("sluicegate_receipt_inbox_depth") == 1
    assert (REGISTRY.get_sample_value("sluicegate_receipt_inbox_oldest_seconds") or 0) > 4 * 86_400


async def test_r08_two_carriers_with_one_id(world: World) -> None:
    ours, theirs = await sent(world, "1001"), await claimed(world, provider="carrier-b")
    await answered(world, theirs, "1001", provider="carrier-b")
    await deliver(world, written("1001", "UNDELIV"), provider="carrier-b")
    await merge(world)
    assert (await world.status(ours), await world.status(theirs)) == ("sent", "undelivered")


async def test_r11_one_part_of_three_fails(world: World) -> None:
    message = await claimed(world, segments=3)
    await answered(world, message, "PA", "PB", "PC")
    for text in CASES["R11"]["pdus_hex"]:
        await deliver(world, pdu_of(text))
        await merge(world)
    row = await world.row(message)
    assert (row["status"], row["delivery"]["state"]) == ("undelivered", "undeliverable")
    assert (await told(world, message)).count("message.undelivered") == 1


async def test_r13_a_carrier_s_clock_in_another_zone(world: World) -> None:
    """The zone is the dialect's; a done date before our own submit rejects nothing."""
    message = await sent(world, "TZ1")
    dialect = Dialect(timezone="America/Sao_Paulo")
    await deliver(world, pdu_of(CASES["R13"]["pdu_hex"]), dialect=dialect)
    await merge(world)
    row = await world.row(message)
    assert (row["status"], row["delivery"]["done_at"]) == ("delivered", 1_704_081_720_000)  # 2024-01-01T04:02Z


async def test_r15_two_words_at_the_same_moment(world: World) -> None:
    """200 messages, both receipts kept by two writers while two mergers work: delivered every time."""
    messages = []
    for n in range(200):
        messages.append(await world.sent(f"cc{n}"))
    pairs = [(written(f"CC{n}", "ACCEPTD"), written(f"CC{n}", "DELIVRD")) for n in range(200)]

    async def pour(which: int) -> None:
        for at in range(0, 200, 20):
            await deliver(world, *(pair[which] for pair in pairs[at : at + 20]))

    async def work(turns: int) -> None:
        for _ in range(turns):
            await merge(world)
            await asyncio.sleep(0)

    await asyncio.gather(pour(0), pour(1), work(20), work(20))
    while (await merge(world, 5_000)).looked_at:
        pass
    assert {await world.status(message) for message in messages} == {"delivered"}
    assert {tuple(await told(world, message)) for message in messages} == {("message.delivered",)}


async def test_r18_the_answer_comes_after_the_deadline(world: World) -> None:
    """In flight at its deadline: never expired, and what the carrier says stands."""
    now_at = world.clock.now_at()
    message = await claimed(world, submit_by=now_at - 1, expires_at=now_at + 10, sweep_at=now_at - 1)
    world.clock.shift_ms = 300
    async with world.pool.acquire() as conn:
        await expire_due(conn, world.policy, world.clock.now_at())
    assert (await world.row(message))["status"] == "queued"
    await answered(world, message, "IF1")
    await deliver(world, written("IF1", "DELIVRD"))
    await merge(world)
    row = await world.row(message)
    assert (row["status"], row["expiry"]) == ("delivered", None)
    assert await told(world, message) == ["message.sent", "message.delivered"]


# -- kinds like them ---------------------------------------------------------------------------------------------------


async def test_delivered_after_expired_at_the_carrier(world: World) -> None:
    message = await sent(world, "E1")
    await deliver(world, written("E1", "EXPIRED", "submit date:2611301000 done date:2611301005 "))
    await merge(world)
    row = await world.row(message)
    assert (row["status"], row["delivery"]["state"], row["expiry"]) == ("undelivered", "expired", None)
    await deliver(world, written("E1", "DELIVRD", "submit date:2611301000 done date:2611301009 "))
    await merge(world)
    row = await world.row(message)
    assert (row["status"], row["delivery"]["conflict"]) == ("delivered", True)
    assert (await told(world, message))[-1] == "message.corrected"


async def test_unknown_at_the_carrier_then_delivered(world: World) -> None:
    message = await sent(world, "U1")
    await deliver(world, written("U1", "UNKNOWN"))
    await merge(world)
    row = await world.row(message)
    assert (row["status"], row["network_state"]) == ("sent", "unknown")
    await deliver(world, written("U1", "DELIVRD"))
    await merge(world)
    assert await told(world, message) == ["message.sent", "message.delivered"]


@pytest.mark.parametrize("status", ["expired", "canceled", "suppressed", "rejected"])
async def test_a_receipt_for_a_message_that_ended_with_us(world: World, status: str) -> None:
    """I3: even where its id is known, our own end is never rewritten and `delivery` stays null."""
    message = await sent(world, "Z1")
    await world.pool.execute(
        "UPDATE messages SET status = $2, final_at = 1, sweep_at = NULL WHERE id = $1", message, status
    )
    await deliver(world, written("Z1", "DELIVRD"))
    await merge(world)
    row = await world.row(message)
    assert (row["status"], row["network_state"], row["delivery"]) == (status, None, None)
    assert await world.pool.fetchval("SELECT count(*) FROM receipts WHERE merged_at IS NULL") == 0


async def test_an_intermediate_notification_is_never_final(world: World) -> None:
    """esm_class 0x20 (5.2.12), whatever word it bears; data_sm like deliver_sm."""
    message = await sent(world, "I1")
    notice = written("I1", "DELIVRD")
    notice.esm_class = 0x20
    await deliver(world, notice)
    await merge(world)
    row = await world.row(message)
    assert (row["status"], row["network_state"]) == ("sent", "enroute")


async def test_parts_out_of_order_around_the_answer(world: World) -> None:
    message = await claimed(world, segments=3)
    await deliver(world, written("PC", "DELIVRD"), written("PA", "DELIVRD"))
    await merge(world, 0)
    await answered(world, message, "PA", "PB", "PC")
    await merge(world, 0)
    assert await world.status(message) == "sent"
    await deliver(world, written("PB", "DELIVRD"))
    await merge(world)
    assert await world.status(message) == "delivered"


async def test_the_same_id_used_again_on_the_next_day(world: World) -> None:
    """Same handset, same id, receipts without dates: each goes to the message of its own day, an identical one too."""
    old = await sent(world, "77")
    await deliver(world, written("77", "DELIVRD"))
    await merge(world)
    world.clock.shift_ms = DAY_MS
    async with world.pool.acquire() as conn:
        await conn.execute("SELECT ensure_partitions(current_date, 3)")
    new = await claimed(world)
    await deliver(world, written("77", "DELIVRD"))  # before its own answer: yesterday's message must not take it
    assert (await merge(world)).unmatched == 1
    await answered(world, new, "77")
    await merge(world)
    assert (await world.status(old), await world.status(new)) == ("delivered", "delivered")
    owners = await world.pool.fetch("SELECT message_id FROM receipts ORDER BY id")
    assert [row["message_id"] for row in owners] == [old, new]


async def test_a_late_receipt_of_yesterday_s_message_is_not_today_s(world: World) -> None:
    world.clock.shift_ms = -DAY_MS
    async with world.pool.acquire() as conn:
        await conn.execute("SELECT ensure_partitions(current_date - 1, 3)")
    old = await sent(world, "78")
    day_before = world.clock.now_at()
    world.clock.shift_ms = 0
    new = await sent(world, "78")
    stamp = time.strftime("%y%m%d%H%M", time.gmtime(day_before / 1000))
    await deliver(world, written("78", "UNDELIV", f"submit date:{stamp} done date:{stamp} "))
    await merge(world)
    assert (await world.status(old), await world.status(new)) == ("undelivered", "sent")


async def test_a_repeat_is_one_row(world: World) -> None:
    message = await sent(world, "D1")
    await deliver(world, written("D1", "DELIVRD"), written("D1", "DELIVRD"))
    await deliver(world, written("D1", "DELIVRD"))
    await merge(world)
    assert await world.pool.fetchval("SELECT count(*) FROM receipts") == 1
    assert await told(world, message) == ["message.sent", "message.delivered"]


async def test_our_own_reference_where_the_carrier_s_ids_never_match(world: World) -> None:
    message = await sent(world, "A-1")
    receipt = written("B-9", "DELIVRD", tlvs=((0x1501, message.hex.encode() + b"\0"),))
    await deliver(world, receipt, dialect=Dialect(own_reference="tlv:0x1501"))
    await merge(world)
    assert await world.status(message) == "delivered"
