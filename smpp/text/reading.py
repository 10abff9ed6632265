"""From the wire to text: user data header, data_coding, text (SMPP 3.4, 5.2.19; 3GPP TS 23.040, 9.2.3.24)."""

from __future__ import annotations

from dataclasses import dataclass

from smpp.text import gsm

_ESM_CLASS_UDHI = 0x40
_CODINGS = {0x01: "ascii", 0x03: "latin-1", 0x05: "shift_jis", 0x06: "iso8859-5", 0x07: "iso8859-8", 0x0E: "euc_kr"}


@dataclass(frozen=True, slots=True)
class Concatenation:
    """Where a part belongs: reference (8 or 16 bits), total and 1-based number."""

    reference: int
    total: int
    number: int


@dataclass(frozen=True, slots=True)
class Content:
    """A short_message taken apart; `concatenation` is None for a text that is whole."""

    body: bytes
    concatenation: Concatenation | None = None


def split_header(short_message: bytes, esm_class: int) -> Content:
    """Parts header and body; a header that lies about its length counts as text."""
    if not esm_class & _ESM_CLASS_UDHI or not short_message:
        return Content(short_message)
    length = short_message[0]
    if length + 1 > len(short_message):
        return Content(short_message)
    header, body = short_message[1 : length + 1], short_message[length + 1 :]
    return Content(body, _concatenation(header))


def _concatenation(header: bytes) -> Concatenation | None:
    """Elements may come in any order (23.040, 9.2.3.24); a broken one ends the walk."""
    at = 0
    while at + 2 <= len(header):
        element, size = header[at], header[at + 1]
        value = header[at + 2 : at + 2 + size]
        if len(value) < size:
            return None
        found = None
        if element == 0x00 and size == 3:
            found = Concatenation(value[0], value[1], value[2])
        elif element == 0x08 and size == 4:
            found = Concatenation(int.from_bytes(value[:2], "big"), value[2], value[3])
        if found is not None and 1 <= found.number <= found.total:
            return found
        at += 2 + size
    return None


def decode(octets: bytes, data_coding: int, default_alphabet: str = "gsm7") -> str:
    """Text of a body without header; never raises: what cannot be read becomes U+FFFD."""
    if data_coding == 0x08 or data_coding & 0xFC == 0x18:  # UCS-2, alone or with a message class (23.038, section 4)
        return octets.decode("utf-16-be", "replace")
    codec = _CODINGS.get(data_coding)
    if codec is None and default_alphabet == "latin1":
        codec = "latin-1"
    elif codec is None and default_alphabet == "ascii":
        codec = "ascii"
    return gsm.decode(octets) if codec is None else octets.decode(codec, "replace")
