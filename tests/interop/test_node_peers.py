"""npm `smpp` as ESME against the simulator, and as SMSC against our link; both in the clear and over TLS."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from smpp.link import connect
from smpp.simulator import Simulator, SimulatorSettings
from smpp.text import Carriage, decode, segment
from tests.integration.smpp.authority import Authority
from tests.integration.smpp.peers import SETTINGS, Esme, until
from tests.interop.node import Node

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
async def test_node_as_esme(encrypted: bool, tmp_path: Path) -> None:
    settings = SimulatorSettings(port=0, receipt_delay_ms=50, keep_submits=10, enquire_link_s=0.3)
    words: tuple[str, ...] = ()
    if encrypted:
        authority = Authority(tmp_path)
        pem, key = authority.certificate("server")
        settings = SimulatorSettings(
            port=0,
            receipt_delay_ms=400,
            keep_submits=10,
            enquire_link_s=0.3,
            tls_certificate=str(pem),
            tls_key=str(key),
        )
        words = (str(authority.pem),)
    carrier = await Simulator(settings).start()
    node = Node("client.js", str(carrier.port), *words)
    await asyncio.to_thread(node.process.wait, 30)
    await asyncio.to_thread(node.stop)
    assert node.told("error") == []
    assert node.told("bind_transceiver_resp")[0] | {"event": ""} == {
        "event": "", "status": 0, "system_id": "simulator", "version": 0x34,
    }  # fmt: skip
    answers = {one["name"]: one for one in node.told("submit_sm_resp")}
    assert {name: one["status"] for name, one in answers.items()} == {"plain": 0, "ucs2": 0, "part": 0, "payload": 0}
    receipts = {one["id"]: one for one in node.told("deliver_sm")}
    assert set(receipts) == {one["id"] for one in answers.values()}
    assert all(
        one["state"] == 2 and one["esm_class"] == 4 and "stat:DELIVRD" in one["text"] for one in receipts.values()
    )
    assert node.told("query_sm_resp")[0]["state"] == 2
    assert node.told("cancel_sm_resp")[0]["status"] == 0x11
    assert node.told("enquire_link_resp")[0]["status"] == 0
    assert node.told("unbind_resp")[0]["status"] == 0
    taken = [pdu for _, pdu in carrier.submits]
    # npm smpp says data_coding 1 for text in the GSM alphabet; carriers know it so.
    assert taken[0].data_coding == 1 and decode(taken[0].short_message, 0) == "Ciao €5"
    assert taken[1].short_message.decode("utf-16-be") == "Привет 😀"
    assert taken[2].esm_class & 0x40 and taken[2].short_message[:6] == b"\x05\0\x03\x09\x02\x01"
    assert len(taken[3].tlv(0x0424) or b"") == 1000 and taken[3].tlv(0x0204) == b"\0\x4d"
    await carrier.stop()


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
async def test_node_as_smsc(encrypted: bool, tmp_path: Path) -> None:
    words: tuple[str, ...] = ()
    tls = None
    if encrypted:
        authority = Authority(tmp_path)
        words = tuple(map(str, authority.certificate("server")))
        tls = ssl.create_default_context(cafile=str(authority.pem))
    node = Node("server.js", *words)
    await until(lambda: node.told("listening"), 20)
    esme = Esme()
    port = node.told("listening")[0]["port"]
    esme.link = link = await connect("127.0.0.1", port, tls=tls, settings=SETTINGS, handler=esme)
    assert await link.bind("transceiver", "acme", "interop") == "node-smpp"
    texts = ["Hello", "€uro", "Привет 😀", "x" * 200]
    for text in texts:
        for part in segment(text, "auto", Carriage(), reference=7):
            esme.submit(
                text,
                short_message=part.short_message,
                data_coding=part.data_coding,
                esm_class=part.esm_class,
            )
    await until(lambda: len(esme.answers) == 5 and len(esme.requests) == 5)
    assert [response.command_status for _, response, _ in esme.answers] == [0] * 5
    taken = node.told("submit_sm")
    assert [one["text"] for one in taken[:3]] == texts[:3]
    assert taken[3]["text"] + taken[4]["text"] == texts[3]
    await until(lambda: len(node.told("deliver_sm_resp")) == 5)
    assert {one["status"] for one in node.told("deliver_sm_resp")} == {0}
    await link.unbind(2.0)
    await until(lambda: node.told("unbind"))
    await asyncio.to_thread(node.stop)
    assert node.told("error") == []


async def test_node_refuses_a_wrong_password(tmp_path: Path) -> None:
    from smpp.link import BindRefused

    node = Node("server.js")
    await until(lambda: node.told("listening"), 20)
    link = await Esme().open(node.told("listening")[0]["port"])
    with pytest.raises(BindRefused) as caught:
        await link.bind("transmitter", "acme", "wrong")
    assert caught.value.command_status == 0x0E
    await asyncio.to_thread(node.stop)
