"""Receipts as carriers vary them, beyond the real cases: words, dates, layouts, carriage, ids, and what is none."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from smpp.receipts import Receipt, normal_id, read, receipt_key
from smpp.receipts.dates import read_date
from smpp.receipts.states import BY_NUMBER, state_of_text

USUAL = "id:77005 sub:001 dlvrd:001 submit date:2401010101 done date:2401010102 stat:DELIVRD err:000 text:Hello"
DONE_AT = 1_704_070_920_000  # 2024-01-01T01:02:00Z


@dataclass
class Delivered:
    short_message: bytes = b""
    esm_class: int = 0x04
    data_coding: int = 0
    tlvs: tuple[tuple[int, bytes], ...] = ()


def pack(text: str) -> bytes:
    """Septets eight in seven octets, as handsets carry them."""
    bits = sum(ord(char) << (7 * n) for n, char in enumerate(text))
    return bits.to_bytes((7 * len(text) + 7) // 8, "little")


def of(text: str, **changes: object) -> Receipt:
    receipt = read(Delivered(text.encode("latin-1"), **changes))  # type: ignore[arg-type]
    assert receipt is not None
    return receipt


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("DELIVRD", "delivered"), ("Delivered", "delivered"), ("delivrd ", "delivered"), ("DELIVRD,", "delivered"),
        ("'DELIVRD'", "delivered"), ("EXPIRED", "expired"), ("EXPIRD", "expired"), ("Expired", "expired"),
        ("DELETED", "deleted"), ("UNDELIV", "undeliverable"), ("undelivered", "undeliverable"),
        ("UNDELIVERABLE", "undeliverable"), ("FAILED", "undeliverable"), ("failed", "undeliverable"),
        ("DELIVERY_FAILED", "undeliverable"), ("Delivery failed", "undeliverable"), ("not delivered", "undeliverable"),
        ("UNDELIVRABLE", "undeliverable"), ("REJECTD", "rejected"), ("rejectd", "rejected"), ("REJECTED", "rejected"),
        ("ACCEPTD", "accepted"), ("ACCEPTED", "accepted"), ("ENROUTE", "enroute"), ("EN_ROUTE", "enroute"),
        ("en-route", "enroute"), ("BUFFRED", "enroute"), ("BUFFERED", "enroute"), ("SCHEDULED", "enroute"),
        ("DeliveredToTerminal", "delivered"), ("DeliveryImpossible", "undeliverable"), ("MessageWaiting", "enroute"),
        ("DeliveryUncertain", "unknown"), ("DELIVERED_TO_HANDSET", "delivered"), ("DEFERRED", "enroute"),
        ("Delivered to SMSC", "enroute"), ("UNKNOWN", "unknown"), ("SKIPPED", "skipped"), ("PURGED", "unknown"),
        ("2", "delivered"), ("5", "undeliverable"), ("99", "unknown"), ("-", "unknown"), ("DELIVERY", "unknown"),
    ],
)  # fmt: skip
def test_words(word: str, state: str) -> None:
    receipt = of(USUAL.replace("DELIVRD", word))
    assert receipt.state == state
    assert receipt.final is (state in ("delivered", "expired", "deleted", "undeliverable", "rejected"))


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ("sub:1 dlvrd:1 stat:0 err:0", "delivered"), ("sub:001 dlvrd:001 stat:0 err:000", "delivered"),
        ("sub:1 dlvrd:0 stat:0 err:0", "enroute"), ("sub:0 dlvrd:0 stat:0 err:0", "enroute"), ("stat:0", "enroute"),
        ("sub:1 dlvrd:1 stat:0 err:5", "enroute"), ("sub:2 dlvrd:1 stat:0 err:0", "enroute"),
        ("sub:1 dlvrd:1 stat:1 err:0", "enroute"), ("sub:1 dlvrd:1 stat:5 err:0", "undeliverable"),
    ],
)  # fmt: skip
def test_a_state_of_zero_is_success_only_where_the_counts_say_so(counts: str, state: str) -> None:
    assert of(f"id:77005 {counts} text:").state == state


def test_no_guess_ever_says_delivered() -> None:
    for word in ("DELIVERABLE", "DELAYED", "DELIVERING", "DELIVERYPENDING", "UNDELIVERED", "DLR", "OK"):
        assert state_of_text(word) != "delivered"


@pytest.mark.parametrize("number", range(11))
def test_states_of_the_tlv(number: int) -> None:
    for width in (1, 2, 4):
        receipt = of("", tlvs=((0x001E, b"77\0"), (0x0427, number.to_bytes(width, "big"))))
        assert receipt.state == BY_NUMBER.get(number, "unknown")


def test_a_tlv_that_names_no_state_leaves_it_to_the_text() -> None:
    for octets in (b"\x00", b"\x63", b"", b"DELIVRD"):
        assert of(USUAL, tlvs=((0x0427, octets),)).state == "delivered"
    assert of(USUAL, tlvs=((0x0427, b"\x05"),)).state == "undeliverable"


@pytest.mark.parametrize(
    "text",
    [
        USUAL,
        USUAL.upper().replace("TEXT:HELLO", "TEXT:"),
        "ID:77005 SUB:001 DLVRD:001 SUBMIT DATE:2401010101 DONE DATE:2401010102 STAT:DELIVRD ERR:000 TEXT:",
        USUAL.replace(":", ": "),
        USUAL.replace(":", " : "),
        USUAL.replace(" sub", "\r\nsub").replace(" stat", "\nstat"),
        USUAL.replace(" sub", ",sub").replace(" dlvrd", ";dlvrd").replace(" stat", "|stat"),
        USUAL.replace("submit date", "submit_date").replace("done date", "donedate"),
        USUAL.replace("stat:", "status:").replace("err:", "error:"),
        USUAL.replace(":", "="),
        USUAL.replace("stat:", "stat ").replace("err:", "err "),
        USUAL.replace(":", " ").replace("text Hello", "text:Hello"),
        "stat:DELIVRD err:000 done date:2401010102 submit date:2401010101 id:77005 text:x",
        "text:Hello id:77005 sub:001 dlvrd:001 submit date:2401010101 done date:2401010102 stat:DELIVRD err:000",
        "msgid:77005 state:DELIVRD done date:2401010102 err:000",
        "message_id=77005&status=Delivered&done_date=2401010102&errcode=000",
        '{"id":"77005","stat":"DELIVRD","done date":"2401010102","err":"000"}',
        "  " + USUAL + "\0\0",
        'id:"77005" stat:"DELIVRD" done date:2401010102 err:000',
        USUAL.replace("text:Hello", "text:id:9 stat:UNDELIV err:042 text:id:8"),
        USUAL.replace(" ", "").replace("submitdate", "submit date").replace("donedate", "done date"),
        "id:77005sub:001dlvrd:001submit date:2401010101done date:2401010102stat:DELIVRDerr:000text:id:9",
        USUAL.replace(" sub", " network:23415 sub").replace(" text", " nack:0 price=0.04 text"),
        USUAL.replace(" stat", ",mccmnc:23415,stat").replace(" text:", " Msg:"),
        '{"id":"77005","imsi":"1","stat":"DELIVRD","err":"000","node":"x","done date":"2401010102"}',
        "text:id:9 stat:UNDELIV err:042 id:8 id:77005 done date:2401010102 stat:DELIVRD err:000",
        USUAL.replace("text:Hello", "Text:\x05\x00\x03\x2a\x02\x01\x00id:9"),
    ],
)
def test_layouts(text: str) -> None:
    receipt = of(text)
    assert (receipt.raw_id, receipt.state, receipt.error_code) == ("77005", "delivered", "000")
    assert receipt.done_at == DONE_AT


@pytest.mark.parametrize(
    "text", ["sub:001 valid:yes stat:DELIVRD err:000", "stat:DELIVRD text:id:77005", "id: stat:DELIVRD"]
)
def test_no_other_word_is_taken_for_the_id(text: str) -> None:
    assert of(text).raw_id == ""


def test_a_value_ends_where_the_next_field_begins_whether_known_or_not() -> None:
    """An id may hold blanks and signs, another field's name it never holds."""
    assert of("id:12 34 foo:1 stat:UNDELIV").raw_id == "12 34"
    assert of("id:12:34:56 stat:UNDELIV").raw_id == "12:34:56"
    assert of("id:a=b stat:not delivered foo=1").raw_state == "not delivered"
    assert of("id:1 stat:UNDELIV err:EC:027 foo : x").error_code == "EC:027"


