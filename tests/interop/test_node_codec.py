"""Our octets read by npm `smpp`, and its octets read by us."""

from __future__ import annotations

import random
from typing import Any

import pytest

from smpp.protocol.codec import decode, encode
from smpp.protocol.pdu import (
    AlertNotification,
    BindReceiver,
    BindTransceiver,
    BindTransceiverResp,
    BindTransmitter,
    CancelSm,
    CancelSmResp,
    DataSm,
    DataSmResp,
    DeliverSm,
    DeliverSmResp,
    EnquireLink,
    EnquireLinkResp,
    GenericNack,
    Outbind,
    Pdu,
    QuerySm,
    QuerySmResp,
    ShortMessage,
    SubmitSm,
    SubmitSmResp,
    Unbind,
    UnbindResp,
)
from tests.interop.node import converse

pytestmark = pytest.mark.interop

ADDRESSES: dict[str, Any] = {"source_addr": "447700900123", "source_addr_ton": 1, "source_addr_npi": 1}
KINDS: list[Pdu] = [
    BindReceiver("acme", "secret12", "VMA", 0x34, 1, 1, "^4477"),
    BindTransmitter("acme", "secret12"),
    BindTransceiver("acme", "secret12", "VMA"),
    BindTransceiverResp("SMSC", tlvs=((0x0210, b"\x34"),)),
    BindTransceiverResp(command_status=0x0E),
    Outbind("smsc", "pw"),
    Unbind(),
    UnbindResp(),
    EnquireLink(),
    EnquireLinkResp(),
    GenericNack(command_status=3),
    SubmitSmResp("0123abcd"),
    SubmitSmResp(command_status=0x58),
    DeliverSmResp(),
    DataSm(**ADDRESSES, destination_addr="60070", esm_class=0, data_coding=4, tlvs=((0x0424, b"\x01\x02\xff" * 200),)),
    DataSmResp("77"),
    QuerySm("77", **ADDRESSES),
    QuerySmResp("77", "", 2, 0),
    CancelSm("", "77", **ADDRESSES, destination_addr="60070"),
    CancelSmResp(),
    AlertNotification(**ADDRESSES, esme_addr="60070", tlvs=((0x0422, b"\x00"),)),
]


def _texts(count: int) -> list[Pdu]:
    rng = random.Random(51)
    made: list[Pdu] = []
    for _ in range(count):
        kind = rng.choice([SubmitSm, DeliverSm])
        made.append(
            kind(
                service_type=rng.choice(["", "CMT"]),
                source_addr="ACME",
                source_addr_ton=5,
                destination_addr=f"4477009{rng.randrange(100_000):05d}",
                protocol_id=rng.randrange(256),
                priority_flag=rng.randrange(4),
                registered_delivery=rng.randrange(32),
                replace_if_present_flag=rng.randrange(2),
                data_coding=4,  # octets as they are
                short_message=rng.randbytes(rng.randint(1, 254)),
                tlvs=rng.choice([(), ((0x0204, rng.randbytes(2)),), ((0x001E, b"0123abcd\0"), (0x0427, b"\x02"))]),
            )
        )
    return made


def _numbered(pdus: list[Pdu]) -> list[Pdu]:
    for number, pdu in enumerate(pdus, 1):
        pdu.sequence_number = number
    return pdus


def test_every_kind_goes_there_and_comes_back() -> None:
    pdus = _numbered([*KINDS, *_texts(300)])
    told = converse("codec.js", [encode(pdu).hex() for pdu in pdus])
    assert len(told) == len(pdus)
    for pdu, answer in zip(pdus, told, strict=True):
        seen = answer["seen"]
        assert seen["command_id"] == pdu.COMMAND_ID
        assert (seen["command_status"], seen["sequence_number"]) == (pdu.command_status, pdu.sequence_number)
        for name in pdu.__dataclass_fields__:
            if name in seen and name not in ("short_message", "tlvs", "final_date"):
                assert seen[name] == getattr(pdu, name), (type(pdu).__name__, name)
        if isinstance(pdu, ShortMessage):
            assert seen["short_message"]["message"] == {"octets": pdu.short_message.hex()}
        assert decode(bytes.fromhex(answer["again"])) == pdu, type(pdu).__name__
