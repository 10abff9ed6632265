"""The GSM 7-bit alphabets: default, its extension, national tables (3GPP TS 23.038, section 6.2.1 and annex A).

SMPP carries them unpacked, one septet per octet: octet 0x00 is `@`, 0x1B opens an extension pair. A national single
shift table replaces the extension, a locking shift table the basic characters, in the message whose header names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

ESCAPE = 0x1B
TURKISH, SPANISH, PORTUGUESE = 1, 2, 3  # national language identifiers (23.038, 6.2.1.2.4)


class Shift(NamedTuple):
    """The tables that a header names by language; 0 is the default one."""

    single: int = 0
    locking: int = 0


NO_SHIFT = Shift()

_DIGITS_AND_SIGNS = " !\"#¤%&'()*+,-./0123456789:;<=>?"
_BASIC: Mapping[int, str] = {
    0: "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞ\x1bÆæßÉ"
    f"{_DIGITS_AND_SIGNS}"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§"
    "¿abcdefghijklmnopqrstuvwxyzäöñüà",
    TURKISH: "@£$¥€éùıòÇ\nĞğ\rÅåΔ_ΦΓΛΩΠΨΣΘΞ\x1bŞşßÉ"
    f"{_DIGITS_AND_SIGNS}"
    "İABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§"
    "çabcdefghijklmnopqrstuvwxyzäöñüà",
    PORTUGUESE: "@£$¥êéúíóç\nÔô\rÁáΔ_ªÇÀ∞^\\€Ó|\x1bÂâÊÉ"
    f"{_DIGITS_AND_SIGNS.replace('¤', 'º')}"
    "ÍABCDEFGHIJKLMNOPQRSTUVWXYZÃÕÚÜ§"
    "~abcdefghijklmnopqrstuvwxyzãõ`üà",
}
_COMMON = {
    "\x0c": 0x0A, "^": 0x14, "{": 0x28, "}": 0x29, "\\": 0x2F, "[": 0x3C, "~": 0x3D, "]": 0x3E, "|": 0x40, "€": 0x65,
}  # fmt: skip
_EXTENSIONS: Mapping[int, Mapping[str, int]] = {
    0: _COMMON,
    TURKISH: _COMMON | {"Ğ": 0x47, "İ": 0x49, "Ş": 0x53, "ç": 0x63, "ğ": 0x67, "ı": 0x69, "ş": 0x73},
    SPANISH: _COMMON
    | {"ç": 0x09, "Á": 0x41, "Í": 0x49, "Ó": 0x4F, "Ú": 0x55, "á": 0x61, "í": 0x69, "ó": 0x6F, "ú": 0x75},
    PORTUGUESE: _COMMON
    | {
        "ê": 0x05, "ç": 0x09, "Ô": 0x0B, "ô": 0x0C, "Á": 0x0E, "á": 0x0F, "Φ": 0x12, "Γ": 0x13, "Ω": 0x15, "Π": 0x16,
        "Ψ": 0x17, "Σ": 0x18, "Θ": 0x19, "Ê": 0x1F, "À": 0x41, "Í": 0x49, "Ó": 0x4F, "Ú": 0x55, "Ã": 0x5B, "Õ": 0x5C,
        "Â": 0x61, "í": 0x69, "ó": 0x6F, "ú": 0x75, "ã": 0x7B, "õ": 0x7C, "â": 0x7F,
    },
}  # fmt: skip


class Table:
    """One pair of tables: `basic` by code, `extension` behind the escape; a letter is looked for in `basic` first."""

    def __init__(self, basic: str, extension: Mapping[str, int]) -> None:
        own = frozenset(basic) - {"\x1b"}
        self.extended = frozenset(extension) - own
        self.letters = own | self.extended
        self._basic = basic
        self._behind = {code: char for char, code in extension.items()}
        self._to_octets = {ord(char): chr(ESCAPE) + chr(code) for char, code in extension.items()}
        self._to_octets |= {ord(char): chr(code) for code, char in enumerate(basic) if code != ESCAPE}

    def fits(self, text: str) -> bool:
        """Whether every character has a place in the tables."""
        return self.letters.issuperset(text)

    def septets(self, text: str) -> int:
        """Length on the air; extension characters take two (23.038, 6.2.1.1). The text must fit."""
        extended = self.extended.intersection(text)
        return len(text) + sum(map(text.count, extended)) if extended else len(text)

    def encode(self, text: str) -> bytes:
        """Unpacked octets of a text that fits."""
        return text.translate(self._to_octets).encode("latin-1")

    def decode(self, octets: bytes) -> str:
        """Text of unpacked octets; no place: U+FFFD; an unknown extension: its basic character (23.038, 6.2.1.1)."""
        chars: list[str] = []
        escaped = False
        for octet in octets:
            if octet == ESCAPE:
                if escaped:
                    chars.append(" ")
                escaped = not escaped
            elif escaped:
                chars.append(self._behind.get(octet) or self._plain(octet))
                escaped = False
            else:
                chars.append(self._plain(octet))
        return "".join(chars)

    def _plain(self, octet: int) -> str:
        return self._basic[octet] if octet < len(self._basic) else "\ufffd"


@lru_cache(maxsize=64)
def table(shift: Shift = NO_SHIFT) -> Table:
    """The tables that a header names; a language without a table here counts as the default one (23.038, 6.2.1.2.2)."""
    return Table(_BASIC.get(shift.locking, _BASIC[0]), _EXTENSIONS.get(shift.single, _EXTENSIONS[0]))


_DEFAULT = table()
EXTENDED = _DEFAULT.extended
ALPHABET = _DEFAULT.letters
fits = _DEFAULT.fits
septets = _DEFAULT.septets
encode = _DEFAULT.encode


def decode(octets: bytes, shift: Shift = NO_SHIFT) -> str:
    """Text of unpacked octets by the tables that a header names; no place: U+FFFD."""
    return table(shift).decode(octets)


def unpack(octets: bytes) -> bytes:
    """Septets of octets that carry them packed, eight in seven (23.038, 6.1.2.1.1), without a last filler of zeros."""
    septets = bytearray()
    for at in range(0, len(octets), 7):  # seven octets are eight septets
        group = octets[at : at + 7]
        bits = int.from_bytes(group, "little")
        septets += bytes((bits >> shift) & 0x7F for shift in range(0, len(group) * 8 - 6, 7))
    # Seven bits left over are filler, not the letter `@`.
    return bytes(septets[:-1] if len(octets) % 7 == 0 and septets.endswith(b"\0") else septets)
