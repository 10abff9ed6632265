"""The forms a text can take on the wire, how much of it fits into one short_message, and which one is chosen.

140 octets travel on the air: 160 septets or 70 UTF-16 units. A header of 6 octets (8-bit reference) leaves 153 or 67,
one of 7 (16-bit reference) 152 or 66; a national table takes 3 octets more, and 4 alone (3GPP TS 23.040, 9.2.3.24).
"""

from __future__ import annotations

from collections.abc import Callable

from smpp.text import gsm
from smpp.values import valueclass

DATA_CODING_DEFAULT = 0x00
DATA_CODING_LATIN1 = 0x03
DATA_CODING_UCS2 = 0x08

ENCODINGS = ("auto", "gsm7", "ucs2", "latin1")
LONG_MESSAGES = ("udh8", "udh16", "sar", "payload")
DEFAULT_ALPHABETS = ("gsm7", "latin1", "ascii")
NATIONAL_SHIFTS = ("none", "auto", "turkish", "spanish", "portuguese")

_ELEMENT_SINGLE_SHIFT = 0x24
_LANGUAGES = {"turkish": gsm.TURKISH, "spanish": gsm.SPANISH, "portuguese": gsm.PORTUGUESE}


class TextError(ValueError):
    """The text cannot be sent as asked; the message says what to do about it and holds none of the text."""


@valueclass
class Carriage:
    """How a carrier takes text: the words of the policy's `dialect` (contract section 3)."""

    long_messages: str = "udh8"
    default_alphabet: str = "gsm7"
    national_shift: str = "none"

    def __post_init__(self) -> None:
        """Raises TextError for a word that none of the settings knows."""
        for what, word, known in (
            ("way of sending long messages", self.long_messages, LONG_MESSAGES),
            ("default alphabet", self.default_alphabet, DEFAULT_ALPHABETS),
            ("national shift", self.national_shift, NATIONAL_SHIFTS),
        ):
            if word not in known:
                raise TextError(f"unknown {what}: use one of {', '.join(known)}")


@valueclass
class Form:
    """One way of writing text: `encoding` as tenants see it, room in units alone and beside a joining header."""

    encoding: str
    data_coding: int
    alone: int
    udh8: int
    udh16: int
    encode: Callable[[str], bytes]
    size: Callable[[str], int]  # units of a text that fits the form
    wide: frozenset[str] | None = frozenset()  # characters that take two units; None: all beyond U+FFFF
    shift: str = "none"
    element: bytes = b""  # of the header, names the national table

    def beside(self, long_messages: str) -> int:
        """Units that fit beside the header that joins parts; a carrier builds it itself from SAR TLVs or a payload."""
        return self.udh16 if long_messages == "udh16" else self.udh8

    def costs(self, text: str) -> list[int]:
        """Units of each character."""
        wide = self.wide
        if wide is None:
            return [2 if char > "\uffff" else 1 for char in text]
        return [2 if char in wide else 1 for char in text]


def _units(text: str) -> int:
    return len(text.encode("utf-16-be", "surrogatepass")) // 2


def _utf16(text: str) -> bytes:
    try:
        return text.encode("utf-16-be")  # big-endian, no byte order mark (23.038, 6.2.3)
    except UnicodeEncodeError:
        raise TextError("the text has half of a surrogate pair: send whole characters") from None


def _latin1(text: str) -> bytes:
    return text.encode("latin-1")


def _ascii(text: str) -> bytes:
    return text.encode("ascii")


def _national(name: str, language: int) -> Form:
    table = gsm.table(gsm.Shift(single=language))
    return Form(
        "gsm7",
        DATA_CODING_DEFAULT,
        155,
        149,
        148,
        table.encode,
        table.septets,
        table.extended,
        name,
        bytes((_ELEMENT_SINGLE_SHIFT, 1, language)),
    )


GSM7 = Form("gsm7", DATA_CODING_DEFAULT, 160, 153, 152, gsm.encode, gsm.septets, gsm.EXTENDED)
# The carrier turns ASCII into septets itself, so brackets and the like count twice here too.
ASCII = Form("gsm7", DATA_CODING_DEFAULT, 160, 153, 152, _ascii, gsm.septets, gsm.EXTENDED)
LATIN1 = Form("latin1", DATA_CODING_LATIN1, 140, 134, 133, _latin1, len)
UCS2 = Form("ucs2", DATA_CODING_UCS2, 70, 67, 66, _utf16, _units, None)
_NATIONAL = {name: _national(name, number) for name, number in _LANGUAGES.items()}


def forms_for(text: str, encoding: str, carriage: Carriage, *, strict: bool) -> tuple[Form, ...]:
    """The forms that can carry a text, preferred ones first among those that take as many segments.

    `strict`: gsm7 is a tenant's wish, and a text outside that alphabet raises TextError; otherwise it is what another
    carrier's dialect once came to, and UCS-2 carries the text unharmed.
    """
    if encoding not in ENCODINGS:
        raise TextError(f"unknown encoding: use one of {', '.join(ENCODINGS)}")
    if encoding == "ucs2":
        return (UCS2,)
    if encoding == "latin1" or carriage.default_alphabet == "latin1":
        if strict and encoding == "gsm7" and not gsm.fits(text):
            raise _outside()
        return (LATIN1,) if _is_latin1(text) else (UCS2,)
    if gsm.fits(text):
        if carriage.default_alphabet == "ascii":
            return (ASCII,) if text.isascii() else (UCS2,)
        return (GSM7,)
    national = _nationals(text, carriage)
    if encoding == "gsm7" and (national or strict):
        if not national:
            raise _outside()
        return national
    # A national table that nobody asked for by name is used where it saves a part: more handsets show UCS-2.
    return (UCS2, *national) if carriage.national_shift == "auto" else (*national, UCS2)


def _nationals(text: str, carriage: Carriage) -> tuple[Form, ...]:
    if carriage.national_shift == "none" or carriage.default_alphabet != "gsm7":
        return ()
    names = _LANGUAGES if carriage.national_shift == "auto" else (carriage.national_shift,)
    return tuple(_NATIONAL[name] for name in names if gsm.table(gsm.Shift(single=_LANGUAGES[name])).fits(text))


def _outside() -> TextError:
    return TextError("the text has characters outside the GSM 7-bit alphabet: use encoding auto or ucs2")


def _is_latin1(text: str) -> bool:
    return text.isascii() or max(text) <= "\xff"
