"""From a claimed row to its submit_sm: addresses, times, parts and TLVs by dialect."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from gateway.domain.ids import day_of
from gateway.egress.submissions import (
    Lease,
    References,
    TextMissing,
    flight_of,
    numbering,
    sender_kind,
    validity_period,
    vendor_tlv,
)
from gateway.policy.rules.snapshot import Dialect, VendorTlv

ID = UUID("01993b2c-8a00-7000-8000-000000000abc")
LEASE = Lease(queued_at=1_000, deadline_at=5_000, spacing_ms=250.0, claimed_mono=7.0)


def _row(text: str | None = "hello", **changes: Any) -> dict[str, Any]:
    row = {
        "day": day_of(ID), "id": ID, "slot": 0, "class": "otp", "recipient": "+393331234567", "sender": "ACME",
        "body": None if text is None else text.encode(), "encoding": "gsm7", "segments": 1, "extras": None,
        "submit_by": 5_000, "expires_at": 9_000, "submit_begun": False, "attempts_spent": 0, "parts": None,
    }  # fmt: skip
    return row | changes


def _flight(row: dict[str, Any], dialect: Dialect | None = None) -> Any:
    return flight_of(row, LEASE, dialect or Dialect(), "carrier", References(bytes(range(256))))


@pytest.mark.parametrize(
    ("sender", "kind", "plan"),
    [
        ("+393330000001", "international", (1, 1)),
        ("ACME", "alphanumeric", (5, 0)),
        ("1A", "alphanumeric", (5, 0)),
        ("60070", "short_code", (3, 0)),
    ],
)
def test_type_of_number_follows_the_sender(sender: str, kind: str, plan: tuple[int, int]) -> None:
    assert sender_kind(sender) == kind
    assert numbering(Dialect(), kind) == plan


def test_the_dialect_may_number_otherwise() -> None:
    dialect = Dialect(address={"short_code": {"ton": 6}})
    (_, pdu) = _flight(_row(sender="60070"), dialect).pdus[0]
    assert (pdu.source_addr_ton, pdu.source_addr_npi) == (6, 0)


@pytest.mark.parametrize(
    ("kind", "left_ms", "shown"),
    [
        ("omit", 60_000, ""),
        ("relative", 59_999, "000000000059000R"),
        ("relative", 120_000, "000000000200000R"),
        ("relative", 3 * 86_400_000 + 3_661_000, "000003010101000R"),
        ("relative", 10, "000000000001000R"),
        ("relative", 90 * 86_400_000, "000031000000000R"),
        ("absolute", 60_000, "700101000101000+"),
    ],
)
def test_validity_period_is_what_is_left(kind: str, left_ms: int, shown: str) -> None:
    assert validity_period(kind, 1_000, 1_000 + left_ms) == shown
    assert len(shown) in (0, 16)


@pytest.mark.parametrize(("register", "flag"), [("final", 1), ("all", 0x11), ("none", 0)])
def test_registered_delivery(register: str, flag: int) -> None:
    assert _flight(_row(), Dialect(register=register)).pdus[0][1].registered_delivery == flag


def test_only_parts_that_are_not_accepted_are_sent_and_the_reference_stays() -> None:
    text = "x" * 400
    first = _flight(_row(text, segments=3))
    assert [part for part, _ in first.pdus] == [1, 2, 3]
    again = _flight(_row(text, segments=3, parts={"reference": 77, "accepted": [1, 3]}, submit_begun=True))
    assert [part for part, _ in again.pdus] == [2]
    assert again.reference == 77 and again.parts_total == 3
    assert again.pdus[0][1].short_message[:6] == bytes([5, 0, 3, 77, 3, 2])
    assert again.deadline_at == 9_000


def test_a_wiped_text_cannot_be_sent() -> None:
    with pytest.raises(TextMissing):
        _flight(_row(None))


def test_references_count_per_destination() -> None:
    references = References(b"\x00\x05" * 8)
    assert [references.take("+1") for _ in range(3)] == [6, 7, 8]
    assert references.take("+2") == 6


@pytest.mark.parametrize(
    ("kind", "value", "octets"),
    [("c_octet", "ab", b"ab\0"), ("octets", "ab", b"ab"), ("int8", 7, b"\x07"), ("int16", "258", b"\x01\x02")],
)
def test_vendor_tlvs(kind: str, value: Any, octets: bytes) -> None:
    assert vendor_tlv(VendorTlv(0x1400, kind), value) == (0x1400, octets)


def test_tlvs_of_the_message_and_our_own_reference() -> None:
    dialect = Dialect(tlvs={"dlt": VendorTlv(0x1400, "c_octet")}, own_reference="user_message_reference")
    pdu = _flight(_row(extras={"tlvs": {"dlt": "55", "other": "1"}}), dialect).pdus[0][1]
    assert pdu.tlvs == ((0x1400, b"55\0"), (0x0204, b"\x0a\xbc"))
    pdu = _flight(_row(), Dialect(own_reference="tlv:0x1501")).pdus[0][1]
    assert pdu.tlvs == ((0x1501, ID.hex.encode()),)
