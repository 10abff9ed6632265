"""Text to short_message: choice of encoding, count of segments, and cuts that a handset can show part by part.

A cut never parts an extension pair (3GPP TS 23.038, 6.2.1.1) nor a surrogate pair, and no grapheme cluster where that
costs no further part; every part decodes alone. Headers follow 3GPP TS 23.040, 9.2.3.24.1 (8-bit reference), 9.2.3.24.8
(16-bit) and 9.2.3.24.15 (national table).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

from smpp.text import gsm
from smpp.text.forms import DATA_CODING_DEFAULT, Carriage, Form, TextError, forms_for
from smpp.text.graphemes import last_boundary
from smpp.values import valueclass

PARTS_MAX = 255  # the total is one octet (23.040, 9.2.3.24.1)

ESM_CLASS_UDHI = 0x40

TAG_SAR_MSG_REF_NUM = 0x020C
TAG_SAR_TOTAL_SEGMENTS = 0x020E
TAG_SAR_SEGMENT_SEQNUM = 0x020F
TAG_MESSAGE_PAYLOAD = 0x0424

_USUAL = Carriage()


@valueclass
class Measure:
    """What a text will take: `encoding` is gsm7, ucs2 or latin1; `shift` names the national table, if one is used."""

    encoding: str
    segments: int
    shift: str = "none"


_SHORT = Measure("gsm7", 1)  # nearly every message; the answer needs no look at where to cut
_SURELY_ALONE = 80  # septets at two a character


@valueclass
class Part:
    """One part as the handset shows it; `units` are septets, octets or UTF-16 units, headers not counted."""

    text: str
    units: int


@valueclass
class Segment:
    """One submit_sm's share of a text; `tlvs` are (tag, value) in wire order."""

    short_message: bytes
    data_coding: int
    esm_class: int = 0
    tlvs: tuple[tuple[int, bytes], ...] = ()


def measure(text: str, encoding: str = "auto", carriage: Carriage = _USUAL) -> Measure:
    """Encoding and number of segments of a text; raises TextError where it cannot be sent as asked."""
    if _is_short(text, encoding, carriage):
        return _SHORT
    form, pieces = _choose(text, encoding, carriage, strict=True)
    return Measure(form.encoding, len(pieces), form.shift)


def preview(text: str, encoding: str = "auto", carriage: Carriage = _USUAL) -> list[Part]:
    """The parts of a text in order, as `segment` cuts it; raises TextError where it cannot be sent."""
    form, pieces = _choose(text, encoding, carriage, strict=False)
    return [Part(piece, form.size(piece)) for piece in pieces]


def segment(text: str, encoding: str, carriage: Carriage = _USUAL, *, reference: int) -> list[Segment]:
    """The segments of a text in order; `reference` joins the parts (its low 8 or 16 bits); raises TextError.

    `encoding` is where the choice was when the text came in: a carrier that cannot show it so gets UCS-2.
    """
    if _is_short(text, encoding, carriage):
        return [Segment(gsm.encode(text), DATA_CODING_DEFAULT)]
    form, pieces = _choose(text, encoding, carriage, strict=False)
    if len(pieces) == 1:
        return [_whole(form, form.encode(text))]
    if carriage.long_messages == "payload":
        whole = _whole(form, form.encode(text))
        return [Segment(b"", whole.data_coding, whole.esm_class, ((TAG_MESSAGE_PAYLOAD, whole.short_message),))]
    places = ((reference, len(pieces), number) for number in range(1, len(pieces) + 1))
    return [
        _part(form, form.encode(piece), carriage.long_messages, place)
        for piece, place in zip(pieces, places, strict=True)
    ]


def _is_short(text: str, encoding: str, carriage: Carriage) -> bool:
    """Whether a text is surely one part in the default alphabet."""
    is_plain = carriage.default_alphabet == "gsm7" and encoding in ("auto", "gsm7")
    return is_plain and len(text) <= _SURELY_ALONE and gsm.fits(text)


def _whole(form: Form, octets: bytes) -> Segment:
    if not form.element:
        return Segment(octets, form.data_coding)
    return Segment(_header(form.element) + octets, form.data_coding, ESM_CLASS_UDHI)


def _part(form: Form, octets: bytes, long_messages: str, place: tuple[int, int, int]) -> Segment:
    reference, total, number = place
    if long_messages == "sar":
        tlvs = (
            (TAG_SAR_MSG_REF_NUM, (reference & 0xFFFF).to_bytes(2, "big")),
            (TAG_SAR_TOTAL_SEGMENTS, bytes((total,))),
            (TAG_SAR_SEGMENT_SEQNUM, bytes((number,))),
        )
        whole = _whole(form, octets)
        return Segment(whole.short_message, form.data_coding, whole.esm_class, tlvs)
    if long_messages == "udh16":
        element = b"\x08\x04" + (reference & 0xFFFF).to_bytes(2, "big") + bytes((total, number))
    else:
        element = bytes((0x00, 0x03, reference & 0xFF, total, number))
    return Segment(_header(element + form.element) + octets, form.data_coding, ESM_CLASS_UDHI)


def _header(elements: bytes) -> bytes:
    return bytes((len(elements),)) + elements


def _choose(text: str, encoding: str, carriage: Carriage, *, strict: bool) -> tuple[Form, list[str]]:
    """The form that takes the fewest segments, the first of them among equals, and the text cut for it."""
    forms = forms_for(text, encoding, carriage, strict=strict)
    best: tuple[Form, list[int]] | None = None
    for form in forms:
        ends = _ends(text, form, carriage.long_messages)
        if best is None or len(ends) < len(best[1]):
            best = form, ends
        if len(ends) == 1:
            break
    assert best is not None, "forms_for always has a form"
    form, ends = best
    if len(ends) > PARTS_MAX:
        raise TextError(f"the text needs more than {PARTS_MAX} segments: send a shorter one")
    starts = [0, *ends[:-1]]
    return form, [text[start:end] for start, end in zip(starts, ends, strict=True)]


def _ends(text: str, form: Form, long_messages: str) -> list[int]:
    """Where each part ends, in characters."""
    if form.encoding == "ucs2":
        form.encode(text)  # refuses half a surrogate pair, which no other form can hold
    if len(text) * 2 <= form.alone:
        return [len(text)]
    size = form.size(text)
    if size <= form.alone:
        return [len(text)]
    sums: Sequence[int] = range(len(text) + 1)
    if size > len(text):
        sums = list(accumulate(form.costs(text), initial=0))
    return _cuts(text, sums, form.beside(long_messages))


def _cuts(text: str, sums: Sequence[int], limit: int) -> list[int]:
    """The fewest parts of at most `limit` units each; `sums[n]` is the size of the first n characters.

    `floors[n]`: from here the rest fits into n parts, so a cut at or behind it may move back to the end of a cluster.
    """
    floors = [len(text)]
    while floors[-1] > 0:
        floors.append(bisect_left(sums, sums[floors[-1]] - limit))
    parts = len(floors) - 1
    ends: list[int] = []
    start = 0
    for rest in range(parts - 1, 0, -1):
        furthest = bisect_right(sums, sums[start] + limit) - 1
        at = last_boundary(text, max(floors[rest], start + 1), furthest)
        start = furthest if at is None else at
        ends.append(start)
    return [*ends, len(text)]
