"""Where a text may be cut so that no letter is parted from its accent and no emoji from its parts.

The rules of Unicode's annex 29 (extended grapheme clusters), as far as the standard library's tables tell them; where
these cannot tell, two characters count as belonging together. A cut that costs no part follows them, none is needed.
"""

from __future__ import annotations

import unicodedata

_ZWJ = "\u200d"
_EXTENDING = frozenset("\u200c\u200d\u0e33\u0eb3")  # joiners; vowels of Thai and Lao that are no marks
_MARKS = frozenset({"Mn", "Me", "Mc"})
_VIRAMA = 9  # canonical combining class
_RUN_MAX = 160  # flags looked back at; a longer run fills whole parts anyway


def last_boundary(text: str, low: int, high: int) -> int | None:
    """The last place in `low` to `high` (both included) between two clusters, or None."""
    for at in range(high, low - 1, -1):
        if is_boundary(text, at):
            return at
    return None


def is_boundary(text: str, at: int) -> bool:
    """Whether a cluster ends before the character at `at` (0 and the length count as ends)."""
    if not 0 < at < len(text):
        return True
    before, after = text[at - 1], text[at]
    if after < "\u0300" and before < "\u0300":
        return not (before == "\r" and after == "\n")
    if unicodedata.category(before) == "Cc" or unicodedata.category(after) == "Cc":
        return True
    if before == _ZWJ or _extends(after) or _joins_conjunct(before, after) or _joins_syllable(before, after):
        return False
    return not (_is_flag_half(before) and _is_flag_half(after)) or _flag_halves_before(text, at) % 2 == 0


def _extends(char: str) -> bool:
    return (
        unicodedata.category(char) in _MARKS
        or char in _EXTENDING
        or "\U0001f3fb" <= char <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= char <= "\U000e007f"  # tags of regional flags
        or "\uff9e" <= char <= "\uff9f"  # halfwidth voicing marks
    )


def _joins_conjunct(before: str, after: str) -> bool:
    return unicodedata.combining(before) == _VIRAMA and unicodedata.category(after) == "Lo"


def _joins_syllable(before: str, after: str) -> bool:
    """Hangul written in its letters: a vowel or final follows anything, an initial joins initials and syllables."""
    if "\u1160" <= after <= "\u11ff" or "\ud7b0" <= after <= "\ud7ff":
        return "\u1100" <= before <= "\u11ff" or "\uac00" <= before <= "\ud7ff" or "\ua960" <= before <= "\ua97f"
    initial = "\u1100" <= before <= "\u115f" or "\ua960" <= before <= "\ua97f"
    return initial and ("\u1100" <= after <= "\u115f" or "\ua960" <= after <= "\ua97f" or "\uac00" <= after <= "\ud7a3")


def _is_flag_half(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _flag_halves_before(text: str, at: int) -> int:
    first = at
    while first > 0 and at - first < _RUN_MAX and _is_flag_half(text[first - 1]):
        first -= 1
    return at - first
