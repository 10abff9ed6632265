"""docs/carrier-simulator.md, second half: receipts, dialects, actions, phases, commands, journal."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from smpp.protocol.pdu import AlertNotification, DeliverSm, Pdu, SubmitSm
from smpp.receipts import reader
from smpp.simulator import ScriptInvalid, execute
from smpp.simulator.journal import text_prefix
from smpp.text import Carriage, decode, segment, split_header
from tests.integration.smpp.page import example, of, stats, texts
from tests.integration.smpp.peers import Esme, until


async def receipt_of(title: str, **fields: Any) -> tuple[str, DeliverSm]:
    """The id of the answer and the one receipt under this heading."""
    async with example(title) as carrier:
        esme = Esme()
        await esme.bind(carrier.port)
        esme.submit("a", source_addr="60070", **fields)
        await until(lambda: esme.answers and esme.requests)
        (receipt,) = esme.requests
        assert isinstance(receipt, DeliverSm)
        return esme.answers[0][1].message_id, receipt


class Ordered(Esme):
    """Remembers what came first."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []

    def answered(self, token: Any, response: Any, late: bool) -> None:
        super().answered(token, response, late)
        self.order.append("answer")

    def requested(self, pdu: Pdu) -> None:
        super().requested(pdu)
        self.order.append("receipt")


async def test_receipt_first() -> None:
    async with example("The receipt is there before the answer") as carrier:
        esme = Ordered()
        await esme.bind(carrier.port)
        esme.submit("a")
        await until(lambda: len(esme.order) == 2)
        assert esme.order == ["receipt", "answer"]


async def test_a_bad_day() -> None:
    async with example("Receipts as a bad day brings them") as carrier:
        esme = Esme()
        await esme.bind(carrier.port)
        await esme.submit_all([f"4477009{n:05d}" for n in range(100)])
        await until(lambda: carrier.counters["receipts_taken"] >= 110)
        await asyncio.sleep(0.3)
        by_id = Counter(re.findall(r"id:(\w+) ", " ".join(texts(esme))))
        assert 80 < len(by_id) < 100, "some are lost"
        assert set(by_id.values()) == {1, 2} and 20 < list(by_id.values()).count(2) < 80
        assert set(stats(esme)) == {"DELIVRD", "UNDELIV", "EXPIRED", "REJECTD"}
        first = [re.search(r"id:(\w+)", text)[1] for text in texts(esme)]  # type: ignore[index]
        assert first != sorted(first), "out of order"


async def test_contradiction() -> None:
    async with example("Two finals that contradict each other") as carrier:
        esme = Esme()
        await esme.bind(carrier.port)
        esme.submit("a")
        await until(lambda: len(esme.requests) == 2)
        assert stats(esme) == ["DELIVRD", "UNDELIV"]


async def test_intermediate() -> None:
    async with example("Intermediate receipts, before and after") as carrier:
        esme = Esme()
        await esme.bind(carrier.port)
        esme.submit("a")
        await until(lambda: len(esme.requests) == 3)
        assert stats(esme) == ["ENROUTE", "ACCEPTD", "DELIVRD"]
        assert [pdu.esm_class for pdu in of(esme, DeliverSm)] == [0x20, 0x20, 0x04]  # type: ignore[attr-defined]
        carrier.change(intermediate_late=True)
        esme.submit("b")
        await until(lambda: len(esme.requests) == 6)
        assert stats(esme)[3:] == ["DELIVRD", "ENROUTE", "ACCEPTD"]


async def test_r16_backlog() -> None:
    async with example("A backlog of old receipts after the bind") as carrier:
        esme = Esme()
        await esme.bind(carrier.port)
        esme.submit("today")
        await until(lambda: len(esme.requests) == 501)
        message_id = esme.answers[0][1].message_id
        place = [message_id in text for text in texts(esme)].index(True)
        assert place > 100, "the old ones come first"
        old = reader.read(esme.requests[0])  # type: ignore[arg-type]
        assert old is not None
        assert carrier.receipts_waiting == 0