@pytest.mark.parametrize(
    "hostile", [" " * 2048, "id:" + " a" * 1022, "text:" * 400, "err" * 682, "id:" + "a\t" * 1000, "id:a" + "-" * 2040]
)
def test_reading_takes_no_time_whatever_a_carrier_writes(hostile: str) -> None:
    def seconds() -> float:
        began = time.thread_time()  # of the processor: a busy machine does not count
        of(hostile)
        return time.thread_time() - began

    assert min(seconds() for _ in range(3)) < 0.03


@pytest.mark.parametrize(
    ("octets", "changes"),
    [
        (USUAL.replace("submit date", "submit\x11date").replace("done date", "done\x11date").encode(), {}),
        (USUAL.encode("utf-16-be"), {"data_coding": 8}),
        (USUAL.encode("utf-16-le"), {"data_coding": 8}),
        (b"\xfe\xff" + USUAL.encode("utf-16-be"), {"data_coding": 8}),
        (b"\xff\xfe" + USUAL.encode("utf-16-le"), {"data_coding": 8}),
        (USUAL.encode("utf-16-be"), {"data_coding": 0}),
        (USUAL.encode(), {"data_coding": 8}),
        (USUAL.encode(), {"data_coding": 3}),
        (pack(USUAL), {"data_coding": 0}),
        (pack(USUAL), {"data_coding": 0xF1}),
        (b"\x05\x00\x03\x01\x01\x01" + USUAL.encode(), {"esm_class": 0x44}),
        (USUAL.encode(), {"esm_class": 0x44}),
        (USUAL.encode(), {"esm_class": 0x07}),
        (b"", {"tlvs": ((0x0424, USUAL.encode()),)}),
        (b"", {"tlvs": ((0x0424, USUAL.encode("utf-16-be")),), "data_coding": 8}),
        (b"see payload", {"tlvs": ((0x0424, USUAL.encode()),)}),
    ],
)
def test_carriage(octets: bytes, changes: dict[str, object]) -> None:
    receipt = read(Delivered(octets, **changes))  # type: ignore[arg-type]
    assert receipt is not None
    assert (receipt.raw_id, receipt.state, receipt.done_at) == ("77005", "delivered", DONE_AT)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("2401010102", DONE_AT), ("240101010200", DONE_AT), ("202401010102", DONE_AT), ("20240101010200", DONE_AT),
        ("240101010200000+", DONE_AT), ("240101030200008+", DONE_AT), ("231231210200016-", DONE_AT),
        ("2024-01-01 01:02", DONE_AT), ("1999999999", None),
        ("2024-01-01 01:02:00", DONE_AT), ("2024-01-01T01:02:00Z", DONE_AT), ("2024-01-01T02:02:00+01:00", DONE_AT),
        ("2024-01-01T02:02:00.123+0100", DONE_AT), ("2024/01/01 01:02:00", DONE_AT), ("24-01-01 01:02", DONE_AT),
        ("240101 0102", DONE_AT), ("20240101 010200", DONE_AT), ("20240101T010200Z", DONE_AT), ("240101 01020", None),
        ("20240101 020200+01:00", DONE_AT), ("241301 0102", None), ("240101 2460", None),
        ("2024-01-01 01:02:00 UTC", DONE_AT), ("2024-13-01 01:02", None), ("2024-01-01T01:02:00+24:00", None),
        ("24010101", None), ("24010101020", None), ("9999999999", None), ("0", None), ("null", None), ("N/A", None),
    ],
)  # fmt: skip
def test_dates_as_they_come(written: str, shown: int | None) -> None:
    assert of(USUAL.replace("done date:2401010102", f"done date:{written}")).done_at == shown


