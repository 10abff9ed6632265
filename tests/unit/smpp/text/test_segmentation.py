"""Encodings, counts and cuts; the ids E01 ... name the real cases they come from."""

from __future__ import annotations

import pytest

from smpp.text import Carriage, TextError, decode, measure, segment, split_header, transliterate


def units(text: str, encoding: str = "auto", **how: str) -> list[int]:
    """Septets, octets or UTF-16 units per part, without headers."""
    parts = segment(text, encoding, Carriage(**how), reference=42)
    width = 2 if parts[0].data_coding == 8 else 1
    return [len(split_header(part.short_message, part.esm_class).body) // width for part in parts]


def test_e01_at_sign_is_octet_zero() -> None:
    (part,) = segment("mail a@b.example now", "auto", reference=1)
    assert part.short_message.hex() == "6d61696c206100622e6578616d706c65206e6f77"
    assert (part.data_coding, part.esm_class, part.tlvs) == (0, 0, ())


def test_e03_inbound_default_alphabet() -> None:
    assert decode(bytes.fromhex("00021b651107"), 0) == "@$€_ì"


def test_e04_extension_characters_take_two_septets() -> None:
    text = "a" * 159 + "\\"
    assert units(text) == [153, 8]
    assert measure(text).segments == 2


def test_e05_no_cut_inside_an_escape_pair() -> None:
    parts = segment("a" * 152 + "€" + "b" * 20, "auto", reference=1)
    assert [len(part.short_message) - 6 for part in parts] == [152, 22]
    assert parts[0].short_message.endswith(b"aa")
    assert parts[1].short_message[6:].startswith(b"\x1be")


@pytest.mark.parametrize(
    ("length", "expected"), [(159, [159]), (160, [160]), (161, [153, 8]), (306, [153, 153]), (307, [153, 153, 1])]
)
def test_e06_lengths_around_the_limits(length: int, expected: list[int]) -> None:
    assert units("x" * length) == expected
    assert measure("x" * length).segments == len(expected)


def test_e08_no_cut_inside_a_surrogate_pair() -> None:
    assert units("я" * 66 + "😀" + "я" * 10) == [66, 12]


@pytest.mark.parametrize(("text", "expected"), [("🐳" * 35, [70]), ("🐳" * 36, [66, 6]), ("😎" * 70, [66, 66, 8])])
def test_e09_emoji(text: str, expected: list[int]) -> None:
    assert units(text) == expected


def test_e11_brackets_count_once_in_ucs2() -> None:
    assert units("this is a " + "]" * 74 + "😘") == [67, 19]


def test_e12_ucs2_is_big_endian_without_mark() -> None:
    (part,) = segment("Привет", "auto", reference=1)
    assert part.short_message.hex() == "041f04400438043204350442"
    assert part.data_coding == 8


def test_e13_sixteen_bit_reference_leaves_even_parts() -> None:
    assert units("я" * 140, long_messages="udh16") == [66, 66, 8]
    assert units("x" * 161, long_messages="udh16") == [152, 9]
    (first, _) = segment("x" * 161, "auto", Carriage(long_messages="udh16"), reference=0x12345)
    assert first.short_message[:7].hex() == "06080423450201"


def test_e15_information_elements_in_any_order() -> None:
    first = split_header(bytes.fromhex("0b0504158a000000032a02014142"), 0x40)
    second = split_header(bytes.fromhex("0500032a02024344"), 0x40)
    assert first.concatenation is not None
    assert second.concatenation is not None
    assert [(c.reference, c.total, c.number) for c in (first.concatenation, second.concatenation)] == [
        (42, 2, 1),
        (42, 2, 2),
    ]
    assert (first.body, second.body) == (b"AB", b"CD")


@pytest.mark.parametrize(
    ("text", "encoding"), [("mañana café à", "gsm7"), ("tu número", "ucs2"), ("Ça va", "gsm7"), ("ça va", "ucs2")]
)
def test_e18_accents_decide_the_encoding(text: str, encoding: str) -> None:
    assert measure(text).encoding == encoding


def test_e20_long_text_never_overflows_short_message() -> None:
    parts = segment("x" * 300, "auto", reference=1)
    assert len(parts) == 2
    assert max(len(part.short_message) for part in parts) <= 159
    (whole,) = segment("x" * 300, "auto", Carriage(long_messages="payload"), reference=1)
    assert whole.short_message == b""
    assert [(tag, len(value)) for tag, value in whole.tlvs] == [(0x0424, 300)]


def test_e22_more_than_255_parts_are_refused() -> None:
    assert measure("x" * 39_015).segments == 255
    with pytest.raises(TextError, match="255"):
        measure("x" * 39_016)


def test_e23_sar_tlvs_leave_room_for_the_header() -> None:
    parts = segment("x" * 200, "auto", Carriage(long_messages="sar"), reference=42)
    assert [len(part.short_message) for part in parts] == [153, 47]
    assert {part.esm_class for part in parts} == {0}
    flat = b"".join(tag.to_bytes(2, "big") + len(value).to_bytes(2, "big") + value for tag, value in parts[0].tlvs)
    assert flat.hex() == "020c0002002a020e000102020f000101"


def test_e26_form_feed_is_an_extension_character() -> None:
    assert measure("a\x0cb").encoding == "gsm7"
    assert units("a\x0cb") == [4]
    assert measure("a\tb").encoding == "ucs2"
    assert units("a\r\nb") == [4]


def test_e28_latin1_carries_octets() -> None:
    assert units("é" * 140, default_alphabet="latin1") == [140]
    assert units("é" * 141, default_alphabet="latin1") == [134, 7]
    assert measure("á", carriage=Carriage(default_alphabet="latin1")).encoding == "latin1"
    assert measure("я", carriage=Carriage(default_alphabet="latin1")).encoding == "ucs2"
    assert segment("á", "auto", Carriage(default_alphabet="latin1"), reference=1)[0].data_coding == 3


def test_a_stored_encoding_survives_another_carrier() -> None:
    """Rerouted: latin1 goes on as Latin-1, gsm7 finds a form that the new carrier reads."""
    assert segment("á", "latin1", reference=1)[0].data_coding == 3
    assert segment("Δ", "gsm7", Carriage(default_alphabet="latin1"), reference=1)[0].data_coding == 8
    assert segment("é", "gsm7", Carriage(default_alphabet="ascii"), reference=1)[0].data_coding == 8


def test_ascii_counts_brackets_twice() -> None:
    assert units("[" * 80, default_alphabet="ascii") == [80]
    assert units("[" * 81, default_alphabet="ascii") == [76, 5]
    assert measure("[" * 81, carriage=Carriage(default_alphabet="ascii")).segments == 2


def test_the_eight_bit_reference_wraps() -> None:
    (first, second) = segment("x" * 161, "gsm7", reference=0x1FF)
    assert first.short_message[:6].hex() == "050003ff0201"
    assert second.short_message[:6].hex() == "050003ff0202"
    assert first.esm_class == 0x40


def test_gsm7_asked_for_but_impossible() -> None:
    with pytest.raises(TextError, match="auto or ucs2"):
        measure("я", "gsm7")
    with pytest.raises(TextError, match="use one of"):
        measure("a", "utf8")


def test_half_a_pair_is_refused() -> None:
    with pytest.raises(TextError, match="whole characters"):
        measure("\ud83d")


def test_errors_hold_none_of_the_text() -> None:
    with pytest.raises(TextError) as caught:
        measure("тайна", "gsm7")
    assert "тайна" not in str(caught.value)


def test_transliteration_keeps_what_has_no_near_character() -> None:
    assert transliterate("“Ça coûte 5 € – número…”") == '"Ça coute 5 € - numero..."'
    assert transliterate("Привет") == "Привет"


def test_header_that_lies_is_text() -> None:
    assert split_header(b"\xff\x00", 0x40).body == b"\xff\x00"
    assert split_header(b"\x03\x00\x03\x01ab", 0x40).concatenation is None


@pytest.mark.parametrize("header", [b"\x05\x00\x03\xf3\x02\x02", b"\x06\x08\x04\x01\xf3\x02\x02"])
@pytest.mark.parametrize(("text", "coding"), [("\u0631\u0645 \u0634", 8), ("a letter", 8), ("Hello", 0)])
def test_a_header_that_counts_its_own_length_octet_takes_none_of_the_text(
    header: bytes, text: str, coding: int
) -> None:
    octets = text.encode("utf-16-be" if coding == 8 else "ascii")
    right = split_header(header + octets, 0x40)
    assert right.concatenation is not None and right.body == octets
    assert split_header(bytes((header[0] + 1,)) + header[1:] + octets, 0x40) == right


@pytest.mark.parametrize(
    ("octets", "coding", "expected"),
    [
        (b"caf\xe9", 3, "café"),
        (b"abc", 1, "abc"),
        ("ж".encode("utf-16-be"), 8, "ж"),
        ("ж".encode("utf-16-be"), 0x19, "ж"),
        (b"\x1b\x1b", 0, " "),
        (b"\xff", 0, "ÿ"),
        (b"\x05\x00\xff\x1b", 0, "é@\ufffd"),
    ],
)
def test_decoding(octets: bytes, coding: int, expected: str) -> None:
    assert decode(octets, coding) == expected
