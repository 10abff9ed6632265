"""The bench's carrier, client and sink, in C where there is a compiler and in Python: they count and tell the same."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtests.peers.processes import Processes
from loadtests.peers.tools import Tools, await_count, count_anew, loaded, told
from loadtests.world import free_port
from smpp.protocol import codec
from smpp.protocol.framer import Framer
from smpp.protocol.pdu import BindTransceiver, DeliverSm, DeliverSmResp, Pdu, SubmitSm, SubmitSmResp

KINDS = ["Python", *(["C"] if shutil.which("gcc") else [])]


@pytest.fixture
def processes() -> Iterator[Processes]:
    with tempfile.TemporaryDirectory(prefix="sluicegate-tools-") as scratch:
        found = Processes(Path(scratch))
        yield found
        found.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_the_client_sends_what_is_asked_and_the_sink_counts_it(kind: str, processes: Processes) -> None:
    tools, port = Tools(python=kind == "Python"), free_port()
    processes.start("sink", tools.words("sink", "--port", str(port), "--text", "taken"), port=port)
    single = ["--path", "/x?to={to}&text={text}", "--count", "40", "--connections", "3", "--accepted", "taken"]
    batch = ["--body", "[{items}]", "--item", '{"n":{seq}}', "--count", "40", "--batch", "10", "--connections", "2"]
    one = loaded(tools.load(["--port", str(port), *single]))
    other = loaded(tools.load(["--port", str(port), *batch]))
    refused = loaded(tools.load(["--port", str(port), "--path", "/", "--count", "5", "--accepted", "nothing of it"]))
    assert (one["accepted"], one["answers"], one["http_ms"]["count"]) == (40, {"200": 40}, 40)
    assert (other["asked"], other["answers"]) == (40, {"200": 4})
    assert (refused["accepted"], refused["asked"], refused["http_ms"]) == (0, 5, None)
    wanted = 40 + 4 + 5
    assert await_count(lambda: told(processes, "sink").get("callbacks", 0), wanted, idle_s=30, limit_s=30) == wanted


@pytest.mark.parametrize("kind", KINDS)
async def test_the_carrier_answers_late_sends_receipts_and_tells_how_long_it_took(
    kind: str, processes: Processes
) -> None:
    tools, port = Tools(python=kind == "Python"), free_port()
    options = ("--port", str(port), "--answer-ms", "50", "--receipt-ms", "100")
    await asyncio.to_thread(processes.start, "carrier", tools.words("carrier", *options), port=port)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    wire = _Wire(reader, writer)
    wire.send(BindTransceiver(system_id="load", password="secret", interface_version=0x34, sequence_number=1))
    assert (await wire.next()).command_status == 0
    wire.send(_submit(2, "otp"))
    assert isinstance(await wire.next(), SubmitSmResp)
    assert isinstance(await wire.next(), DeliverSm)
    await asyncio.to_thread(count_anew, processes, "carrier")
    wire.send(_submit(3, "otp"), _submit(4, "marketing"), _submit(5, "marketing"))
    seen: list[Pdu] = [await wire.next() for _ in range(6)]
    answers = [pdu for pdu in seen if isinstance(pdu, SubmitSmResp)]
    receipts = [pdu for pdu in seen if isinstance(pdu, DeliverSm)]
    assert [pdu.sequence_number for pdu in answers] == [3, 4, 5]
    ids = {pdu.message_id for pdu in answers}
    assert len(ids) == 3 and {(pdu.tlv(0x1E) or b"").rstrip(b"\0").decode() for pdu in receipts} == ids
    assert all(pdu.esm_class == 4 and b"stat:DELIVRD" in pdu.short_message for pdu in receipts)
    wire.send(*(DeliverSmResp(sequence_number=pdu.sequence_number) for pdu in receipts))
    taken = await asyncio.to_thread(
        await_count, lambda: told(processes, "carrier").get("receipts_taken", 0), 3, idle_s=30, limit_s=30
    )
    writer.close()
    await asyncio.to_thread(processes.stop, "carrier")
    last = told(processes, "carrier")
    assert taken == 3
    assert (last["submits"], last["answered"], last["window_max"]) == (3, 3, 3)
    assert {name: ms["count"] for name, ms in last["wait_ms"].items()} == {"otp": 1, "marketing": 2}


class _Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer, self._framer = reader, writer, Framer()
        self._held: list[Pdu] = []

    def send(self, *pdus: Pdu) -> None:
        self._writer.write(b"".join(map(codec.encode, pdus)))

    async def next(self) -> Pdu:
        while not self._held:
            octets = await asyncio.wait_for(self._reader.read(65_536), 30)
            assert octets, "the carrier closed the link"
            self._held += [codec.decode(raw) for raw in self._framer.feed(octets)]
        return self._held.pop(0)


def _submit(sequence: int, name: str) -> SubmitSm:
    text = f"b{sequence}.{name}.{time.time_ns() // 1000} of the bench".encode()
    return SubmitSm(
        source_addr="60070",
        destination_addr="447700900123",
        registered_delivery=1,
        short_message=text,
        sequence_number=sequence,
    )
