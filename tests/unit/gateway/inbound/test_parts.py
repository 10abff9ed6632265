"""A handset's message as carriers part it: headers and optional parameters, in the forms that occur."""

from __future__ import annotations

import pytest

from gateway.inbound.reading import read_part
from smpp.protocol.codec import encode
from smpp.protocol.pdu import DataSm, DeliverSm
from smpp.text.reading import Concatenation

REFERENCE, TOTAL, NUMBER, PAYLOAD = 0x020C, 0x020E, 0x020F, 0x0424


def place_of(*tlvs: tuple[int, bytes]) -> Concatenation | None:
    return read_part(encode(DeliverSm(short_message=b"part", tlvs=tlvs))[16:], data_sm=False).place


@pytest.mark.parametrize("reference", [b"\x00\x2a", b"\x2a", b"\x00\x00\x00\x2a"])
@pytest.mark.parametrize("wide", [b"", b"\x00"])
def test_optional_parameters_in_any_width(reference: bytes, wide: bytes) -> None:
    found = place_of((REFERENCE, reference), (TOTAL, wide + b"\x03"), (NUMBER, wide + b"\x02"))
    assert found == Concatenation(42, 3, 2)


@pytest.mark.parametrize(
    ("reference", "total", "number"),
    [
        (b"", b"\3", b"\2"), (b"\0\1", b"", b"\2"), (b"\0\1", b"\3", b"\0"), (b"\0\1", b"\3", b"\4"),
        (b"\0\1", b"\1\0", b"\1"),
    ],
)  # fmt: skip
def test_optional_parameters_that_name_no_part(reference: bytes, total: bytes, number: bytes) -> None:
    assert place_of((REFERENCE, reference), (TOTAL, total), (NUMBER, number)) is None
    assert place_of((REFERENCE, b"\0\1"), (TOTAL, b"\3")) is None


def test_a_reference_of_zero_joins_like_any_other() -> None:
    assert place_of((REFERENCE, b"\0\0"), (TOTAL, b"\2"), (NUMBER, b"\1")) == Concatenation(0, 2, 1)


@pytest.mark.parametrize("data_sm", [False, True])
def test_a_header_inside_a_payload(data_sm: bool) -> None:
    kind = DataSm if data_sm else DeliverSm
    pdu = kind(esm_class=0x40, tlvs=((PAYLOAD, b"\x05\x00\x03\x2a\x02\x01part"),))
    read = read_part(encode(pdu)[16:], data_sm=data_sm)
    assert (read.octets, read.place) == (b"part", Concatenation(42, 2, 1))
