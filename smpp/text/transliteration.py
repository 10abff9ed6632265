"""Characters outside the GSM 7-bit alphabet replaced by near ones inside it, where the sender asked for that."""

from __future__ import annotations

import unicodedata

from smpp.text import gsm

_NEAR = {
    "‘": "'", "’": "'", "‚": "'", "‛": "'", "′": "'", "`": "'", "´": "'",
    "“": '"', "”": '"', "„": '"', "‟": '"', "″": '"', "«": '"', "»": '"', "‹": "<", "›": ">",
    "‐": "-", "‑": "-", "‒": "-", "–": "-", "—": "-", "―": "-", "−": "-", "\u00ad": "",
    "…": "...", "•": "-", "·": ".", "×": "x", "÷": "/", "№": "No", "™": "TM", "©": "(c)", "®": "(r)",
    "\t": " ", "\u00a0": " ", "\u2007": " ", "\u2009": " ", "\u202f": " ", "\u200b": "", "\ufeff": "",
    "ç": "c", "Ł": "L", "ł": "l", "Đ": "D", "đ": "d", "ı": "i", "Œ": "OE", "œ": "oe", "Þ": "Th", "þ": "th", "ð": "d",
}  # fmt: skip


def transliterate(text: str) -> str:
    """The text with near GSM characters where there are some; others stay, so that nothing is dropped."""
    if gsm.fits(text):
        return text
    return "".join(char if char in gsm.ALPHABET else _near(char) for char in text)


def _near(char: str) -> str:
    near = _NEAR.get(char)
    if near is not None:
        return near
    bare = "".join(part for part in unicodedata.normalize("NFKD", char) if not unicodedata.combining(part))
    return bare if bare and gsm.fits(bare) else char
