"""The real receipts of kind `dlr-format`, each as a test named by its id."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from smpp.receipts import Receipt, normal_id, read

CASES: dict[str, dict[str, Any]] = {
    case["id"]: case
    for case in map(json.loads, Path(__file__).with_name("cases.jsonl").read_text(encoding="utf-8").splitlines())
}
DELIVER_SM = 0x00000005
DIALECTS = {"resp_hex_dlr_dec": "hex_to_decimal"}


@dataclass
class Delivered:
    """As much of a deliver_sm as a receipt needs."""

    esm_class: int
    data_coding: int
    short_message: bytes
    tlvs: tuple[tuple[int, bytes], ...]


def delivered(pdu: bytes) -> Delivered:
    """A reading of the PDU that shares nothing with our codec."""
    body = pdu[16:]
    at = 0

    def text() -> None:
        nonlocal at
        at = body.index(b"\x00", at) + 1

    text()  # service_type
    at += 2
    text()  # source_addr
    at += 2
    text()  # destination_addr
    esm_class = body[at]
    at += 3
    text()  # schedule_delivery_time
    text()  # validity_period
    data_coding, length = body[at + 2], body[at + 4]
    at += 5
    short_message = body[at : at + length]
    at += length
    tlvs = []
    while len(body) - at >= 4:
        tag, size = int.from_bytes(body[at : at + 2], "big"), int.from_bytes(body[at + 2 : at + 4], "big")
        tlvs.append((tag, body[at + 4 : at + 4 + size]))
        at += 4 + size
    return Delivered(esm_class, data_coding, short_message, tuple(tlvs))


def pdus_of(case: dict[str, Any]) -> list[bytes]:
    given = case["input"]
    return [bytes.fromhex(one) for one in given.get("pdus_hex", [given.get("pdu_hex")])]


def receipts_of(case: dict[str, Any]) -> list[Receipt]:
    near = case["input"].get("our_submit_time")
    near_at = None if near is None else utc_ms(near)
    found = []
    for pdu in pdus_of(case):
        if int.from_bytes(pdu[4:8], "big") == DELIVER_SM:
            receipt = read(delivered(pdu), near_at=near_at)
            assert receipt is not None, "taken for a message from a handset"
            found.append(receipt)
    return found


def utc_ms(text: str) -> int:
    return int(datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC).timestamp() * 1000)


def without_seconds_fraction(at: int | None) -> int | None:
    return None if at is None else at - at % 1000


SINGLE = sorted(name for name, case in CASES.items() if case["expect"].get("kind") == "receipt")
MATCHED = sorted(name for name, case in CASES.items() if case["expect"].get("match"))
SEVERAL = sorted(name for name, case in CASES.items() if "states" in case["expect"])


def test_all_cases_are_tested() -> None:
    assert len(CASES) == 32
    assert sorted([*SINGLE, *MATCHED, *SEVERAL, "D41"]) == sorted(CASES)


@pytest.mark.parametrize("name", SINGLE)
def test_case(name: str) -> None:
    case = CASES[name]
    expect = case["expect"]
    (receipt,) = receipts_of(case)
    assert receipt.raw_id == expect["carrier_id"]
    assert receipt.state == expect["carrier_state"].lower()
    assert receipt.final is expect["final"]
    if "err" in expect:
        assert receipt.error_code == expect["err"]
    if "raw_stat" in expect:
        assert receipt.raw_state == expect["raw_stat"]
    for field in ("done_at_local", "done_at_utc"):
        if field in expect:
            wanted = None if expect[field] is None else utc_ms(expect[field])
            assert without_seconds_fraction(receipt.done_at) == wanted
    if "network_error" in expect:
        assert receipt.network_error == (expect["network_error"]["type"], expect["network_error"]["code"])
    if "user_message_reference" in expect:
        assert receipt.user_message_reference == expect["user_message_reference"]


@pytest.mark.parametrize("name", SEVERAL)
def test_case_of_several(name: str) -> None:
    expect = CASES[name]["expect"]
    receipts = receipts_of(CASES[name])
    assert [receipt.state for receipt in receipts] == [state.lower() for state in expect["states"]]
    assert [receipt.final for receipt in receipts] == expect["final"]


@pytest.mark.parametrize("name", MATCHED)
def test_case_of_matching_ids(name: str) -> None:
    case = CASES[name]
    expect = case["expect"]
    answer, _ = pdus_of(case)
    answered = answer[16:].rstrip(b"\x00").decode("ascii")
    (receipt,) = receipts_of(case)
    connector = expect.get("connector", {}).get("dlr_id")
    dialects = [DIALECTS[connector]] if connector else ["as_is", "case_insensitive"]
    if "also_with_connector" in expect:
        dialects.append(DIALECTS[expect["also_with_connector"]["dlr_id"]])
    for dialect in dialects:
        key = normal_id(answered, dialect, "answer")
        assert key == normal_id(receipt.raw_id, dialect, "receipt")
        if "canonical" in expect:
            assert key == expect["canonical"]
    if "carrier_state" in expect:
        assert receipt.state == expect["carrier_state"].lower()


def test_d41_unreadable_is_a_receipt_without_state() -> None:
    (receipt,) = receipts_of(CASES["D41"])
    assert (receipt.state, receipt.raw_id, receipt.final) == (None, "", False)


def test_d23_variant_without_nul() -> None:
    case = CASES["D23"]
    plain = read(delivered(bytes.fromhex(case["input"]["variant_without_nul_hex"])))
    assert plain is not None
    assert (plain.raw_id, plain.state) == (case["expect"]["carrier_id"], "delivered")
    assert plain.from_tlv


def test_d10_both_readings() -> None:
    (pdu,) = map(delivered, pdus_of(CASES["D10"]))
    readings = CASES["D10"]["expect"]["readings"]
    for name, wanted in readings.items():
        receipt = read(pdu, dates=name.lower())
        assert receipt is not None
        assert receipt.done_at == utc_ms(wanted)
    old = read(pdu, near_at=utc_ms("2010-12-12T01:30:00"))
    assert old is not None
    assert old.done_at == utc_ms(readings["YYYYMMDDhhmm"])
