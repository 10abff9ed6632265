"""Texts whose data_coding says one alphabet and whose octets are of another, as carriers hand on what handsets wrote.

A guess is made only where the octets cannot be what they are said to be: unpacked septets never have the eighth bit,
Latin-1 has no letters from 0x80 to 0x9F, and no text is a letter `@` in front of every other one.
"""

from __future__ import annotations

from smpp.text import gsm

_SEPTETS_MAX = 0x7F
_UTF16_OCTETS_MIN = 8
_TYPOGRAPHIC = frozenset(b"\x80\x82\x84\x85\x91\x92\x93\x94\x95\x96\x97\x99")  # of Windows-1252: quotes, dashes, euro
_CONTROLS = frozenset(range(0x20)) - frozenset(b"\t\n\r")
_C1 = frozenset(range(0x80, 0xA0))
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 ")
_SIGNS = frozenset("\n\r.,;:!?'\"()-/&@+*#%_=")


def read_septets(octets: bytes, shift: gsm.Shift = gsm.NO_SHIFT) -> str:
    """Text of octets that are said to be unpacked septets of the GSM alphabet; what nothing fits becomes U+FFFD."""
    if max(octets, default=0) <= _SEPTETS_MAX:
        return octets.decode("utf-16-be") if _is_utf16(octets) else gsm.decode(octets, shift)
    return _eight_bits(octets, packed=True) or gsm.decode(octets, shift)


def read_ascii(octets: bytes) -> str:
    """Text of octets that are said to be ASCII."""
    if octets.isascii():
        return octets.decode("ascii")
    return _eight_bits(octets, packed=False) or octets.decode("ascii", "replace")


def read_latin1(octets: bytes) -> str:
    """Text of octets that are said to be Latin-1; only its unused places say that they are not."""
    if _C1.isdisjoint(octets):
        return octets.decode("latin-1")
    return _utf8(octets) or octets.decode("cp1252" if _is_windows(octets) else "latin-1")


def _eight_bits(octets: bytes, *, packed: bool) -> str:
    """UTF-8, Latin-1, Windows-1252 or packed septets: the first that fits; empty where none does."""
    text = _utf8(octets)
    if text:
        return text
    if _CONTROLS.isdisjoint(octets):
        if _C1.isdisjoint(octets):
            return octets.decode("latin-1")
        if _is_windows(octets):
            return octets.decode("cp1252")
    septets = gsm.decode(gsm.unpack(octets)) if packed else ""
    return septets if _is_plain(septets) else ""


def _is_utf16(octets: bytes) -> bool:
    """Whether every other character would be an `@`, and what is between them reads like a text."""
    if len(octets) < _UTF16_OCTETS_MIN or len(octets) % 2 or any(octets[0::2]):
        return False
    return _is_plain(octets[1::2].decode("ascii"))


def _utf8(octets: bytes) -> str:
    try:
        text = octets.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    return text if _CONTROLS.isdisjoint(octets) else ""


def _is_windows(octets: bytes) -> bool:
    return all(octet in _TYPOGRAPHIC for octet in octets if octet in _C1)


def _is_plain(text: str) -> bool:
    """Whether it reads like a text: letters, digits and blanks, few other signs."""
    letters = sum(char in _LETTERS for char in text)
    return letters * 4 >= len(text) * 3 and all(char in _LETTERS or char in _SIGNS for char in text)