def test_digits_with_two_readings_are_settled_by_what_is_near() -> None:
    assert read_date("1704070920", near_at=DONE_AT) == read_date("1704070920000", near_at=DONE_AT) == DONE_AT
    assert read_date("1999999999", near_at=DONE_AT) is None
    assert read_date("1705171705", near_at=DONE_AT) == 1_705_171_705_000  # 2024, not the year 17
    assert read_date("1705171705", near_at=1_495_000_000_000) == read_date("170517170500")
    assert read_date("2401010102", near_at=DONE_AT) == DONE_AT


def test_the_networks_code_speaks_where_the_text_has_only_zeros() -> None:
    code = ((0x0423, b"\x03\x08\x02"),)
    assert of(USUAL, tlvs=code).error_code == "2050"
    assert of(USUAL.replace("err:000", "err:21b"), tlvs=code).error_code == "21b"
    assert of(USUAL.replace("err:000 ", ""), tlvs=code).error_code == "2050"
    assert of(USUAL, tlvs=((0x0423, b"\x03\x00\x00"),)).error_code == "000"
    assert of(USUAL, tlvs=((0x0423, b"\x03\x08"),)).error_code == "000"


@pytest.mark.parametrize(
    ("esm_class", "final"), [(0x04, True), (0x05, True), (0x44, True), (0x24, True), (0x20, False), (0x28, False)]
)
def test_intermediate_notifications_are_reports_and_never_final(esm_class: int, final: bool) -> None:
    receipt = of(USUAL, esm_class=esm_class)
    assert (receipt.state, receipt.final) == ("delivered", final)


