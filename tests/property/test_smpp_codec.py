"""The codec against itself, against smpplib and smpp34, and against damage (P12)."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from smpplib import smpp as smpplib_smpp

from smpp.protocol.codec import decode, encode
from smpp.protocol.errors import ProtocolError
from smpp.protocol.framer import Framer
from smpp.protocol.pdu import (
    INTEGER,
    TYPES,
    BindReceiver,
    BindTransceiver,
    BindTransmitter,
    DataSm,
    DeliverSm,
    DeliverSmResp,
    EnquireLink,
    EnquireLinkResp,
    Pdu,
    QuerySm,
    ShortMessage,
    SubmitSm,
    SubmitSmResp,
    Unbind,
    UnbindResp,
)

OCTET = st.integers(0, 255)
SEQUENCE = st.integers(1, 0x7FFFFFFF)


def c_octets(octets_max: int) -> st.SearchStrategy[str]:
    return st.text(alphabet=st.characters(min_codepoint=1, max_codepoint=255), max_size=octets_max)


TLVS = st.lists(st.tuples(st.integers(0, 0xFFFF), st.binary(max_size=40)), max_size=5).map(tuple)
SHORT_MESSAGES = {
    "service_type": c_octets(5),
    "source_addr_ton": OCTET,
    "source_addr_npi": OCTET,
    "source_addr": c_octets(20),
    "dest_addr_ton": OCTET,
    "dest_addr_npi": OCTET,
    "destination_addr": c_octets(20),
    "esm_class": OCTET,
    "protocol_id": OCTET,
    "priority_flag": OCTET,
    "schedule_delivery_time": c_octets(16),
    "validity_period": c_octets(16),
    "registered_delivery": OCTET,
    "replace_if_present_flag": OCTET,
    "data_coding": OCTET,
    "sm_default_msg_id": OCTET,
    "short_message": st.binary(max_size=254),
}


def pdus_of(kind: type[Pdu]) -> st.SearchStrategy[Pdu]:
    if issubclass(kind, ShortMessage):
        fields = SHORT_MESSAGES | {"short_message": st.binary(max_size=kind.TEXT_OCTETS_MAX)}
    else:
        fields = {field.name: OCTET if field.limit == INTEGER else c_octets(field.limit - 1) for field in kind.LAYOUT}
    return st.builds(kind, **fields, tlvs=TLVS, sequence_number=SEQUENCE, command_status=st.integers(0, 0xFFFFFFFF))


PDUS = st.sampled_from(list(TYPES.values())).flatmap(pdus_of)


@given(PDUS)
def test_reading_undoes_writing(pdu: Pdu) -> None:
    octets = encode(pdu)
    back = decode(octets)
    assert back == pdu
    assert encode(back) == octets


@given(st.lists(PDUS, max_size=6), st.integers(1, 200))
def test_any_slicing_of_the_stream_gives_the_same_pdus(pdus: list[Pdu], size: int) -> None:
    stream = b"".join(map(encode, pdus))
    framer = Framer()
    read = [decode(one) for at in range(0, len(stream), size) for one in framer.feed(stream[at : at + size])]
    assert read == pdus
    assert framer.held_octets == 0


@settings(max_examples=400)
@given(PDUS, st.data())
def test_damage_is_a_protocol_error_or_a_pdu(pdu: Pdu, data: st.DataObject) -> None:
    octets = bytearray(encode(pdu))
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(octets) - 1))
        octets[at] = data.draw(OCTET)
    cut = data.draw(st.integers(0, len(octets)))
    damaged = bytes(octets[:cut])
    if len(damaged) >= 16 and data.draw(st.booleans()):
        damaged = len(damaged).to_bytes(4, "big") + damaged[4:]
    try:
        decode(damaged)
    except ProtocolError as refused:
        assert refused.command_status != 0


# -- other people's codecs ---------------------------------------------------------------------------------------------

PRINTABLE = st.text(alphabet="abcdefghijklmnopqrstuvwxyzABC0123456789+", max_size=20)
# smpplib raises KeyError for a parameter that it does not expect in this command.
PEER_TLVS = st.sampled_from([(), ((0x0204, b"\x00\x07"),), ((0x020C, b"\0\1"), (0x020E, b"\2"), (0x020F, b"\1"))])
SUBMITS = st.builds(
    SubmitSm,
    source_addr_ton=st.sampled_from([0, 1, 5]),
    source_addr=PRINTABLE,
    destination_addr=PRINTABLE,
    esm_class=st.sampled_from([0, 0x40]),
    registered_delivery=st.integers(0, 3),
    data_coding=st.sampled_from([0, 3, 8]),
    validity_period=st.sampled_from(["", "000000000200000R"]),
    short_message=st.binary(min_size=1, max_size=140),
    tlvs=PEER_TLVS,
    sequence_number=SEQUENCE,
)
CLIENT = SimpleNamespace(sequence=1, next_sequence=lambda: 1)
COMPARED = ["source_addr_ton", "esm_class", "registered_delivery", "data_coding"]


def _text(value: str | bytes | None) -> str:
    return (value.decode("latin-1") if isinstance(value, bytes) else value or "").rstrip("\0")


@given(SUBMITS)
def test_smpplib_reads_what_we_write(pdu: SubmitSm) -> None:
    theirs = smpplib_smpp.parse_pdu(encode(pdu), client=CLIENT, allow_unknown_opt_params=True)
    assert theirs.command == "submit_sm"
    assert theirs.sequence == pdu.sequence_number
    for name in COMPARED:
        assert getattr(theirs, name) == getattr(pdu, name)
    for name in ("source_addr", "destination_addr", "validity_period"):
        assert _text(getattr(theirs, name)) == getattr(pdu, name)
    assert theirs.short_message == pdu.short_message


@given(SUBMITS)
def test_we_read_what_smpplib_writes(pdu: SubmitSm) -> None:
    theirs = smpplib_smpp.make_pdu(
        "submit_sm",
        client=CLIENT,
        source_addr_ton=pdu.source_addr_ton,
        source_addr=pdu.source_addr,
        destination_addr=pdu.destination_addr,
        esm_class=pdu.esm_class,
        registered_delivery=pdu.registered_delivery,
        data_coding=pdu.data_coding,
        short_message=pdu.short_message,
        validity_period=pdu.validity_period,
    )
    ours = decode(theirs.generate())
    assert isinstance(ours, SubmitSm)
    for name in (*COMPARED, "source_addr", "destination_addr", "short_message", "validity_period"):
        assert getattr(ours, name) == getattr(pdu, name), name


DELIVERIES = st.builds(
    DeliverSm,
    source_addr=PRINTABLE,
    destination_addr=PRINTABLE,
    esm_class=st.sampled_from([0, 4, 0x40]),
    data_coding=st.sampled_from([0, 3, 8]),
    short_message=st.binary(min_size=1, max_size=200),
    tlvs=st.sampled_from([(), ((0x001E, b"0123abcd\0"), (0x0427, b"\2"))]),
    sequence_number=SEQUENCE,
)


@given(DELIVERIES)
def test_smpplib_reads_our_receipts(pdu: DeliverSm) -> None:
    theirs = smpplib_smpp.parse_pdu(encode(pdu), client=CLIENT, allow_unknown_opt_params=True)
    assert (theirs.command, theirs.sequence) == ("deliver_sm", pdu.sequence_number)
    assert theirs.short_message == pdu.short_message
    assert (_text(theirs.source_addr), _text(theirs.destination_addr)) == (pdu.source_addr, pdu.destination_addr)
    if pdu.tlvs:
        assert (_text(theirs.receipted_message_id), theirs.message_state) == ("0123abcd", 2)


@pytest.mark.parametrize(
    ("command", "kind", "fields"),
    [
        ("bind_transceiver", BindTransceiver, {"system_id": "acme", "password": "secret12", "system_type": "VMA"}),
        ("bind_transmitter", BindTransmitter, {"system_id": "acme", "password": "pw"}),
        ("bind_receiver", BindReceiver, {"system_id": "acme", "password": "pw"}),
        ("query_sm", QuerySm, {"message_id": "77", "source_addr": "ACME", "source_addr_ton": 5}),
        ("data_sm", DataSm, {"source_addr": "ACME", "destination_addr": "447700900123", "data_coding": 8}),
        ("enquire_link", EnquireLink, {}),
        ("enquire_link_resp", EnquireLinkResp, {}),
        ("unbind", Unbind, {}),
        ("unbind_resp", UnbindResp, {}),
        ("deliver_sm_resp", DeliverSmResp, {}),
        ("submit_sm_resp", SubmitSmResp, {"message_id": "0123abcd"}),
    ],
)
def test_other_commands_of_smpplib_both_ways(command: str, kind: type[Pdu], fields: dict[str, Any]) -> None:
    ours = decode(smpplib_smpp.make_pdu(command, client=CLIENT, **fields).generate())
    assert type(ours) is kind
    for name, value in fields.items():
        assert getattr(ours, name) == value, name
    made = kind(sequence_number=9, **fields)
    theirs = smpplib_smpp.parse_pdu(encode(made), client=CLIENT, allow_unknown_opt_params=True)
    assert (theirs.command, theirs.sequence, theirs.status) == (command, 9, 0)
    for name, value in fields.items():
        seen = getattr(theirs, name)
        assert (_text(seen) if isinstance(value, str) else seen) == value, name


# smpp34 is an extension that has crashed at interpreter exit, so it lives in a process of its own: it reads our octets,
# tells what it saw and writes them anew.
SMPP34 = """
import json, os, sys
import smpp34
names = ["service_type", "source_addr_ton", "source_addr_npi", "source_addr", "dest_addr_ton", "dest_addr_npi",
         "destination_addr", "esm_class", "protocol_id", "priority_flag", "schedule_delivery_time", "validity_period",
         "registered_delivery", "replace_if_present_flag", "data_coding", "sm_default_msg_id", "sequence_number"]
