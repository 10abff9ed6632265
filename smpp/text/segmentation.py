"""Text to short_message: choice of encoding, count of segments, and cuts that a handset can show part by part.

A cut never parts an extension pair (3GPP TS 23.038, 6.2.1.1) nor a surrogate pair; every part decodes alone.
Headers follow 3GPP TS 23.040, 9.2.3.24.1 (8-bit) and 9.2.3.24.8 (16-bit reference).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from smpp.text import gsm

PARTS_MAX = 255  # the total is one octet (23.040, 9.2.3.24.1)

ESM_CLASS_UDHI = 0x40
DATA_CODING_DEFAULT = 0x00
DATA_CODING_LATIN1 = 0x03
DATA_CODING_UCS2 = 0x08

TAG_SAR_MSG_REF_NUM = 0x020C
TAG_SAR_TOTAL_SEGMENTS = 0x020E
TAG_SAR_SEGMENT_SEQNUM = 0x020F
TAG_MESSAGE_PAYLOAD = 0x0424

ENCODINGS = ("auto", "gsm7", "ucs2", "latin1")
LONG_MESSAGES = ("udh8", "udh16", "sar", "payload")
DEFAULT_ALPHABETS = ("gsm7", "latin1", "ascii")


class TextError(ValueError):
    """The text cannot be sent as asked; the message says what to do about it and holds none of the text."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What a text will take: `encoding` is gsm7, ucs2 or, where the carrier's default alphabet is Latin-1, latin1."""

    encoding: str
    segments: int


