"""Receipts that users of other systems reported as lost or misread, and their kin."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from smpp.protocol.codec import decode, encode
from smpp.protocol.errors import ProtocolError
from smpp.protocol.pdu import DataSm, DeliverSm
from smpp.receipts import Receipt, normal_id, read

STATE, ID, NETWORK_ERROR, PAYLOAD = 0x0427, 0x001E, 0x0423, 0x0424
DATES = "submit date:1809031208 done date:1809031209"
DONE_AT = int(datetime(2018, 9, 3, 12, 9, tzinfo=UTC).timestamp()) * 1000


def of(text: str, *tlvs: tuple[int, bytes]) -> Receipt:
    receipt = read(DeliverSm(short_message=text.encode("latin-1"), esm_class=0x04, tlvs=tlvs))
    assert receipt is not None
    return receipt


@pytest.mark.parametrize("word", ["DELIVRD", "delivrd", "Delivered"])
@pytest.mark.parametrize(
    "text",
    [
        f"id:7 sub:000 dlvrd:000 {DATES} WORD err:000 Text:",
        f"id:7 {DATES}, WORD, err:000",
        f"id:7 {DATES} WORD",
        "id:7 submit date:1809031208 done date:1809031209 sub:001 dlvrd:001 WORD err:000 text:id:8 stat:UNDELIV",
        f"id:7 {DATES} stat:WORD;000 err:000",
        f"id:7 {DATES} stat:WORD/000 err:000",
        f"id:7 {DATES} stat:WORD,final err:000",
    ],
)
def test_a_state_without_its_name_or_with_more_behind_it(text: str, word: str) -> None:
    receipt = of(text.replace("WORD", word))
    assert (receipt.raw_id, receipt.state, receipt.final) == ("7", "delivered", True)
    assert receipt.done_at == DONE_AT


def test_only_a_known_word_is_a_state_without_its_name() -> None:
    receipt = of(f"id:7 {DATES} SOMETHING err:000")
    assert (receipt.state, receipt.final) == (None, False)
    assert of(f"id:7 {DATES} DELIVRD stat:UNDELIV").state == "undeliverable"
    assert of("id:7 sub:DELIVRD err:000").state is None


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("SCHEDLD", "enroute"), ("STAGED", "enroute"), ("CANCEL", "deleted"), ("NOCRED", "undeliverable"),
        ("NO-CREDITS", "undeliverable"), ("SYSERR", "undeliverable"), ("NOROUTE", "undeliverable"),
        ("NOT-SENT", "undeliverable"), ("NON_DELIVERED", "undeliverable"), ("BLIST", "rejected"),
        ("BLACKLIST", "rejected"), ("DELIVRD?", "unknown"), (";DELIVRD", "delivered"),
    ],
)  # fmt: skip
def test_words_that_providers_document(word: str, state: str) -> None:
    assert of(f"id:7 {DATES} stat:{word} err:000").state == state


@pytest.mark.parametrize(
    ("octets", "state"),
    [
        (b"DELIVRD\0", "delivered"), (b"DELIVERED", "delivered"), (b"undeliv", "undeliverable"), (b"02", "delivered"),
        (b"5\0", "undeliverable"), (b"\x02\0", "delivered"), (b"\0\0\0\x08", "rejected"),
    ],
)  # fmt: skip
def test_the_state_of_the_tlv_however_it_is_written(octets: bytes, state: str) -> None:
    assert of("", (ID, b"7\0"), (STATE, octets)).state == state


def test_a_word_in_the_tlv_that_is_none_leaves_the_state_to_the_text() -> None:
    assert of(f"id:7 {DATES} stat:EXPIRED err:000", (STATE, b"WHATEVER")).state == "expired"


@pytest.mark.parametrize(
    ("octets", "code", "network_error"),
    [
        (b"\x03\x00\x01", "1", (3, 1)), (b"\x03\x00\x01\x00", "1", (3, 1)), (b"021", "21", (0, 21)),
        (b"0021\0", "21", (0, 21)), (b"\x03", None, None), (b"", None, None), (b"\x03\x00\x01\x00\x07", None, None),
    ],
)  # fmt: skip
def test_the_networks_code_however_it_is_written(
    octets: bytes, code: str | None, network_error: tuple[int, int] | None
) -> None:
    receipt = of("", (ID, b"7"), (STATE, b"\x05"), (NETWORK_ERROR, octets))
    assert (receipt.error_code, receipt.network_error) == (code, network_error)


@pytest.mark.parametrize("written", ["180903120900123", "20180903120900123"])
def test_dates_with_milliseconds(written: str) -> None:
    assert of(f"id:7 submit date:{written} done date:{written} stat:DELIVRD").done_at == DONE_AT


@pytest.mark.parametrize("written", ["[1234]", "<1234>", "(1234)", '"1234"', "{1234}"])
def test_brackets_around_an_id(written: str) -> None:
    raw_id = of(f"id:{written} {DATES} stat:DELIVRD").raw_id
    assert normal_id(raw_id, "as_is", "receipt") == normal_id("1234", "as_is", "answer")


@pytest.mark.parametrize("broken", [b"\x04\x27\x00\x05\x02", b"\x04\x27\xff\xff", b"\x04\x27\x00", b"\x99", b"trail"])
def test_a_receipt_with_a_broken_parameter_behind_it(broken: bytes) -> None:
    whole = DeliverSm(short_message=f"id:7 {DATES} stat:DELIVRD".encode(), esm_class=4, tlvs=((ID, b"7\0"),))
    octets = encode(whole) + broken
    with pytest.raises(ProtocolError) as caught:
        decode(len(octets).to_bytes(4, "big") + octets[4:])
    assert caught.value.readable == whole
    assert not caught.value.fatal


def test_what_says_nothing_without_its_broken_parameters_is_refused() -> None:
    for empty in (DeliverSm(esm_class=4), DataSm(esm_class=4)):
        octets = encode(empty) + b"\x04\x24\x00\x50id:7"
        with pytest.raises(ProtocolError) as caught:
            decode(len(octets).to_bytes(4, "big") + octets[4:])
        assert caught.value.readable is None
    whole = DataSm(esm_class=4, tlvs=((PAYLOAD, b"id:7 stat:DELIVRD"),))
    octets = encode(whole) + b"\x04\x27\x00\x05\x02"
    with pytest.raises(ProtocolError) as caught:
        decode(len(octets).to_bytes(4, "big") + octets[4:])
    assert caught.value.readable == whole
