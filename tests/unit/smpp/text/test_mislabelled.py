"""Inbound texts whose data_coding says one alphabet and whose octets are of another."""

from __future__ import annotations

import pytest

from smpp.text import decode, gsm


def pack(text: str) -> bytes:
    """Septets eight in seven octets, as handsets carry them."""
    bits = sum(septet << (7 * place) for place, septet in enumerate(gsm.encode(text)))
    return bits.to_bytes((7 * len(text) + 7) // 8, "little")


@pytest.mark.parametrize("coding", [0x00, 0x10, 0x11, 0xF0, 0xF1])
@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (pack("hello"), "hello"),
        (pack("STOP"), "STOP"),
        (pack("Your code is 493201, thanks"), "Your code is 493201, thanks"),
        ("mañana café".encode("latin-1"), "mañana café"),
        ("It’s “ok” – 5 €".encode("cp1252"), "It’s “ok” – 5 €"),
        ("café – naïve".encode(), "café – naïve"),
        ("привет".encode(), "привет"),
        ("👍 ok".encode(), "👍 ok"),
        ("Stop it".encode("utf-16-be"), "Stop it"),
    ],
)
def test_octets_that_are_no_septets(octets: bytes, coding: int, text: str) -> None:
    assert decode(octets, coding) == text


@pytest.mark.parametrize(
    "text",
    ["mail a@b.example", "@@@@@@@@", "@a@b", "è£$¥ èéùìò", "[ok] {5} €", "ΔΦΓΛΩΠΨΣΘΞ", "\n\r\f", "@Δ@_@Φ@Γ@Λ", ""],
)
def test_septets_are_believed(text: str) -> None:
    assert decode(gsm.encode(text), 0) == text


@pytest.mark.parametrize(
    ("octets", "coding", "alphabet", "text"),
    [
        ("déjà".encode("latin-1"), 0x01, "gsm7", "déjà"),
        ("déjà".encode(), 0x01, "gsm7", "déjà"),
        ("déjà".encode("latin-1"), 0x00, "ascii", "déjà"),
        ("It’s".encode("cp1252"), 0x03, "gsm7", "It’s"),
        ("It’s".encode(), 0x03, "gsm7", "It’s"),
        ("It’s".encode(), 0x00, "latin1", "It’s"),
        ("Â©".encode("latin-1"), 0x03, "gsm7", "Â©"),  # could be UTF-8 as well: what the carrier says counts
    ],
)
def test_other_alphabets(octets: bytes, coding: int, alphabet: str, text: str) -> None:
    assert decode(octets, coding, alphabet) == text


@pytest.mark.parametrize("octets", [b"\x05\x00\xff\x1b", bytes(range(256)), b"\x81\x8d\x8f\x01"])
def test_what_is_no_text_is_replaced_and_raises_nothing(octets: bytes) -> None:
    assert "\ufffd" in decode(octets, 0)