for line in sys.stdin:
    pdu = smpp34.decode(bytes.fromhex(line))
    seen = {name: getattr(pdu, name) for name in names}
    seen["kind"] = type(pdu).__name__
    seen["short_message"] = pdu.short_message.hex()
    seen["tlvs"] = [[tlv.tag, tlv.value.hex()] for tlv in pdu.tlvs]
    seen["again"] = pdu.encode().hex()
    print(json.dumps(seen))
sys.stdout.flush()
os._exit(0)
"""


def _made_pdus(count: int) -> list[ShortMessage]:
    rng = random.Random(34)
    letters = "abcdefghijklmnopqrstuvwxyzABC0123456789+"

    def word(longest: int) -> str:
        return "".join(rng.choice(letters) for _ in range(rng.randint(0, longest)))

    made: list[ShortMessage] = []
    for number in range(1, count + 1):
        made.append(
            rng.choice([SubmitSm, DeliverSm])(
                service_type=word(5),
                source_addr_ton=rng.randrange(7),
                source_addr_npi=rng.randrange(10),
                source_addr=word(20),
                destination_addr=word(20),
                esm_class=rng.randrange(256),
                protocol_id=rng.randrange(256),
                priority_flag=rng.randrange(4),
                validity_period=rng.choice(["", "000000000200000R"]),
                registered_delivery=rng.randrange(32),
                data_coding=rng.randrange(256),
                short_message=rng.randbytes(rng.randint(0, 254)),
                tlvs=tuple(
                    (rng.randrange(1, 0x4000), rng.randbytes(rng.randint(0, 30))) for _ in range(rng.randint(0, 4))
                ),
                sequence_number=number,
            )
        )
    return made


def test_smpp34_reads_what_we_write_and_writes_the_same() -> None:
    made = _made_pdus(500)
    octets = [encode(pdu).hex() for pdu in made]
    finished = subprocess.run(
        [sys.executable, "-c", SMPP34], input="\n".join(octets), capture_output=True, text=True, timeout=60, check=True
    )
    lines = finished.stdout.splitlines()
    assert len(lines) == len(made)
    for pdu, written, line in zip(made, octets, lines, strict=True):
        seen = json.loads(line)
        assert seen.pop("kind") == type(pdu).__name__
        assert seen.pop("again") == written
        assert seen.pop("short_message") == pdu.short_message.hex()
        assert seen.pop("tlvs") == [[tag, value.hex()] for tag, value in pdu.tlvs]
        assert seen == {name: getattr(pdu, name) for name in seen}
