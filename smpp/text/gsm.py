"""The GSM 7-bit default alphabet with its extension table (3GPP TS 23.038, section 6.2.1), one septet per octet.

SMPP carries it unpacked: octet 0x00 is `@`, 0x1B opens an extension pair.
"""

from __future__ import annotations

ESCAPE = 0x1B

_BASIC = (
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞ\x1bÆæßÉ"
    " !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§"
    "¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
_EXTENSION = {
    "\x0c": 0x0A,
    "^": 0x14,
    "{": 0x28,
    "}": 0x29,
    "\\": 0x2F,
    "[": 0x3C,
    "~": 0x3D,
    "]": 0x3E,
    "|": 0x40,
    "€": 0x65,
}

EXTENDED = frozenset(_EXTENSION)
ALPHABET = frozenset(_BASIC) - {"\x1b"} | EXTENDED

_TO_OCTETS = {ord(char): chr(code) for code, char in enumerate(_BASIC) if code != ESCAPE}
_TO_OCTETS |= {ord(char): chr(ESCAPE) + chr(code) for char, code in _EXTENSION.items()}
_FROM_EXTENSION = {code: char for char, code in _EXTENSION.items()}


def fits(text: str) -> bool:
    """Whether every character has a place in the alphabet or its extension."""
    return ALPHABET.issuperset(text)


def septets(text: str) -> int:
    """Length on the air; extension characters take two (23.038, 6.2.1.1). The text must fit."""
    extended = EXTENDED.intersection(text)
    return len(text) + sum(map(text.count, extended)) if extended else len(text)


def encode(text: str) -> bytes:
    """Unpacked octets of a text that fits."""
    return text.translate(_TO_OCTETS).encode("latin-1")


def decode(octets: bytes) -> str:
    """Text of unpacked octets; no place: U+FFFD; an unknown extension: its basic character (23.038, 6.2.1.1)."""
    chars: list[str] = []
    escaped = False
    for octet in octets:
        if octet == ESCAPE:
            if escaped:
                chars.append(" ")
            escaped = not escaped
        elif escaped:
            chars.append(_FROM_EXTENSION.get(octet) or _basic(octet))
            escaped = False
        else:
            chars.append(_basic(octet))
    return "".join(chars)


def _basic(octet: int) -> str:
    return _BASIC[octet] if octet < len(_BASIC) else "\ufffd"
