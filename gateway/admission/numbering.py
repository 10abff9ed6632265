"""Telephone numbers as the door takes them (contract section 2, `to`): E.164 with `+`, ASCII digits only.

Which country codes exist and how long their numbers may be is read from phonenumberslite's tables, as data: a number
that no network can have is refused here and not paid for at a carrier. No formatting or guessing is done with it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from phonenumbers import COUNTRY_CODE_TO_REGION_CODE, PhoneMetadata

_DROPPED = str.maketrans("", "", " .-()[]")
_INTERNATIONAL = re.compile(r"\+[1-9][0-9]{6,14}")  # E.164: at most 15 digits
_TRUNK_ZERO = re.compile(r"[(\[] *0 *[)\]]")  # `+44 (0) 7700 900123`: dialled only inside the country
_NON_GEOGRAPHIC = "001"


def bare(text: str) -> str:
    """A number as written without its spaces, dots, brackets and hyphens."""
    return text.translate(_DROPPED)


def normalise(text: str, *, accept_00_prefix: bool = False) -> str | None:
    """The number as `+` and digits, or None where it is not a possible E.164 number."""
    number = bare(text)
    if _TRUNK_ZERO.search(text):
        return None
    if accept_00_prefix and number.startswith("00"):
        number = "+" + number[2:]
    if _INTERNATIONAL.fullmatch(number) is None:
        return None
    return number if _is_possible(number) else None


def fault_of(text: str) -> str:
    """What is wrong with a number that `normalise` did not take, and what to write instead; holds nothing of it."""
    number = bare(text)
    if _TRUNK_ZERO.search(text):
        return "must not have the (0) that is dialled only inside its country: leave it out"
    foreign = next((char for char in number if not char.isascii()), None)
    if foreign is not None:
        named = "digits of another script" if foreign.isdigit() else f"a sign outside ASCII (U+{ord(foreign):04X})"
        return f"has {named}, which may not show: write + and the digits 0 to 9"
    if re.fullmatch(r"00[1-9][0-9]{6,14}", number):
        return "must begin with + and the country code, not with 00 (the policy's accept_00_prefix would allow it)"
    if re.fullmatch(r"[0-9]{4,15}", number):
        return "must begin with + and the country code, such as +447700900123"
    if _INTERNATIONAL.fullmatch(number) is None:
        return "must be one number in E.164 form: + and 7 to 15 digits, such as +447700900123"
    if _country_code(number) is None:
        return "has no known country code after its +"
    return "is not a possible number of its country: it has too few or too many digits"


def _country_code(number: str) -> int | None:
    codes = (int(number[1 : 1 + digits]) for digits in (1, 2, 3))
    return next((code for code in codes if code in COUNTRY_CODE_TO_REGION_CODE), None)


def _is_possible(number: str) -> bool:
    return len(number) in _lengths(number[:4])


@lru_cache(maxsize=1000)
def _lengths(beginning: str) -> frozenset[int]:
    """How long a number with these first four characters may be, `+` included; no country code: none is right."""
    country_code = _country_code(beginning)
    if country_code is None:
        return frozenset()
    before = 1 + len(str(country_code))
    return frozenset(before + length for length in _subscriber_lengths(country_code))


def _subscriber_lengths(country_code: int) -> set[int]:
    """How many digits a subscriber's number may have after a country code, over all regions that share it."""
    lengths: set[int] = set()
    for region in COUNTRY_CODE_TO_REGION_CODE[country_code]:
        if region == _NON_GEOGRAPHIC:
            metadata = PhoneMetadata.metadata_for_nongeo_region(country_code)
        else:
            metadata = PhoneMetadata.metadata_for_region(region)
        if metadata is not None and metadata.general_desc is not None:
            lengths.update(metadata.general_desc.possible_length)
    return lengths
