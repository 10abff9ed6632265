"""How a carrier writes its receipts: ids, words, dates, text, TLVs. The defaults are those of SMPP 3.4 appendix B."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from zoneinfo import ZoneInfo

from smpp.protocol.pdu import Tlvs
from smpp.simulator.kinds import Record, choice, flag, hexadecimal, list_of, mapping_of, whole, word

TEXT: Final = (
    "id:{id} sub:{sub} dlvrd:{dlvrd} submit date:{submit_date} done date:{done_date} stat:{stat} err:{err} text:{text}"
)
PLACES: Final = ("id", "sub", "dlvrd", "submit_date", "done_date", "stat", "err", "text")

IDS: Final = ("same", "upper", "lower", "decimal", "hexadecimal", "padded", "unpadded")
DATES: Final = (
    "yymmddhhmm", "yymmddhhmmss", "yyyymmddhhmm", "yyyymmddhhmmss", "epoch", "absolute", "zeros", "empty",
)  # fmt: skip
TLVS: Final = ("receipted_message_id", "message_state", "network_error_code", "user_message_reference")

STATES: Final = {
    "DELIVRD": 2, "EXPIRED": 3, "DELETED": 4, "UNDELIV": 5, "ACCEPTD": 6, "UNKNOWN": 7, "REJECTD": 8, "ENROUTE": 1,
}  # fmt: skip
"""The words of appendix B and their message_state."""

INTERMEDIATE: Final = ("ENROUTE", "ACCEPTD", "UNKNOWN")


@dataclass(frozen=True, slots=True)
class Dialect:
    """One carrier's way of writing receipts. `words` and `errors` are looked up by the word of appendix B."""

    ids: str = "same"
    """The id in the receipt, against that of the answer; decimal and hexadecimal convert where it is a number."""
    text: str = TEXT
    """Template of the text with any of PLACES in braces; empty for receipts that are TLVs alone."""
    dates: str = "yymmddhhmm"
    timezone: str = "UTC"
    words: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    tlvs: tuple[str, ...] = TLVS
    extra_tlvs: Tlvs = ()
    esm_class: int = 0x04
    intermediate_esm_class: int = 0x20
    data_coding: int = 0
    """0 and 3 write the text in Latin-1, 8 in UTF-16."""
    payload: bool = False
    """The text travels in message_payload, short_message stays empty."""
    nul: bool = False
    """A NUL ends the text, inside of sm_length."""
    stray: bytes = b""
    """Octets behind the PDU's last field, counted in its length."""
    data_sm: bool = False
    """Receipts come as data_sm."""
    swapped: bool = True
    """The handset is the source. Some carriers repeat the addresses of the submit instead."""


def receipt_id(message_id: str, ids: str) -> str:
    """The id as the receipt tells it; what is no number stays as it is."""
    if ids == "upper":
        return message_id.upper()
    if ids == "lower":
        return message_id.lower()
    if ids == "padded":
        return message_id.zfill(20)
    if ids == "unpadded":
        return message_id.lstrip("0") or "0"
    try:
        if ids == "decimal":
            return str(int(message_id, 16))
        if ids == "hexadecimal":
            return f"{int(message_id):x}"
    except ValueError:
        return message_id
    return message_id


def _template(value: Any, place: str, faults: list[str]) -> Any:
    try:
        return str(value.format(**dict.fromkeys(PLACES, ""))) and value
    except (AttributeError, KeyError, IndexError, ValueError):
        faults.append(f"{place}: must be a text with places of {', '.join('{' + name + '}' for name in PLACES)}")
        return None


def _timezone(value: Any, place: str, faults: list[str]) -> Any:
    try:
        return ZoneInfo(value).key
    except (TypeError, ValueError, OSError, KeyError):
        faults.append(f"{place}: must be the name of a time zone such as Europe/Rome")
        return None


def _extra_tlvs(value: Any, place: str, faults: list[str]) -> Any:
    if isinstance(value, tuple):
        return value
    made = []
    for name, octets in (value if isinstance(value, dict) else {"": None}).items():
        if isinstance(name, bool) or not isinstance(name, int) or not 0 <= name <= 0xFFFF:
            faults.append(f"{place}: must map tags from 0 to 0xFFFF to octets")
        else:
            made.append((name, hexadecimal(octets, f"{place}.{name:#06x}", faults)))
    return tuple(made)


_KNOWN_WORDS: Final = mapping_of(word)


def _by_word(value: Any, place: str, faults: list[str]) -> Any:
    checked = _KNOWN_WORDS(value, place, faults)
    faults += [f"{place}.{name}: must be one of {', '.join(STATES)}" for name in checked if name not in STATES]
    return checked


DIALECT: Final = Record(
    Dialect,
    {
        "ids": choice(IDS),
        "text": _template,
        "dates": choice(DATES),
        "timezone": _timezone,
        "words": _by_word,
        "errors": _by_word,
        "tlvs": list_of(choice(TLVS)),
        "extra_tlvs": _extra_tlvs,
        "esm_class": whole(0, 255),
        "intermediate_esm_class": whole(0, 255),
        "data_coding": whole(0, 255),
        "payload": flag,
        "nul": flag,
        "stray": hexadecimal,
        "data_sm": flag,
        "swapped": flag,
    },
)
"""Reads a dialect out of a script."""
