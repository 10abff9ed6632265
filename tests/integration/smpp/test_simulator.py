"""The simulated carrier: answers, receipts, faults on request, its journal."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from smpp.link import BindRefused, LinkSettings
from smpp.protocol.pdu import DeliverSm, QuerySm
from smpp.simulator import Phase, Simulator, SimulatorSettings, run
from tests.integration.smpp.peers import Esme, until

Start = Callable[..., Awaitable[Simulator]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    running: list[Simulator] = []

    async def begin(**settings: Any) -> Simulator:
        simulator = await Simulator(SimulatorSettings(**{"port": 0, "receipt_delay_ms": 0, **settings})).start()
        running.append(simulator)
        return simulator

    yield begin
    for simulator in running:
        await simulator.stop()


def texts(esme: Esme) -> list[str]:
    return [pdu.short_message.decode() for pdu in esme.requests if isinstance(pdu, DeliverSm)]


async def test_a_receipt_as_carriers_write_it(start: Start) -> None:
    simulator = await start()
    esme = Esme()
    await esme.bind(simulator.port)
    esme.submit("a", source_addr="ACME", source_addr_ton=5, tlvs=((0x0204, b"\0\7"),))
    await until(lambda: esme.requests and esme.answers)
    message_id = esme.answers[0][1].message_id
    (receipt,) = esme.requests
    assert isinstance(receipt, DeliverSm)
    assert re.fullmatch(
        rf"id:{message_id} sub:001 dlvrd:001 submit date:\d{{10}} done date:\d{{10}} stat:DELIVRD err:000 text:Hi",
        texts(esme)[0],
    )
    assert receipt.tlvs == ((0x001E, message_id.encode() + b"\0"), (0x0427, b"\x02"), (0x0204, b"\0\7"))
    assert receipt.esm_class == 4
    assert (receipt.source_addr, receipt.destination_addr, receipt.dest_addr_ton) == ("447700900123", "ACME", 5)


async def test_ids_are_unique_over_runs(start: Start) -> None:
    ids = set()
    for _ in range(2):
        simulator = await start(receipts=False)
        esme = Esme()
        await esme.bind(simulator.port)
        for token in range(10):
            esme.submit(token)
        await until(lambda esme=esme: len(esme.answers) == 10)
        ids |= {response.message_id for _, response, _ in esme.answers}
    assert len(ids) == 20


@pytest.mark.parametrize(
    ("wish", "fail", "receipts"), [(0, 0, 0), (1, 0, 1), (1, 1, 1), (2, 0, 0), (2, 1, 1), (3, 1, 0)]
)
async def test_receipts_only_as_asked(start: Start, wish: int, fail: float, receipts: int) -> None:
    simulator = await start(receipt_fail_ratio=fail)
    esme = Esme()
    await esme.bind(simulator.port)
    esme.submit("a", registered_delivery=wish)
    esme.submit("mark", registered_delivery=1)
    await until(lambda: len(esme.requests) == receipts + 1)
    stat = "UNDELIV err:001" if fail else "DELIVRD err:000"
    assert all(f"stat:{stat}" in text for text in texts(esme))


async def test_a_receipt_before_its_answer(start: Start) -> None:
    simulator = await start(receipt_before_answer=True)
    esme = Esme()
    await esme.bind(simulator.port)
    esme.submit("a")
    await until(lambda: esme.requests)
    assert esme.answers == []
    await until(lambda: esme.answers)
    assert texts(esme)[0].startswith(f"id:{esme.answers[0][1].message_id} ")


async def test_receipts_wait_for_an_esme_that_is_away(start: Start) -> None:
    simulator = await start(receipt_delay_ms=30)
    sender = Esme()
    link = await sender.bind(simulator.port, kind="transmitter")
    for token in range(5):
        sender.submit(token)
    await until(lambda: len(sender.answers) == 5)
    link.close()
    await until(lambda: simulator.receipts_waiting == 5)
    stranger = Esme()
    await stranger.bind(simulator.port, system_id="other")
    receiver = Esme()
    await receiver.bind(simulator.port, kind="receiver")
    await until(lambda: len(receiver.requests) == 5)
    assert stranger.requests == []
    await until(lambda: simulator.counters["receipts_taken"] == 5)


async def test_receipts_that_were_not_answered_come_again(start: Start) -> None:
    simulator = await start(receipt_retry_ms=10)
    esme = Esme(auto=False)
    link = await esme.bind(simulator.port)
    esme.submit("a")
    esme.submit("b")
    await until(lambda: len(esme.requests) == 2)
    link.answer(esme.requests[0], 0x64)
    await until(lambda: len(esme.requests) == 3)
    assert texts(esme)[2] == texts(esme)[0], "refused: again after a while"
    link.close()
    again = Esme()
    await again.bind(simulator.port)
    await until(lambda: len(again.requests) == 2)
    assert sorted(texts(again)) == sorted(texts(esme)[:2]), "cut: again on the next bind"


@pytest.mark.parametrize("leave", ["unbind", "close", "reset"])
async def test_receipts_in_flight_when_an_esme_leaves_come_again(start: Start, leave: str) -> None:
    """One was acknowledged, three are on the wire, two wait for room in the window: five come again, each once."""
    simulator = await start(receipt_window=4)
    esme = Esme(auto=False)
    link = await esme.bind(simulator.port)
    await esme.submit_all(f"44770090012{n}" for n in range(3))
    await until(lambda: len(esme.requests) == 3)
    link.answer(esme.requests[0])
    await esme.submit_all(f"44770090012{n}" for n in range(3, 6))
    await until(lambda: len(esme.answers) == 6 and len(esme.requests) == 5)
    if leave == "unbind":
        await link.unbind(1)
    else:
        link.close(reset=leave == "reset")
    await until(lambda: simulator.receipts_waiting == 5)
    again = Esme()
    await again.bind(simulator.port)
    await until(lambda: simulator.counters["receipts_taken"] == 6)
    assert len(set(texts(again))) == len(again.requests) == 5
    assert texts(esme)[0] not in texts(again)


async def test_receipt_window_is_kept(start: Start) -> None:
    simulator = await start(receipt_window=3)
    esme = Esme(auto=False)
    link = await esme.bind(simulator.port)
    for token in range(8):
        esme.submit(token)
    await until(lambda: len(esme.answers) == 8 and len(esme.requests) == 3)
    assert simulator.receipts_waiting == 5
    link.answer(esme.requests[0])
    await until(lambda: len(esme.requests) == 4)


async def test_answer_delay_throttle_errors_and_silence(start: Start) -> None:
    simulator = await start(receipts=False, answer_delay_ms=80)
    esme = Esme()
    await esme.bind(simulator.port, LinkSettings(100, 15, 0.5, 60))
    begun = time.monotonic()
    esme.submit("slow")
    await until(lambda: esme.answers)
    assert time.monotonic() - begun >= 0.07  # timers of uvloop count from the beginning of the loop's turn
    simulator.change(answer_delay_ms=0, throttle_per_s=10)
    for number in range(5):
        esme.submit(("fast", number))
    await until(lambda: len(esme.answers) == 6)
    assert sorted(esme.results().values()) == [0, 0, 0x58, 0x58, 0x58, 0x58]
    simulator.change(throttle_per_s=0, error_ratio=1, error_status=0x14)
    esme.submit("refused")
    await until(lambda: len(esme.answers) == 7)
    assert esme.results()["refused"] == 0x14
    simulator.change(error_ratio=0, drop_ratio=1)
    esme.submit("dropped")
    await until(lambda: esme.timeouts == ["dropped"])
    assert simulator.counters["dropped"] == 1


async def test_a_dropped_answer_may_still_be_delivered(start: Start) -> None:
    simulator = await start(drop_ratio=1, dropped_delivered=True)
    esme = Esme()
    await esme.bind(simulator.port)
    esme.submit("a")
    await until(lambda: esme.requests)
    assert esme.answers == []


async def test_binds_are_refused_as_told(start: Start) -> None:
    simulator = await start(password="pw", max_binds=1)
    first = Esme()
    await first.bind(simulator.port)
    with pytest.raises(BindRefused) as caught:
        await Esme().bind(simulator.port)
    assert caught.value.command_status == 0x0D
    link = await Esme().open(simulator.port)
    with pytest.raises(BindRefused) as caught:
        await link.bind("receiver", "acme", "wrong")
    assert caught.value.command_status == 0x0E


async def test_close_after_and_clients_that_die(start: Start) -> None:
    simulator = await start(close_after=2)
    esme = Esme()
    await esme.bind(simulator.port)
    for token in range(3):
        esme.submit(token)
    await until(lambda: esme.losses)
    simulator.change(close_after=0)
    for _ in range(20):
        dying = Esme()
        link = await dying.bind(simulator.port)
        dying.submit("a")
        link.close()
    living = Esme()
    await living.bind(simulator.port)
    living.submit("a")
    await until(lambda: living.answers)
    await until(lambda: simulator.bound == 1)


async def test_freeze_looks_like_a_hung_carrier(start: Start) -> None:
    simulator = await start()
    esme = Esme()
    await esme.bind(simulator.port, LinkSettings(10, 0.05, 0.1, 60))
    simulator.freeze()
    await until(lambda: esme.losses)
    assert esme.losses[0][1] == "enquire_link unanswered"


async def test_phases_change_the_behaviour(start: Start) -> None:
    simulator = await start(receipts=False, phases=(Phase(0.05, {"error_ratio": 1.0, "error_status": 8}),))
    await until(lambda: simulator.settings.error_ratio == 1)
    esme = Esme()
    await esme.bind(simulator.port)
    esme.submit("a")
    await until(lambda: esme.answers)
    assert esme.results() == {"a": 8}


async def test_messages_from_handsets_and_other_requests(start: Start) -> None:
    simulator = await start(keep_submits=1)
    simulator.inject("acme", DeliverSm(source_addr="447700900123", destination_addr="60070", short_message=b"STOP"))
    esme = Esme()
    link = await esme.bind(simulator.port)
    await until(lambda: texts(esme) == ["STOP"])
    link.submit(QuerySm(message_id="x"), "query")
    esme.submit("first")
    esme.submit("last", short_message=b"last")
    await until(lambda: len(esme.answers) == 3)
    assert esme.results()["query"] == 0x67
    ((_, kept),) = simulator.submits
    assert kept.short_message == b"last"


async def test_the_journal_tells_what_an_oracle_needs(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    simulator = await start(journal=str(path))
    esme = Esme()
    link = await esme.bind(simulator.port)
    esme.submit("a", source_addr="ACME", esm_class=0x40, short_message=b"\x05\x00\x03\x07\x02\x01" + b"\0ello")
    esme.submit("b", data_coding=8, short_message="Grüße".encode("utf-16-be"))
    await until(lambda: simulator.counters["receipts_taken"] == 2)
    await link.unbind(1.0)
    await until(lambda: not simulator.connections)
    await simulator.stop()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["event"] for line in lines if not line["event"].startswith("receipt")][:3] == [
        "bind",
        "submit",
        "submit",
    ]
    assert lines[-1]["event"] == "unbind"
    assert all(line["t_ns"] > 0 and line["at"] > 1_600_000_000_000 for line in lines)
    first, second = (line for line in lines if line["event"] == "submit")
    assert first["session"] == 1 and first["system_id"] == "acme" and first["status"] == 0
    assert (first["source"], first["destination"], first["esm_class"]) == ("ACME", "447700900123", 0x40)
    assert first["part"] == [7, 1, 2] and first["body_prefix"] == "@ello"
    assert len(first["body_sha"]) == 64 and first["sequence"] == 2
    assert second["body_prefix"] == "Grüße" and second["data_coding"] == 8
    receipts = {line["message_id"]: line["stat"] for line in lines if line["event"] == "receipt"}
    assert receipts == {first["message_id"]: "DELIVRD", second["message_id"]: "DELIVRD"}


async def test_three_thousand_a_second_with_receipts(start: Start) -> None:
    """Both sides share this process: where the carrier alone does 3,000/s the pair does 1,500 and more."""
    simulator = await start(receipt_delay_ms=20)
    esme = Esme()
    count = 5_000
    link = await esme.bind(simulator.port, LinkSettings(100, 15, 10, 60))
    begun = time.process_time()
    for token in range(count):
        while not (link.window_free and link.writable):
            await asyncio.sleep(0)
        esme.submit(token)
    await until(lambda: len(esme.answers) == count and simulator.counters["receipts_taken"] == count, 60)
    assert time.process_time() - begun < count / 1_500
    assert esme.timeouts == []


async def test_run_stops_with_its_event() -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(run(SimulatorSettings(port=0), stop))
    await asyncio.sleep(0)
    stop.set()
    await asyncio.wait_for(running, 5)
