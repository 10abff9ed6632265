"""Dates, ids and fields of receipts beyond the real cases."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smpp.receipts import normal_id, read
from smpp.receipts.dates import read_date
from smpp.receipts.fields import read_any_fields, read_fields


@dataclass
class Delivered:
    esm_class: int = 0x04
    data_coding: int = 0
    short_message: bytes = b""
    tlvs: tuple[tuple[int, bytes], ...] = ()


@dataclass
class Data:
    """A data_sm: no short_message at all."""

    esm_class: int
    data_coding: int
    tlvs: tuple[tuple[int, bytes], ...]


@pytest.mark.parametrize(
    ("text", "dates", "expected"),
    [
        ("2401010000", "auto", 1_704_067_200_000),
        ("20240101000000", "auto", 1_704_067_200_000),
        ("20240101000000", "yyyymmddhhmmss", 1_704_067_200_000),
        ("1704067200", "epoch", 1_704_067_200_000),
        ("1704067200000", "epoch", 1_704_067_200_000),
        ("0000000000", "auto", None),
        ("0000000000", "epoch", None),
        ("000000000000", "auto", None),
        ("24010100000", "auto", None),
        ("2401010000", "yymmddhhmmss", None),
        ("240101000000000+", "yymmddhhmm", 1_704_067_200_000),
        ("240101000000099-", "auto", None),
        ("yesterday", "auto", None),
        ("", "auto", None),
        ("²²²²²²²²²²", "auto", None),
    ],
)
def test_dates(text: str, dates: str, expected: int | None) -> None:
    assert read_date(text, dates) == expected


def test_local_time_of_the_carrier() -> None:
    assert read_date("2407010200", timezone="Europe/Rome") == read_date("2407010000")


@pytest.mark.parametrize(
    ("raw_id", "dialect", "side", "expected"),
    [
        ("0", "as_is", "answer", "0"),
        ("000", "as_is", "receipt", "0"),
        ("", "as_is", "receipt", ""),
        ("aBcXyZ", "as_is", "answer", "aBcXyZ"),
        ("aBcXyZ", "case_insensitive", "answer", "abcxyz"),
        ("3ADE68B1", "hex_to_decimal", "answer", "987654321"),
        ("0987654321", "hex_to_decimal", "receipt", "987654321"),
        ("987654321", "decimal_to_hex", "answer", "987654321"),
        ("3ade68b1", "decimal_to_hex", "receipt", "987654321"),
        ("f" * 200, "hex_to_decimal", "answer", "f" * 200),
    ],
)
def test_normal_ids(raw_id: str, dialect: str, side: str, expected: str) -> None:
    assert normal_id(raw_id, dialect, side) == expected


def test_the_echo_is_not_looked_into() -> None:
    fields = read_fields("id:1 stat:UNDELIV err:001 text:stat:DELIVRD id:2")
    assert (fields["id"], fields["stat"]) == ("1", "UNDELIV")


def test_tlvs_outrank_the_text() -> None:
    receipt = read(Delivered(short_message=b"id:1 stat:DELIVRD err:000", tlvs=((0x001E, b"2\x00"), (0x0427, b"\x05"))))
    assert receipt is not None
    assert (receipt.raw_id, receipt.state, receipt.error_code) == ("2", "undeliverable", "000")


def test_a_final_word_in_an_intermediate_notification_is_not_final() -> None:
    receipt = read(Delivered(esm_class=0x20, short_message=b"id:1 stat:DELIVRD"))
    assert receipt is not None
    assert (receipt.state, receipt.final) == ("delivered", False)


def test_a_text_from_a_handset_is_no_receipt() -> None:
    assert read(Delivered(esm_class=0, short_message=b"id:1 stat:DELIVRD")) is None
    assert read(Delivered(esm_class=0x40, short_message=b"hello")) is None


def test_a_receipt_in_data_sm() -> None:
    receipt = read(Data(0x04, 0, ((0x001E, b"77\x00"), (0x0427, b"\x02"))))
    assert receipt is not None
    assert (receipt.raw_id, receipt.state) == ("77", "delivered")


@settings(deadline=None)
@given(
    st.binary(max_size=200),
    st.integers(0, 255),
    st.lists(st.tuples(st.sampled_from([0x001E, 0x0423, 0x0424, 0x0427, 0x0204]), st.binary(max_size=40))),
)
def test_nothing_a_carrier_writes_raises(octets: bytes, coding: int, tlvs: list[tuple[int, bytes]]) -> None:
    receipt = read(Delivered(data_coding=coding, short_message=octets, tlvs=tuple(tlvs)))
    assert receipt is not None
    assert "\x00" not in receipt.raw_id + (receipt.error_code or "") + (receipt.raw_state or "")
    assert receipt.state is not None or not receipt.final
    for side in ("answer", "receipt"):
        normal_id(receipt.raw_id, "hex_to_decimal", side)


VALUES = st.text(alphabet="0123456789abcDEF:,;|-xid", min_size=1, max_size=12) | st.sampled_from(
    ["null", "NULL", "none"]
)


@settings(deadline=None)
@given(st.lists(VALUES, min_size=7, max_size=7), st.sampled_from(["", " ", " text:", " Text:id:9 stat:X", " tail"]))
def test_the_quick_reading_agrees_with_the_thorough_one(values: list[str], tail: str) -> None:
    names = ("id", "sub", "dlvrd", "submit date", "done date", "stat", "err")
    content = " ".join(f"{name}:{value}" for name, value in zip(names, values, strict=True)) + tail
    assert read_fields(content) == read_any_fields(content)


@settings(deadline=None)
@given(st.sampled_from(["DELIVRD", "undeliv", "null"]), st.from_regex(r"[0-9]{1,14}", fullmatch=True), VALUES)
def test_the_usual_form_is_read_alike(word: str, date: str, raw_id: str) -> None:
    content = f"id:{raw_id} sub:001 dlvrd:001 submit date:{date} done date:{date} stat:{word} err:000 text:hello id:7"
    assert read_fields(content) == read_any_fields(content)