# -- dialects ----------------------------------------------------------------------------------------------------------


async def test_hex_and_decimal() -> None:
    message_id, receipt = await receipt_of("Hexadecimal in the answer, decimal in the receipt")
    assert re.fullmatch(r"[0-9a-f]{14}", message_id)
    assert receipt.short_message.startswith(f"id:{int(message_id, 16)} ".encode())


async def test_capitals() -> None:
    message_id, receipt = await receipt_of("Capital letters and no leading zeros")
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", message_id)
    assert receipt.short_message.startswith(f"id:{message_id.upper()} ".encode())
    assert receipt.tlvs == ()


async def test_words() -> None:
    _, receipt = await receipt_of("Words and errors of its own")
    assert b" stat:FAILED err:00B " in receipt.short_message
    assert receipt.tlv(0x0427) == b"\x05" and receipt.tlv(0x0423) == b"\x03\x00\x01"


async def test_local_seconds() -> None:
    _, receipt = await receipt_of("Dates with seconds in local time")
    match = re.search(rb"done date:(\d{12}) ", receipt.short_message)
    assert match is not None
    local = time.strftime("%y%m%d%H%M", time.gmtime(time.time() + 5.5 * 3600))
    assert match[1].decode()[:8] == local[:8]


async def test_another_order() -> None:
    message_id, receipt = await receipt_of("No dates, no counts, another order")
    assert receipt.short_message == f"stat:DELIVRD id:{message_id} err:000".encode()
    assert receipt.tlvs == ()


async def test_tlvs_alone() -> None:
    message_id, receipt = await receipt_of("Nothing but TLVs", tlvs=((0x0204, b"\0\7"),))
    assert receipt.short_message == b""
    assert receipt.tlvs == (
        (0x001E, message_id.encode() + b"\0"),
        (0x0427, b"\x02"),
        (0x0204, b"\0\7"),
        (0x1403, b"192.0.2.1\0"),
    )


async def test_ucs2_nul_stray() -> None:
    message_id, receipt = await receipt_of("UCS-2, a NUL, a stray octet")
    assert receipt.data_coding == 8
    assert receipt.short_message.endswith(b"\0")
    assert receipt.short_message[:-1].decode("utf-16-be").startswith(f"id:{message_id} ")
    assert len(receipt.tlvs) == 2, "the stray octet is no parameter"


# -- what the carrier does by itself -----------------------------------------------------------------------------------


async def test_inbound() -> None:
    async with example("Messages from handsets") as carrier:
        esme = Esme()
        await esme.bind(carrier.port)
        await until(lambda: len(esme.requests) == 5)
        messages = of(esme, DeliverSm)
        assert [decode(pdu.short_message, pdu.data_coding) for pdu in messages[:2]] == ["STOP", "Привет 😀"]  # type: ignore[attr-defined]
        last = messages[-1]
        assert isinstance(last, DeliverSm)
        assert (last.short_message, last.data_coding, last.source_addr) == (b"\x01\xff", 4, "447700900125")
        await until(lambda: carrier.counters["inbound_taken"] == 5)


async def test_inbound_at_a_rate_and_numbered() -> None:
    async with example("Commands") as carrier:
        esme = Esme()
        await esme.bind(carrier.port)
        begun_mono = time.monotonic()
        execute(
            carrier,
            '{do: inbound, source: "4477{n}", destination: "60070", text: "number {n}", count: 30, per_s: 100}',
        )
        await until(lambda: len(esme.requests) == 30)
        assert time.monotonic() - begun_mono > 0.25
        assert texts(esme)[-1] == "number 30"
        assert esme.requests[4].source_addr == "44775"  # type: ignore[attr-defined]