@dataclass(frozen=True, slots=True)
class Segment:
    """One submit_sm's share of a text; `tlvs` are (tag, value) in wire order."""

    short_message: bytes
    data_coding: int
    esm_class: int = 0
    tlvs: tuple[tuple[int, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class _Room:
    """Octets that fit: alone, and beside the header that joins parts."""

    alone: int
    udh8: int
    udh16: int
    size_of: Callable[[bytes], int]
    cut_at: Callable[[bytes, int], int]

    def beside(self, long_messages: str) -> int:
        return self.udh8 if long_messages in ("udh8", "payload", "sar") else self.udh16


def _cut_septets(octets: bytes, end: int) -> int:
    return end - 1 if octets[end - 1] == gsm.ESCAPE else end


def _cut_utf16(octets: bytes, end: int) -> int:
    return end - 2 if 0xD8 <= octets[end - 2] <= 0xDB else end


def _cut_anywhere(_octets: bytes, end: int) -> int:
    return end


def _septets_of_ascii(octets: bytes) -> int:
    return gsm.septets(octets.decode("ascii"))


# 140 octets on the air: 160 septets, 70 UTF-16 units; a header of 6 leaves 153 and 67, one of 7 leaves 152 and 66.
_ROOMS = {
    "gsm7": _Room(160, 153, 152, len, _cut_septets),
    "ascii": _Room(160, 153, 152, _septets_of_ascii, _cut_anywhere),
    "latin1": _Room(140, 134, 133, len, _cut_anywhere),
    "ucs2": _Room(140, 134, 132, len, _cut_utf16),
}
_DATA_CODINGS = {
    "gsm7": DATA_CODING_DEFAULT,
    "ascii": DATA_CODING_DEFAULT,
    "latin1": DATA_CODING_LATIN1,
    "ucs2": DATA_CODING_UCS2,
}


def measure(
    text: str, encoding: str = "auto", *, default_alphabet: str = "gsm7", long_messages: str = "udh8"
) -> Measure:
    """Encoding and number of segments of a text; raises TextError where it cannot be sent."""
    wire = _wire_encoding(text, encoding, default_alphabet)
    parts = 1 if _surely_alone(text, wire) else len(_parts(_octets(text, wire), wire, long_messages))
    return Measure("gsm7" if wire == "ascii" else wire, parts)


def segment(
    text: str, encoding: str, *, long_messages: str = "udh8", reference: int, default_alphabet: str = "gsm7"
) -> list[Segment]:
    """The segments of a text in order; `reference` joins the parts (its low 8 or 16 bits); raises TextError."""
    wire = _wire_encoding(text, encoding, default_alphabet)
    octets = _octets(text, wire)
    coding = _DATA_CODINGS[wire]
    parts = _parts(octets, wire, long_messages)
    if len(parts) == 1:
        return [Segment(octets, coding)]
    if long_messages == "payload":
        return [Segment(b"", coding, 0, ((TAG_MESSAGE_PAYLOAD, octets),))]
    return [_part(part, coding, long_messages, (reference, len(parts), n)) for n, part in enumerate(parts, 1)]


def _part(part: bytes, coding: int, long_messages: str, place: tuple[int, int, int]) -> Segment:
    reference, total, number = place
    if long_messages == "sar":
        tlvs = (
            (TAG_SAR_MSG_REF_NUM, (reference & 0xFFFF).to_bytes(2, "big")),
            (TAG_SAR_TOTAL_SEGMENTS, bytes((total,))),
            (TAG_SAR_SEGMENT_SEQNUM, bytes((number,))),
        )
        return Segment(part, coding, 0, tlvs)
    if long_messages == "udh16":
        header = b"\x06\x08\x04" + (reference & 0xFFFF).to_bytes(2, "big") + bytes((total, number))
    else:
        header = bytes((0x05, 0x00, 0x03, reference & 0xFF, total, number))
    return Segment(header + part, coding, ESM_CLASS_UDHI)


def _surely_alone(text: str, wire: str) -> bool:
    return wire != "ucs2" and len(text) <= 80


def _wire_encoding(text: str, encoding: str, default_alphabet: str) -> str:
    if encoding not in ENCODINGS:
        raise TextError(f"unknown encoding: use one of {', '.join(ENCODINGS)}")
    if default_alphabet not in DEFAULT_ALPHABETS:
        raise TextError(f"unknown default alphabet: use one of {', '.join(DEFAULT_ALPHABETS)}")
    if encoding == "ucs2":
        return "ucs2"
    if encoding == "latin1" or default_alphabet == "latin1":
        return _latin1_or_ucs2(text, encoding)
    if not gsm.fits(text):
        if encoding == "gsm7":
            raise TextError("the text has characters outside the GSM 7-bit alphabet: use encoding auto or ucs2")
        return "ucs2"
    if default_alphabet == "ascii":
        # Stored as gsm7 but beyond this carrier's alphabet: UCS-2 carries it unharmed.
        return "ascii" if text.isascii() else "ucs2"
    return "gsm7"


def _latin1_or_ucs2(text: str, encoding: str) -> str:
    if encoding == "gsm7" and not gsm.fits(text):
        raise TextError("the text has characters outside the GSM 7-bit alphabet: use encoding auto or ucs2")
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        return "ucs2"
    return "latin1"


def _octets(text: str, wire: str) -> bytes:
    if wire == "gsm7":
        return gsm.encode(text)
    if wire in ("latin1", "ascii"):
        return text.encode(wire)
    try:
        return text.encode("utf-16-be")  # big-endian, no byte order mark (23.038, 6.2.3)
    except UnicodeEncodeError:
        raise TextError("the text has half of a surrogate pair: send whole characters") from None


def _parts(octets: bytes, wire: str, long_messages: str) -> list[bytes]:
    if long_messages not in LONG_MESSAGES:
        raise TextError(f"unknown way of sending long messages: use one of {', '.join(LONG_MESSAGES)}")
    room = _ROOMS[wire]
    if len(octets) <= room.alone and room.size_of(octets) <= room.alone:
        return [octets]
    limit = room.beside(long_messages)
    parts = _parts_of_ascii(octets, limit) if wire == "ascii" else _parts_of(octets, limit, room)
    if len(parts) > PARTS_MAX:
        raise TextError(f"the text needs more than {PARTS_MAX} segments: send a shorter one")
    return parts


def _parts_of(octets: bytes, limit: int, room: _Room) -> list[bytes]:
    parts: list[bytes] = []
    start = 0
    while len(octets) - start > limit:
        end = room.cut_at(octets, start + limit)
        parts.append(octets[start:end])
        start = end
    parts.append(octets[start:])
    return parts


def _parts_of_ascii(octets: bytes, limit: int) -> list[bytes]:
    """The carrier turns ASCII into GSM septets itself, so brackets and the like count twice here too."""
    parts: list[bytes] = []
    start = used = 0
    for at, octet in enumerate(octets):
        cost = 2 if chr(octet) in gsm.EXTENDED else 1
        if used + cost > limit:
            parts.append(octets[start:at])
            start, used = at, 0
        used += cost
    parts.append(octets[start:])
    return parts
