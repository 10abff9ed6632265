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
    return flight_of(row, LEASE, dialect or Dialect(), "carrier", References())


@pytest.mark.parametrize(
    ("sender", "kind", "plan"),
    [
        ("+393330000001", "international", (1, 1)),
        ("ACME", "alphanumeric", (5, 0)),
        ("1A", "alphanumeric", (5, 0)),
        ("60070", "short_code", (3, 0)),
        ("12345678", "short_code", (3, 0)),
        ("447700900123", "numeric", (0, 1)),
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


def test_e24_long_texts_to_one_number_never_share_a_reference() -> None:
    """300 sends, every hundredth to one handset; a restart between them and messages of one second among them."""
    references = References()
    taken = [
        references.take("+447700900001" if n % 100 == 0 else f"+4477009{n:05d}", 1_780_000_000_000 + n // 100)
        for n in range(300)
    ]
    same = [taken[0], taken[100], taken[200], References().take("+447700900001", 1_780_000_001_000 + 2_000)]
    assert len({reference & 0xFF for reference in same}) == 4
    burst = [references.take("+447700900001", 1_780_000_060_000) & 0xFF for _ in range(60)]
    assert len(set(burst)) == 60


def test_a_reference_depends_on_the_message_not_on_the_process() -> None:
    first, second = References(), References()
    assert first.take("+447700900001", 5_000_000) == second.take("+447700900001", 5_000_000)
    assert first.take("+447700900001", 5_000_000) != second.take("+447700900001", 6_000_000)


def test_a_text_that_is_whole_elsewhere_gets_its_reference_here() -> None:
    """Rerouted from a carrier that reads Turkish to one that does not: UCS-2, two parts, nothing lost."""
    text = "ş" * 75
    row = _row(text, encoding="gsm7", segments=1)
    (only,) = _flight(row, Dialect(national_shift="turkish")).pdus
    assert only[1].short_message[:4] == b"\x03\x24\x01\x01"
    moved = _flight(row)
    assert moved.parts_total == 2 and moved.reference is not None
    assert [pdu.short_message[3] for _, pdu in moved.pdus] == [moved.reference & 0xFF] * 2
    assert "".join(pdu.short_message[6:].decode("utf-16-be") for _, pdu in moved.pdus) == text


def test_h08_h10_senders_on_the_wire() -> None:
    for sender, plan in (("ACMEBANKING", (5, 0)), ("ACME", (5, 0)), ("60070", (3, 0)), ("+447700900001", (1, 1))):
        pdu = _flight(_row(sender=sender)).pdus[0][1]
        assert (pdu.source_addr_ton, pdu.source_addr_npi) == plan
        assert (pdu.source_addr, pdu.destination_addr) == (sender.removeprefix("+"), "393331234567")
        assert (pdu.dest_addr_ton, pdu.dest_addr_npi) == (1, 1)


def test_d47_bits_of_esm_class_beside_the_headers() -> None:
    dialect = Dialect(esm_class=0x06)
    assert [pdu.esm_class for _, pdu in _flight(_row(), dialect).pdus] == [0x06]
    assert [pdu.esm_class for _, pdu in _flight(_row("x" * 161, segments=2), dialect).pdus] == [0x46, 0x46]


def test_a_carrier_that_wants_the_plus_sign() -> None:
    dialect = Dialect(address={"international": {"plus": 1}, "destination": {"plus": 1, "ton": 0}})
    pdu = _flight(_row(sender="+447700900001"), dialect).pdus[0][1]
    assert (pdu.source_addr, pdu.destination_addr, pdu.dest_addr_ton) == ("+447700900001", "+393331234567", 0)


def test_q13_q14_absolute_time_in_the_carriers_zone() -> None:
    deadline = 1_707_302_731_000  # 2024-02-07T16:30:31+05:45
    assert validity_period("omit", deadline - 60_000, deadline) == ""
    assert validity_period("absolute", deadline - 60_000, deadline, "Asia/Kathmandu") == "240207163031023+"
    assert validity_period("absolute", deadline - 60_000, deadline) == "240207104531000+"
    assert validity_period("absolute", deadline - 60_000, deadline, "America/New_York") == "240207054531020-"
    # More than twelve hours ahead cannot be said in quarters.
    assert validity_period("absolute", deadline - 60_000, deadline, "Pacific/Kiritimati") == "240207104531000+"


def test_tlvs_of_the_message_and_our_own_reference() -> None:
    dialect = Dialect(tlvs={"dlt": VendorTlv(0x1400, "c_octet")}, own_reference="user_message_reference")
    pdu = _flight(_row(extras={"tlvs": {"dlt": "55", "other": "1"}}), dialect).pdus[0][1]
    assert pdu.tlvs == ((0x1400, b"55\0"), (0x0204, b"\x0a\xbc"))
    pdu = _flight(_row(), Dialect(own_reference="tlv:0x1501")).pdus[0][1]
    assert pdu.tlvs == ((0x1501, ID.hex.encode()),)