@pytest.mark.parametrize("esm_class", [0x00, 0x03, 0x40, 0x08, 0x10, 0x18])
@pytest.mark.parametrize(
    "text", [USUAL, "id:77005 stat:DELIVRD", "ID: card lost, stat!", "please cancel order id:12", "text:"]
)
def test_a_handset_can_write_the_words_of_a_receipt(text: str, esm_class: int) -> None:
    assert read(Delivered(text.encode(), esm_class=esm_class)) is None


@pytest.mark.parametrize(
    "tlvs",
    [
        ((0x001E, b"77005\0"), (0x0427, b"\x02")),
        ((0x0427, b"\x02"),),
        ((0x001E, b"77005\0"),),
        ((0x0423, b"\x03\x00\x00"), (0x0427, b"\x02")),
    ],
)
def test_tlvs_of_receipts_flag_one_that_esm_class_does_not(tlvs: tuple[tuple[int, bytes], ...]) -> None:
    receipt = read(Delivered(USUAL.encode(), esm_class=0, tlvs=tlvs))
    assert receipt is not None
    assert (receipt.raw_id, receipt.state) == ("77005", "delivered")


def test_a_tlv_alone_makes_no_receipt_of_a_text() -> None:
    assert read(Delivered(b"hello", esm_class=0, tlvs=((0x0427, b"\x02"),))) is None
    assert read(Delivered(b"hello", esm_class=0, tlvs=((0x001E, b"1\0"),))) is None
    assert read(Delivered(USUAL.encode(), esm_class=0, tlvs=((0x0204, b"\x00\x01"),))) is None


def test_a_carrier_that_never_flags() -> None:
    """Only where the dialect says so, and only in the full form: a handset's short lookalike stays a text."""
    unflagged = read(Delivered(USUAL.encode(), esm_class=0), unflagged=True)
    assert unflagged is not None
    assert (unflagged.raw_id, unflagged.state) == ("77005", "delivered")
    for text in (
        "id:1602718841 submit date:2204152009 done date:2204152009 stat:DELIVRD err:000",
        "ID:1602718841 SUB:001 DLVRD:001 SUBMIT DATE:2204152009 DONE DATE:2204152009 STAT:DELIVRD ERR:000 TEXT:",
        USUAL.replace(" ", "  ") + "\r\n\0",
        USUAL.replace(" err:000", ""),
    ):
        short = read(
            Delivered(
                text.replace("submit  date", "submit date").replace("done  date", "done date").encode(), esm_class=0
            ),
            unflagged=True,
        )
        assert short is not None and short.state == "delivered", text
    for text in ("done date:2204152009 stat:DELIVRD", "hello " + USUAL, "id:1 sub:001 dlvrd:001 stat:DELIVRD err:000"):
        assert read(Delivered(text.encode(), esm_class=0), unflagged=True) is None
    assert read(Delivered(b"id:77005 stat:DELIVRD", esm_class=0), unflagged=True) is None
    assert read(Delivered(USUAL.replace("DELIVRD", "").encode(), esm_class=0), unflagged=True) is None


