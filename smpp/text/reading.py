"""From the wire to text: user data header, data_coding, text (SMPP 3.4, 5.2.19; 3GPP TS 23.040, 9.2.3.24)."""

from __future__ import annotations

import unicodedata

from smpp.text import mislabelled
from smpp.text.gsm import NO_SHIFT, Shift
from smpp.values import valueclass

_ESM_CLASS_UDHI = 0x40
_ELEMENT_SINGLE_SHIFT, _ELEMENT_LOCKING_SHIFT = 0x24, 0x25
_JOINING = {b"\x05\x00\x03": 5, b"\x06\x08\x04": 6}  # how a header of joining alone begins, and its length
# SMPP's own codes; 2 and 4 are octets that mean nothing to us.
_CODINGS = {
    0x01: "ascii",
    0x03: "latin-1",
    0x05: "shift_jis",
    0x06: "iso8859-5",
    0x07: "iso8859-8",
    0x08: "utf-16",
    0x09: "shift_jis",
    0x0A: "iso2022_jp",
    0x0D: "euc_jp",
    0x0E: "euc_kr",
}
_BINARY = frozenset({0x02, 0x04})
_SCRIPT_PAGES = frozenset({*range(0x0F), 0x20, 0x21})  # alphabets and signs stand on few pages of 256 characters


@valueclass
class Concatenation:
    """Where a part belongs: reference (8 or 16 bits), total and 1-based number."""

    reference: int
    total: int
    number: int


@valueclass
class Content:
    """A short_message taken apart; `concatenation` is None for a text that is whole, `shift` is for `decode`."""

    body: bytes
    concatenation: Concatenation | None = None
    shift: Shift = NO_SHIFT


def split_header(short_message: bytes, esm_class: int) -> Content:
    """Parts header and body; a header that lies about its length counts as text.

    Carriers forget the flag in esm_class: octets that join parts, and that nobody writes as a text, are a header then.
    """
    if not short_message or not (esm_class & _ESM_CLASS_UDHI or _joins_unflagged(short_message)):
        return Content(short_message)
    length = short_message[0]
    if length + 1 > len(short_message):
        return Content(short_message)
    return _content(short_message[1 : length + 1], short_message[length + 1 :])


def _joins_unflagged(octets: bytes) -> bool:
    length = _JOINING.get(octets[:3])
    return length is not None and len(octets) > length + 1 and 1 <= octets[length] <= octets[length - 1] > 1


def _content(header: bytes, body: bytes) -> Content:
    """Elements may come in any order (23.040, 9.2.3.24), of one kind the last counts; a broken one ends the walk."""
    concatenation: Concatenation | None = None
    single = locking = at = 0
    while at + 2 <= len(header):
        element, size = header[at], header[at + 1]
        value = header[at + 2 : at + 2 + size]
        if len(value) < size:
            break
        if element in (0x00, 0x08):
            concatenation = _concatenation(element, value) or concatenation
        elif element == _ELEMENT_SINGLE_SHIFT and size == 1:
            single = value[0]
        elif element == _ELEMENT_LOCKING_SHIFT and size == 1:
            locking = value[0]
        at += 2 + size
    if at == len(header) - 1 and (header[at] or len(body) % 2):
        # The sender counted the length octet too: what seems left of the header is the first octet of the text.
        body = header[at:] + body
    return Content(body, concatenation, Shift(single, locking) if single or locking else NO_SHIFT)


def _concatenation(element: int, value: bytes) -> Concatenation | None:
    if len(value) != (3 if element == 0x00 else 4):
        return None
    total, number = value[-2:]
    found = Concatenation(int.from_bytes(value[:-2], "big"), total, number)
    return found if 1 <= number <= total else None


def is_binary(data_coding: int) -> bool:
    """Whether a data_coding says octets that are no text (SMPP 3.4, 5.2.19; 23.038, section 4)."""
    return data_coding in _BINARY or _gsm_group(data_coding) == "octets"


def decode(octets: bytes, data_coding: int, default_alphabet: str = "gsm7", shift: Shift = NO_SHIFT) -> str:
    """Text of a body without header; never raises: what cannot be read becomes U+FFFD.

    `shift` is what the header said of national tables; parts of one message may only be joined where it is the same.
    """
    codec = _CODINGS.get(data_coding) or {"ucs2": "utf-16"}.get(_gsm_group(data_coding), "")
    if codec == "utf-16":
        return _decode_utf16(octets)
    if not codec:
        codec = {"latin1": "latin-1", "ascii": "ascii"}.get(default_alphabet, "")
    if codec == "latin-1":
        return mislabelled.read_latin1(octets)
    if codec == "ascii":
        return mislabelled.read_ascii(octets)
    return octets.decode(codec, "replace") if codec else mislabelled.read_septets(octets, shift)


def _gsm_group(data_coding: int) -> str:
    """What a handset's coding scheme says where SMPP has no code: gsm7, octets or ucs2 (23.038, section 4)."""
    group = data_coding >> 4
    if group in (0x01, 0x04, 0x05):  # uncompressed, with or without a message class
        return {0x04: "octets", 0x08: "ucs2"}.get(data_coding & 0x0C, "gsm7")
    if group in (0x02, 0x03, 0x06, 0x07):  # compressed
        return "octets"
    if group == 0x0E:  # message waiting, store
        return "ucs2"
    if group == 0x0F:
        return "octets" if data_coding & 0x04 else "gsm7"
    return "gsm7"


def _decode_utf16(octets: bytes) -> str:
    """Big-endian unless a byte order mark or the octets themselves say otherwise (E12)."""
    if octets.startswith(b"\xff\xfe"):
        return octets[2:].decode("utf-16-le", "replace")
    if octets.startswith(b"\xfe\xff"):
        return octets[2:].decode("utf-16-be", "replace")
    return octets.decode("utf-16-le" if _is_little_endian(octets) else "utf-16-be", "replace")


def _is_little_endian(octets: bytes) -> bool:
    """Whether the second octets look like pages of a script and the first ones like letters on them."""
    first, second = set(octets[0::2]), set(octets[1::2])
    if len(octets) % 2 or len(first) <= len(second) or not second <= _SCRIPT_PAGES:
        return False
    if first <= _SCRIPT_PAGES and not _is_odd(octets.decode("utf-16-be", "replace")):
        return False  # as it stands it is a text already
    swapped = octets.decode("utf-16-le", "replace")
    return not _is_odd(swapped)


def _is_odd(text: str) -> bool:
    """Whether characters stand in it that nobody writes."""
    return any(unicodedata.category(char) in ("Cc", "Cn", "Co") and char not in "\t\n\r" for char in text)
