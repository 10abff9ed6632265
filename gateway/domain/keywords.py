"""What a handset's text says by a single word, and whose number it was written to: pure.

A word counts only where it is the whole text, as carriers do: letter case, accents, spaces and punctuation are folded
away, so ` Stop. ` and `stop all` are words, and `please stop` is not. Who says it again says the same.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Final

from gateway.policy.rules.snapshot import Inbound, Policy
from scheduler.core.values import valueclass

STOP: Final = "stop"
START: Final = "start"
_TEXT_MAX: Final = 100  # a longer text is no single word, whatever stands in it
# A national form has at least so many digits; fewer would make a short code the end of somebody's number.
_NATIONAL_MIN: Final = 7


@valueclass
class Ownership:
    """The tenant that a number belongs to, and the number as its policy writes it."""

    tenant: str
    number: str


# Blocks whose scripts write vowels and tones as marks: South and South-East Asia, and the voiced signs of kana. There
# another mark is another word: Thai has both `stop` and `drop` with the same letters.
_MARKS_ARE_LETTERS: Final = (
    ("\u0900", "\u17ff"),
    ("\u1a00", "\u1aaf"),
    ("\u1b00", "\u1c4f"),
    ("\u3099", "\u309a"),
    ("\ua800", "\uabff"),
    ("\U00011000", "\U00011fff"),
)


def fold(text: str) -> str:
    """A text with nothing left but its letters and digits, in upper case and without accents."""
    plain = unicodedata.normalize("NFKD", text).upper()
    return "".join(letter for letter in plain if letter.isalnum() or _is_vowel_or_tone(letter))


def _is_vowel_or_tone(letter: str) -> bool:
    is_mark = unicodedata.category(letter)[0] == "M"
    return is_mark and any(first <= letter <= last for first, last in _MARKS_ARE_LETTERS)


def keyword_of(text: str, rules: Inbound) -> str | None:
    """`stop` or `start` where the whole text is one of the policy's words, else None."""
    if len(text) > _TEXT_MAX:
        return None
    whole = fold(text)
    if not whole:
        return None
    said = {fold(word) for word in text.split()} - {""}
    for keyword, words in ((STOP, _folded(rules.stop_words)), (START, _folded(rules.start_words))):
        if whole in words or said <= words:
            return keyword
    return None


@lru_cache(maxsize=32)
def _folded(words: tuple[str, ...]) -> frozenset[str]:
    return frozenset(fold(word) for word in words) - {""}


def owner_of(policy: Policy, recipient: str) -> Ownership | None:
    """Whose number a handset wrote to; None where it is nobody's or could be more than one tenant's.

    Carriers write one number as +39…, 0039…, 39… or without its country code: the digits count, and a national form
    (at least seven digits, leading zeros aside) counts where it ends exactly one owned number.
    """
    digits = digits_of(recipient)
    if not digits:
        return None
    owned = _owned(policy)
    for form in (digits, digits.removeprefix("00")):
        found = owned.get(form)
        if found is not None:
            return found
    national = digits.lstrip("0")
    if len(national) < _NATIONAL_MIN:
        return None
    ends = [found for number, found in owned.items() if number.endswith(national)]
    return ends[0] if len(ends) == 1 else None


def digits_of(number: str) -> str:
    """The ASCII digits of an address."""
    return "".join(letter for letter in number if letter.isascii() and letter.isdigit())


def own_number(policy: Policy, tenant: str, written: str) -> str | None:
    """The tenant's own number that is meant, as its policy writes it; None where it is not one of them."""
    found = _owned(policy).get(digits_of(written))
    return found.number if found is not None and found.tenant == tenant else None


_kept: list[tuple[Policy, dict[str, Ownership]]] = []


def _owned(policy: Policy) -> dict[str, Ownership]:
    for held, table in _kept:
        if held is policy:
            return table
    table = {
        digits_of(number): Ownership(tenant.name, number)
        for tenant in policy.tenants.values()
        for number in tenant.inbound_numbers
    }
    _kept.append((policy, table))
    del _kept[:-4]
    return table
