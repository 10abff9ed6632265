"""Messages from handsets: joined, handed to the owner of the number, stop and start words heeded."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

import pytest

from gateway.inbound.joiner import Joiner
from gateway.inbound.reading import handset_number
from gateway.ledger import callback_lines, consents, inbound
from gateway.ledger.callback_lines import Endpoint
from gateway.ledger.inbox import ReceivedPart, keep
from gateway.policy.rules.parse import read_policy
from gateway.sealing import Sealer
from smpp.protocol.codec import encode
from smpp.protocol.pdu import DataSm, DeliverSm
from tests.integration.delivery.world import SECRET, World, until

POLICY = """
tenants:
  acme: {{classes: [transactional, marketing], inbound_numbers: ["+393330000001", "60070"],
          callbacks: {{url: "http://127.0.0.1:9/hooks", secrets: ["{secret}"], allow_private: true}}}}
  beta: {{classes: [transactional], inbound_numbers: {beta}}}
providers:
  carrier-a:
    sessions: {{a1: {{host: 127.0.0.1, port: 2775, system_id: a, password: b, bind: transceiver}}}}
routes:
  main: {{match: {{}}, provider: carrier-a}}
"""
HANDSET, NUMBER = "447700900123", "393330000001"
SEQUENCES = itertools.count(1)


@pytest.fixture
def inbox(world: World) -> World:
    world.policy = policy()
    return world


def policy(beta: str = '["60071"]') -> Any:
    return read_policy(POLICY.format(secret=SECRET, beta=beta), 1)


def deliver(text: str | bytes, coding: int = 0, **values: Any) -> DeliverSm:
    octets = text.encode("utf-16-be" if coding == 8 else "ascii") if isinstance(text, str) else text
    fields = {"source_addr": HANDSET, "source_addr_ton": 1, "destination_addr": NUMBER, "data_coding": coding}
    return DeliverSm(short_message=octets, sequence_number=next(SEQUENCES), **(fields | values))


def udh8(reference: int, total: int, number: int) -> bytes:
    return bytes((5, 0, 3, reference, total, number))


def udh16(reference: int, total: int, number: int) -> bytes:
    return bytes((6, 8, 4)) + reference.to_bytes(2, "big") + bytes((total, number))


async def arrive(world: World, *pdus: DeliverSm | DataSm, received_at: int | None = None) -> None:
    at = world.clock.now_at() if received_at is None else received_at
    parts = [
        ReceivedPart(
            "carrier-a", "a1", pdu.sequence_number, at, pdu.source_addr, pdu.destination_addr,
            encode(pdu)[16:], isinstance(pdu, DataSm),
        )
        for pdu in pdus
    ]  # fmt: skip
    async with world.pool.acquire() as conn:
        await keep(conn, world.sealer, [], parts)


async def join(world: World) -> None:
    joiner = Joiner(world.runtime())
    async with world.pool.acquire() as conn:
        while await joiner.work(conn) == 0:
            pass


async def texts(world: World, tenant: str | None = "acme") -> list[tuple[str, str, str | None, int, int]]:
    rows = await world.pool.fetch(
        "SELECT * FROM inbound WHERE tenant_id IS NOT DISTINCT FROM $1 ORDER BY received_at, id",
        None if tenant is None else world.tenants[tenant],
    )
    shown = [inbound.text_of(row, world.sealer) for row in rows]
    return [
        (row["sender"], row["recipient"], text, row["parts"], row["total"])
        for row, text in zip(rows, shown, strict=True)
    ]


async def test_a_text_in_any_alphabet_reaches_its_tenant(inbox: World) -> None:
    await arrive(
        inbox,
        deliver(b"price 5\x1be"),
        deliver("Привет 😀", 8),
        deliver("caf\u00e9".encode("latin-1"), 3),
        deliver(b"", tlvs=((0x0424, b"long " * 60),)),
        deliver(b"for beta", destination_addr="60071"),
    )
    data = DataSm(
        source_addr=HANDSET, source_addr_ton=1, destination_addr="60070", data_coding=8, sequence_number=99,
        tlvs=((0x0424, "données".encode("utf-16-be")),),
    )  # fmt: skip
    await arrive(inbox, data)
    await join(inbox)
    mine = await texts(inbox)
    assert {text for _, _, text, _, _ in mine} == {"price 5€", "Привет 😀", "café", "long " * 60, "données"}
    assert {sender for sender, *_ in mine} == {"+447700900123"}
    assert {to for _, to, *_ in mine} == {"+393330000001", "60070"}
    assert [text for _, _, text, _, _ in await texts(inbox, "beta")] == ["for beta"]


@pytest.mark.parametrize("kind", ["udh8", "udh16", "sar", "payload"])
async def test_long_messages_are_joined_whatever_the_order(inbox: World, kind: str) -> None:
    pieces = ["erste ", "zweite ", "dritte"]

    def one(number: int) -> DeliverSm | DataSm:
        octets = pieces[number - 1].encode("ascii")
        if kind == "udh8":
            return deliver(udh8(7, 3, number) + octets, esm_class=0x40)
        if kind == "udh16":
            return deliver(udh16(700, 3, number) + octets, esm_class=0x40)
        sar = ((0x020C, b"\x02\xbc"), (0x020E, b"\x03"), (0x020F, bytes((number,))))
        if kind == "sar":
            return deliver(octets, tlvs=sar)
        return DataSm(
            source_addr=HANDSET, source_addr_ton=1, destination_addr=NUMBER, sequence_number=next(SEQUENCES),
            tlvs=(*sar, (0x0424, octets)),
        )  # fmt: skip

    for n, order in enumerate(itertools.permutations((1, 2, 3))):
        for number in order:
            await arrive(inbox, one(number))
            await join(inbox)
        assert len(await texts(inbox)) == n + 1
        # The next round is another message: nothing of this one is remembered any more.
        await inbox.pool.execute("DELETE FROM inbound_parts")
    assert {(text, parts, total) for _, _, text, parts, total in await texts(inbox)} == {("erste zweite dritte", 3, 3)}


async def test_parts_are_kept_apart_by_sender_recipient_reference_and_total(inbox: World) -> None:
    head = deliver(udh8(1, 2, 1) + b"one ", esm_class=0x40)
    await arrive(
        inbox,
        head,
        deliver(udh8(1, 2, 2) + b"other", esm_class=0x40, source_addr="447700900999"),
        deliver(udh8(1, 2, 2) + b"other", esm_class=0x40, destination_addr="60070"),
        deliver(udh8(2, 2, 2) + b"other", esm_class=0x40),
        deliver(udh8(1, 3, 2) + b"other", esm_class=0x40),
    )
    await join(inbox)
    assert await texts(inbox) == []
    await arrive(inbox, deliver(udh8(1, 2, 2) + b"two", esm_class=0x40))
    await join(inbox)
    assert [text for _, _, text, _, _ in await texts(inbox)] == ["one two"]


async def test_doubled_parts_count_once_before_and_after_the_message_is_whole(inbox: World) -> None:
    first, second = udh8(9, 2, 1) + b"a", udh8(9, 2, 2) + b"b"
    for octets in (first, first, second, second, first):
        await arrive(inbox, deliver(octets, esm_class=0x40))
        await join(inbox)
    inbox.clock.shift_ms = 660_000
    await join(inbox)
    assert [(text, parts) for _, _, text, parts, _ in await texts(inbox)] == [("ab", 2)]
    assert await inbox.pool.fetchval("SELECT count(*) FROM inbound_parts") == 0


async def test_an_incomplete_message_is_handed_over_with_a_mark_after_join_timeout(inbox: World) -> None:
    await arrive(
        inbox, deliver(udh8(3, 3, 3) + b"end", esm_class=0x40), deliver(udh8(3, 3, 1) + b"begin ", esm_class=0x40)
    )
    await join(inbox)
    inbox.clock.shift_ms = 599_000
    await join(inbox)
    assert await texts(inbox) == []
    inbox.clock.shift_ms = 600_001
    await join(inbox)
    assert [(text, parts, total) for _, _, text, parts, total in await texts(inbox)] == [("begin end", 2, 3)]
    shown = inbound.shown(await inbox.pool.fetchrow("SELECT * FROM inbound"), "x")
    assert (shown["parts"], shown["parts_received"], shown["incomplete"]) == (3, 2, True)


async def test_what_cannot_be_read_is_an_empty_text_and_stops_nothing(inbox: World) -> None:
    broken = ReceivedPart("carrier-a", "a1", 1, 1, HANDSET, NUMBER, b"\x01\x02", False)
    async with inbox.pool.acquire() as conn:
        await keep(conn, inbox.sealer, [], [broken])
    await arrive(inbox, deliver("after"))
    await join(inbox)
    assert sorted(text or "" for _, _, text, _, _ in await texts(inbox)) == ["", "after"]


async def test_a_part_whose_key_lacks_waits_and_stops_nothing(inbox: World) -> None:
    ours = inbox.sealer
    inbox.sealer = Sealer({1: bytes(range(32)), 7: b"7" * 32}, 7)
    first, second = (deliver(udh8(4, 2, number) + b"part ", esm_class=0x40) for number in (1, 2))
    await arrive(inbox, deliver("sealed"), first)
    inbox.sealer = ours
    await arrive(inbox, deliver("open"), second)
    inbox.clock.shift_ms = 700_000
    await join(inbox)
    assert sorted((text or "", parts) for _, _, text, parts, _ in await texts(inbox)) == [("open", 1), ("part ", 1)]
    inbox.sealer = Sealer({1: bytes(range(32)), 7: b"7" * 32}, 7)
    async with inbox.pool.acquire() as conn:
        await inbound.unpark(conn)
    await join(inbox)
    assert "sealed" in {text for _, _, text, _, _ in await texts(inbox)}


async def test_a_number_without_owner_is_kept_and_adopted_once_a_policy_names_it(inbox: World) -> None:
    await arrive(inbox, deliver("for whom?", destination_addr="60099"), deliver("STOP", destination_addr="60099"))
    await join(inbox)
    assert {text for _, _, text, _, _ in await texts(inbox, None)} == {"for whom?", "STOP"}
    async with inbox.pool.acquire() as conn:
        (number,) = await inbound.unowned_numbers(conn, 10)
    assert (number["recipient"], number["messages"]) == ("60099", 2)
    inbox.policy = policy('["60071", "60099"]')
    await join(inbox)
    assert {text for _, _, text, _, _ in await texts(inbox, "beta")} == {"for whom?", "STOP"}
    assert await texts(inbox, None) == []
    assert await listed(inbox, "opt_outs") == [("beta", "+447700900123", "60099")]


async def listed(world: World, table: str) -> list[tuple[str, str, str]]:
    rows = await world.pool.fetch(
        f"SELECT t.name, o.recipient, o.sender FROM {table} o JOIN tenants t ON t.id = o.tenant_id ORDER BY 1, 2, 3"
    )
    return [tuple(row) for row in rows]


async def test_stop_and_start_work_per_tenant_and_number(inbox: World) -> None:
    await arrive(inbox, deliver(" stop! "), deliver("please stop", source_addr="447700900999"))
    await join(inbox)
    assert await listed(inbox, "opt_outs") == [("acme", "+447700900123", "+393330000001")]
    await arrive(inbox, deliver("STOP"), deliver("STOP", destination_addr="60071"))
    await join(inbox)
    assert len(await listed(inbox, "opt_outs")) == 2
    told = await inbox.pool.fetch("SELECT type FROM callbacks ORDER BY id")
    assert [row[0] for row in told].count("optout.created") == 1  # the second stop is no news; beta has no address
    await arrive(inbox, deliver("Start"))
    await join(inbox)
    assert await listed(inbox, "opt_outs") == [("beta", "+447700900123", "60071")]
    assert await listed(inbox, "opt_ins") == [("acme", "+447700900123", "+393330000001")]
    await arrive(inbox, deliver("stop"))
    await join(inbox)
    assert await listed(inbox, "opt_ins") == []


async def test_start_leaves_what_the_tenant_listed_for_all_senders(inbox: World) -> None:
    async with inbox.pool.acquire() as conn:
        await consents.add(conn, "opt_outs", inbox.tenants["acme"], [("+447700900123", "")], ("api", 1))
    await arrive(inbox, deliver("START"))
    await join(inbox)
    assert await listed(inbox, "opt_outs") == [("acme", "+447700900123", "")]


async def test_callbacks_hold_no_text_in_the_ledger_and_bring_it_when_sent(inbox: World) -> None:
    await arrive(inbox, deliver("a secret word"))
    await join(inbox)
    row = await inbox.pool.fetchrow("SELECT * FROM callbacks")
    assert row["type"] == "message.received" and b"secret" not in row["body"]
    async with inbox.pool.acquire() as conn:
        endpoint = Endpoint(row["endpoint_id"], row["tenant_id"], "acme", "http://127.0.0.1:9/hooks")
        asked = [(endpoint, [])]
        ((line,),) = await callback_lines.pages(conn, inbox.sealer, asked, now_at=inbox.clock.now_at(), limit=10)
    assert b'"text":"a secret word"' in line.body


async def test_two_joiners_and_a_shuffled_storm_lose_and_double_nothing(inbox: World) -> None:
    chance = random.Random(5)
    pdus = []
    for n in range(60):
        total = 1 + n % 3
        for number in range(1, total + 1):
            octets = udh8(n, total, number) + f"{n}:{number} ".encode()
            pdus += [deliver(octets, esm_class=0x40, source_addr=f"4477009{n:05d}")]
    chance.shuffle(pdus)
    rts = [inbox.runtime(), inbox.runtime()]
    tasks = [asyncio.create_task(Joiner(rt).run()) for rt in rts]
    for start in range(0, len(pdus), 10):
        await arrive(inbox, *pdus[start : start + 10])

    async def all_there() -> bool:
        return bool(await inbox.pool.fetchval("SELECT count(*) FROM inbound") == 60)

    await until(all_there)
    for rt in rts:
        rt.stopping.set()
    await asyncio.gather(*tasks)
    found = {text for _, _, text, _, _ in await texts(inbox)}
    assert found == {"".join(f"{n}:{k} " for k in range(1, 2 + n % 3)) for n in range(60)}


@pytest.mark.parametrize(
    ("written", "ton", "own", "number"),
    [
        ("447700900123", 1, "+393330000001", "+447700900123"),
        ("+447700900123", 0, "60070", "+447700900123"),
        ("00447700900123", 0, "60070", "+447700900123"),
        ("3331234567", 2, "+393330000001", "+393331234567"),
        ("07700900123", 2, "+447700900999", "+447700900123"),
        ("07700900123", 0, "+447700900999", "+447700900123"),
        ("5215512345678", 1, "60070", "+525512345678"),
        ("60123", 0, "60070", "60123"),
        ("VODAFONE", 5, "+393330000001", "VODAFONE"),
    ],
)
def test_a_handsets_number_is_written_as_messages_to_it_are_addressed(
    written: str, ton: int, own: str, number: str
) -> None:
    assert handset_number(written, ton, own) == number
