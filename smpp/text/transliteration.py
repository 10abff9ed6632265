"""Characters outside the GSM 7-bit alphabet replaced by near ones inside it, where the sender asked for that."""

from __future__ import annotations

import unicodedata

from smpp.text import gsm

_NEAR = {
    "‘": "'", "’": "'", "‚": "'", "‛": "'", "′": "'", "`": "'", "´": "'", "ʹ": "'", "ʻ": "'", "ʼ": "'", "ˈ": "'",
    "“": '"', "”": '"', "„": '"', "‟": '"', "″": '"', "«": '"', "»": '"', "‹": "<", "›": ">", "❝": '"', "❞": '"',
    "‐": "-", "‑": "-", "‒": "-", "–": "-", "—": "-", "―": "-", "−": "-", "⁃": "-", "\u00ad": "", "⁄": "/",
    "…": "...", "•": "-", "·": ".", "‧": ".", "×": "x", "÷": "/", "№": "No", "™": "TM", "©": "(c)", "®": "(r)",
    "≠": "!=", "≤": "<=", "≥": ">=", "≈": "~", "→": "->", "←": "<-", "¢": "c", "°": "o", "¦": "|", "¯": "-", "¬": "-",
    "¸": ",", "¨": '"', "ˆ": "^", "˜": "~", "。": ".", "、": ",",
    "\t": " ", "\u2028": "\n", "\u2029": "\n", "\u0085": "\n", "\u200b": "", "\u2060": "", "\ufeff": "",
    # Joiners, marks of direction and variation selectors show nothing by themselves.
    "\u200c": "", "\u200d": "", "\u200e": "", "\u200f": "", "\u202a": "", "\u202b": "", "\u202c": "", "\u202d": "",
    "\u202e": "", "\u2066": "", "\u2067": "", "\u2068": "", "\u2069": "", "\ufe0e": "", "\ufe0f": "", "\u034f": "",
    "ç": "c", "Ł": "L", "ł": "l", "Đ": "D", "đ": "d", "ı": "i", "Œ": "OE", "œ": "oe", "Þ": "Th", "þ": "th", "ð": "d",
    "Ð": "D", "Ħ": "H", "ħ": "h", "Ŧ": "T", "ŧ": "t", "Ŋ": "N", "ŋ": "n", "ĸ": "k", "ẞ": "SS", "ƒ": "f",
    # Greek capitals look alike or are GSM letters; small ones are read as capitals.
    "Α": "A", "Β": "B", "Ε": "E", "Ζ": "Z", "Η": "H", "Ι": "I", "Κ": "K", "Μ": "M", "Ν": "N", "Ο": "O", "Ρ": "P",
    "Τ": "T", "Υ": "Y", "Χ": "X", "ς": "Σ",
}  # fmt: skip
_GREEK = ("α", "ω")
_OVERLAYS = frozenset("\u0334\u0335\u0336\u0337\u0338")  # strokes: without them `≮` would say its contrary


def transliterate(text: str) -> str:
    """The text in near GSM characters; unchanged where that does not bring all of it into the alphabet.

    A text that goes as UCS-2 anyway would only be worse, and longer, for near characters.
    """
    if gsm.fits(text):
        return text
    near = "".join(char if char in gsm.ALPHABET else _near(char) for char in unicodedata.normalize("NFC", text))
    return near if gsm.fits(near) else text


def _near(char: str) -> str:
    near = _NEAR.get(char)
    if near is not None:
        return near
    if unicodedata.combining(char):
        return char if char in _OVERLAYS else ""
    parts = unicodedata.normalize("NFKD", char)
    if parts == char:
        return _NEAR.get(char.upper(), char.upper()) if _GREEK[0] <= char <= _GREEK[1] else char
    if not _OVERLAYS.isdisjoint(parts):
        return char
    return "".join(part if part in gsm.ALPHABET else _near(part) for part in parts)
