"""Receipts of carriers with spellings of their own: names of fields, dates, words, numbers of states, ids."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from smpp.receipts import Receipt, normal_id, read
from smpp.receipts.dates import read_date

DONE_AT = 1_704_070_920_000  # 2024-01-01T01:02:00Z
NEAR_AT = DONE_AT + 60_000


@dataclass
class Delivered:
    short_message: bytes = b""
    esm_class: int = 0x04
    data_coding: int = 0
    tlvs: tuple[tuple[int, bytes], ...] = ()


def of(text: str, *tlvs: tuple[int, bytes]) -> Receipt:
    receipt = read(Delivered(text.encode("latin-1"), tlvs=tlvs), near_at=NEAR_AT)
    assert receipt is not None
    return receipt


@pytest.mark.parametrize(
    "text",
    [
        "id:77005 submit time:2401010101 done time:2401010102 stat:UNDELIV err:21",
        "id:77005 submit_time:2401010101 done_time:2401010102 stat:UNDELIV error code:21 text:x",
        "id:77005 sub:001 dlvrd:000 done date:2401010102 stat:UNDELIV errcode:21 text:x",
        "id:77005 final price:2 done date:2401010102 stat:UNDELIV error_code:21",
        "id=77005;submit time=2401010101;done time=2401010102;stat=UNDELIV;error code=21",
        "id:77005 done date:01/01/2024 01:02 stat:UNDELIV err:21",
        "id:77005 done date:01.01.2024 01:02:00 stat:UNDELIV err:21 id:9",
    ],
)
def test_names_of_fields(text: str) -> None:
    receipt = of(text)
    assert (receipt.raw_id, receipt.state, receipt.error_code) == ("77005", "undeliverable", "21")
    assert receipt.done_at == DONE_AT


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("31/01/2024 01:02", "240131010200"), ("01/31/2024 01:02", "240131010200"),
        ("31.01.2024 01:02:03", "240131010203"),
        ("31-01-2024T01:02:03Z", "240131010203"), ("31-01-2024 02:02:03+01:00", "240131010203"),
        ("13/13/2024 01:02", None), ("00/01/2024 01:02", None), ("31-01-2024 02:02+24:00", None),
        ("2401302400", "240131000000"), ("240130240000", "240131000000"), ("2401302401", None), ("2401302500", None),
        ("240130235960", "240131000000"), ("2024-01-30 23:59:60", "240131000000"), ("240130235961", None),
        ("7001010000", None), ("19700101000000", None), ("1970-01-01 00:00:00", None), ("991231235959", None),
        ("700101000000000+", None), ("00000000000000", None), ("6912312359", "691231235900"),
    ],
)  # fmt: skip
def test_dates(written: str, shown: str | None) -> None:
    assert read_date(written) == (None if shown is None else read_date(shown, "yymmddhhmmss"))


def test_day_or_month_first_is_what_lies_nearer() -> None:
    """Both readings are dates: the message was sent now, not in another season."""
    march, november = read_date("20240311010200"), read_date("20241103010200")
    assert march is not None and november is not None
    assert read_date("03/11/2024 01:02", near_at=march + 5_000) == march
    assert read_date("03/11/2024 01:02", near_at=november + 5_000) == november
    assert read_date("03/11/2024 01:02") == november  # the day first, where nothing tells


@pytest.mark.parametrize(("word", "state"), [("DELIVR", "delivered"), ("NACK", "rejected"), ("ACK", "accepted")])
def test_words(word: str, state: str) -> None:
    assert of(f"id:77005 stat:{word} err:0").state == state


@pytest.mark.parametrize(
    ("octets", "state"),
    [
        (b"\x05", "undeliverable"), (b"5", "undeliverable"), (b"\x05\0", "undeliverable"),
        (b"\0\0\0\x05", "undeliverable"),
        (b"2\0", "delivered"), (b"\x01", "enroute"), (b"\0", "enroute"), (b"\x09", "skipped"), (b"\x0a", "unknown"),
        (b"\xff", "unknown"),
    ],
)  # fmt: skip
def test_numbers_of_states(octets: bytes, state: str) -> None:
    assert of("", (0x001E, b"77005\0"), (0x0427, octets)).state == state


@pytest.mark.parametrize(
    ("answered", "reported", "dialect"),
    [
        ("SAR-447700900123-1eedf843-2-1", "SAR-447700900123-1EEDF843-2-1", "as_is"),
        ("sms_77005_g", "SMS_77005_G", "as_is"),
        ("0e9c9f21-81ef-4974-a414-000000000004", "0E9C9F2181EF4974A414000000000004", "as_is"),
        ("77005", "+77005", "as_is"),
        ("12fcd", "+77773", "hex_to_decimal"),
        ("fffffffffffffffe", "-2", "hex_to_decimal"),
        ("ffffffff80000000", "-2147483648", "hex_to_decimal"),
        ("ffffffff7fffffff", "-2147483649", "hex_to_decimal"),
        ("123456789abcdef0123", str(0x123456789ABCDEF0123), "hex_to_decimal"),
    ],
)
def test_ids_meet(answered: str, reported: str, dialect: str) -> None:
    assert normal_id(answered, dialect, "answer") == normal_id(reported, dialect, "receipt")


@pytest.mark.parametrize(("one", "other"), [("aBcD9", "abcd9x"), ("Zx9Q", "zX9q"), ("a-bC", "a-Bc"), ("+", "")])
def test_ids_that_only_look_alike_stay_apart(one: str, other: str) -> None:
    assert normal_id(one, "as_is", "answer") != normal_id(other, "as_is", "receipt")
