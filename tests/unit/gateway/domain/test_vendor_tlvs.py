"""Values of a message's TLVs as octets, and what does not fit."""

from __future__ import annotations

import pytest

from gateway.domain.vendor_tlvs import TlvUnfit, octets_of
from gateway.policy.rules.snapshot import VendorTlv


@pytest.mark.parametrize(
    ("kind", "value", "octets"),
    [
        ("c_octet", "ab", b"ab\0"),
        ("c_octet", 110012345, b"110012345\0"),
        ("octets", "ab", b"ab"),
        ("octets", "0x00ff", b"\x00\xff"),
        ("int8", 7, b"\x07"),
        ("int8", 255, b"\xff"),
        ("int16", "258", b"\x01\x02"),
        ("int32", 4294967295, b"\xff\xff\xff\xff"),
    ],
)
def test_octets(kind: str, value: str | int, octets: bytes) -> None:
    assert octets_of(VendorTlv(0x1400, kind), value) == octets


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int8", 256), ("int8", "x"), ("int8", "-1"), ("int8", "\u0664"), ("int16", 65536), ("int32", "9" * 40),
        ("octets", "0x0"), ("octets", "0xzz"), ("c_octet", "12345678901"), ("octets", "0x" + "00" * 11),
    ],
)  # fmt: skip
def test_unfit(kind: str, value: str | int) -> None:
    with pytest.raises(TlvUnfit, match="takes") as caught:
        octets_of(VendorTlv(0x1400, kind, length_max=10), value)
    assert str(value) not in str(caught.value) or kind == "int8"