async def test_long_inbound() -> None:
    async with example("A long one, last part first") as carrier:
        esme = Esme()
        await esme.bind(carrier.port)
        await until(lambda: len(esme.requests) == 2)
        parts = [split_header(pdu.short_message, pdu.esm_class) for pdu in of(esme, DeliverSm)]  # type: ignore[attr-defined]
        assert [part.concatenation.number for part in parts if part.concatenation] == [2, 1]
        assert decode(parts[1].body, 0).startswith("A text that is too long")
        execute(
            carrier,
            json.dumps({"do": "inbound", "source": "4", "destination": "6", "text": "x" * 400, "without_part": 2}),
        )
        await until(lambda: len(esme.requests) == 4)
        numbers = [split_header(pdu.short_message, pdu.esm_class) for pdu in of(esme, DeliverSm)[2:]]  # type: ignore[attr-defined]
        assert [part.concatenation.number for part in numbers if part.concatenation] == [1, 3]


async def test_alerts_probes_cut() -> None:
    async with example("Alerts, probes, a cut") as carrier:
        esme = Esme()
        await esme.bind(carrier.port)
        await until(lambda: of(esme, AlertNotification))
        await asyncio.sleep(0.2)
        assert esme.losses == [], "fifty probes at once are answered"
        await until(lambda: esme.losses)
        assert esme.losses[0][1].startswith("connection")


async def test_phases() -> None:
    async with example("Good, bad, good") as carrier:
        esme = Esme()
        await esme.bind(carrier.port)
        seen = []
        for ratio in (0, 1, 0):
            await until(lambda ratio=ratio: carrier.settings.error_ratio == ratio)
            esme.submit(len(seen))
            await until(lambda: len(esme.answers) == len(seen) + 1)
            seen.append(esme.answers[-1][1].command_status)
        assert seen == [0, 8, 0]


async def test_commands() -> None:
    async with example("Commands") as carrier:
        esme = Esme()
        await esme.bind(carrier.port)
        told = execute(carrier, "{set: {error_ratio: 1, error_status: 0x14}}")
        assert told["bound"] == 1 and told["counters"]["binds"] == 1
        esme.submit("a")
        await until(lambda: esme.answers)
        assert esme.results() == {"a": 0x14}
        assert execute(carrier, '{"tell": true}')["counters"]["errors"] == 1
        for line, fault in [
            ("cut", "a command is a mapping"),
            ("{do: cutt}", "do: must be one of inbound"),
            ("{set: {port: 5}}", "port: cannot change while the simulator runs"),
            ("{set: 5}", "set: must be a mapping"),
            ("{do: inbound, text: a}", "source: is missing"),
            ("{", "not YAML"),
        ]:
            with pytest.raises(ScriptInvalid, match=re.escape(fault)):
                execute(carrier, line)
        execute(carrier, "{do: cut, reset: true, system_id: nobody}")
        assert esme.link is not None and esme.link.bound
        execute(carrier, "{do: cut, reset: true, system_id: acme}")
        await until(lambda: esme.losses)


async def test_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with example("A journal") as carrier:
        esme = Esme()
        link = await esme.bind(carrier.port)
        esme.submit("a")
        await until(lambda: carrier.counters["receipts_taken"] == 1)
        execute(carrier, '{do: inbound, source: "44", destination: "60070", text: STOP}')
        await until(lambda: carrier.counters["inbound_taken"] == 1)
        await link.unbind(1.0)
        await until(lambda: not carrier.connections)
    lines = [json.loads(line) for line in Path("carrier.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == [
        "bind", "submit", "receipt", "receipt_taken", "action", "inbound", "inbound_taken", "unbind",
    ]  # fmt: skip
    page = (Path(__file__).resolve().parents[3] / "docs" / "carrier-simulator.md").read_text(encoding="utf-8")
    explained = page[page.index("## The journal") :]
    for line in lines:
        for member in line:
            assert f"`{member}`" in explained, member


def test_the_journal_reads_national_tables() -> None:
    (part,) = segment("İş", "auto", Carriage(national_shift="turkish"), reference=1)
    pdu = SubmitSm(short_message=part.short_message, data_coding=part.data_coding, esm_class=part.esm_class)
    assert text_prefix(pdu, 40) == "İş"
    wide = SubmitSm(tlvs=((0x0424, "Привет".encode("utf-16-be")),), data_coding=8)
    assert text_prefix(wide, 3) == "При"