@pytest.mark.parametrize(
    ("answered", "reported", "dialect"),
    [
        ("77005", "77005", "as_is"),
        ("0000077005", "77005", "as_is"),
        ("77005", "0000077005\0", "as_is"),
        ("5A4BCE5C-0A0E-4A96", "5a4bce5c-0a0e-4a96", "as_is"),
        ("0e9c9f21-81ef-4974-a414-000000000004", "0E9C9F21-81EF-4974-A414-000000000004", "as_is"),
        (" 77005\r\n", '"77005"', "as_is"),
        ("{0e9c9f21-81ef-4974-a414-000000000004}", "{0E9C9F21-81EF-4974-A414-000000000004}", "as_is"),
        ("0x3ADE68B1", "0X3ade68b1", "as_is"),
        ("0x3ADE68B1", "3ade68b1", "as_is"),
        ("msg_77005", "msg\x1177005", "as_is"),
        ("ABCxyz", "abcXYZ", "case_insensitive"),
        ("3ade68b1", "987654321", "hex_to_decimal"),
        ("3ADE68B1", "0987654321", "hex_to_decimal"),
        ("0x3ADE68B1", "0987654321", "hex_to_decimal"),
        ("0003ade68b1", "987654321", "hex_to_decimal"),
        ("0e9c9f21-81ef-4974-a414-000000000004", "0e9c9f21-81ef-4974-a414-000000000004", "hex_to_decimal"),
        ("0e9c9f2181ef4974a414000000000004", "0E9C9F2181EF4974A414000000000004", "hex_to_decimal"),
        ("qa7kwxns00krxr0000ey96zzcw", "qa7kwxns00krxr0000ey96zzcw", "hex_to_decimal"),
        ("ffffffffffffffffffffffffffffffff", str(2**128 - 1), "hex_to_decimal"),
        ("FFFFFFFE", "-2", "hex_to_decimal"),
        ("80000000", "-2147483648", "hex_to_decimal"),
        ("812FC7470000001B", "9308878062554710043", "hex_to_decimal"),
        ("812FC7470000001B", "-9137866011154841573", "hex_to_decimal"),
        ("-2", "fffffffe", "decimal_to_hex"),
        ("987654321", "3ADE68B1", "decimal_to_hex"),
        ("0987654321", "03ade68b1", "decimal_to_hex"),
        ("1234567890" * 5, "00000" + "1234567890" * 5, "as_is"),
        ("0", "00", "as_is"),
    ],
)  # fmt: skip
def test_ids_meet(answered: str, reported: str, dialect: str) -> None:
    receipt = of(USUAL.replace("id:77005", f"id:{reported.strip()}"))
    assert normal_id(answered, dialect, "answer") == normal_id(receipt.raw_id, dialect, "receipt")


@pytest.mark.parametrize(
    ("answered", "in_tlv", "in_text", "dialect"),
    [
        ("12345678", "12345678", "305419896", "hex_to_decimal"),
        ("3ade68b1", "3ADE68B1", "0987654321", "hex_to_decimal"),
        ("12345678", "305419896", "305419896", "hex_to_decimal"),
        ("12345678", "305419896", "3054198", "hex_to_decimal"),
        ("12345678", "305419896", "", "hex_to_decimal"),
        ("305419896", "305419896", "12345678", "decimal_to_hex"),
        ("12345678", "12345678", "305419896", "as_is"),
        ("5a4bce5c-0a0e-4a96", "5a4bce5c-0a0e-4a96", "5", "hex_to_decimal"),
    ],
)
def test_the_tlv_repeats_the_answer_and_the_text_has_the_other_base(
    answered: str, in_tlv: str, in_text: str, dialect: str
) -> None:
    receipt = of(USUAL.replace("id:77005 ", f"id:{in_text} "), tlvs=((0x001E, in_tlv.encode() + b"\0"),))
    assert (receipt.raw_id, receipt.id_in_text) == (in_tlv, in_text)
    key = receipt_key(receipt.raw_id, receipt.id_in_text, dialect)
    assert key == normal_id(answered, dialect, "answer")


@pytest.mark.parametrize(
    ("answered", "reported", "dialect"),
    [
        ("77005", "77006", "as_is"), ("10", "16", "as_is"), ("ABCxyz", "abcXYZ", "as_is"),
        ("10", "10", "hex_to_decimal"), ("0", "", "as_is"), ("1e5", "100000", "as_is"), ("12", "-12", "as_is"),
    ],
)  # fmt: skip
def test_other_ids_do_not(answered: str, reported: str, dialect: str) -> None:
    assert normal_id(answered, dialect, "answer") != normal_id(reported, dialect, "receipt")
