"""The carrier's message id in one normal form, so that an answer and its receipt meet.

The normal form is a key for looking up, not for showing. Number rules apply only to an id that is a number in
that base as a whole; anything else is compared as text. In every dialect leading zeros of a hexadecimal or decimal
number do not count, nor does the case of an id whose letters are all of one case: both change between the two PDUs in
practice; `0` stays `0`.
"""

from __future__ import annotations

import re

DIALECTS = ("as_is", "hex_to_decimal", "decimal_to_hex", "case_insensitive")

_HEX = re.compile(r"[0-9A-Fa-f]+")
_BETWEEN_GROUPS = re.compile(r"[^0-9A-Za-z]+")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_DECIMAL = re.compile(r"\+?[0-9]+")
_NEGATIVE = re.compile(r"-[1-9][0-9]{0,18}")
_AROUND = " \x00\t\r\n\"',;|&{}[]()<>"  # what carriers leave around an id, as the fields of a receipt lose it
_WIDENED = (1 << 64) - (1 << 32)  # what a negative number of 32 bits gains where it is written in 64
_NUMBER_LENGTH_MAX = 64  # an id in an SMPP C-octet string is at most 65 octets with its NUL


def normal_id(raw_id: str, receipt_ids: str, side: str) -> str:
    """Key of an id that came on `side` (answer | receipt) of a carrier whose dialect is `receipt_ids`."""
    text = raw_id.strip(_AROUND)
    if len(text) <= _NUMBER_LENGTH_MAX:
        number = _number(text, receipt_ids, side)
        if number is not None:
            return str(number)
    digits = text.replace("-", "") if _UUID.fullmatch(text) else _without_prefix(text)
    if _HEX.fullmatch(digits):
        return digits.lower().lstrip("0") or "0"
    if receipt_ids == "case_insensitive" or _has_one_case(text):
        return text.casefold()
    return text


def _has_one_case(text: str) -> bool:
    """Whether no group of an id mixes capitals and small letters: only mixed, the case tells ids apart."""
    return all(group in (group.lower(), group.upper()) for group in _BETWEEN_GROUPS.split(text))


def receipt_key(raw_id: str, id_in_text: str, receipt_ids: str) -> str:
    """Key of a receipt's id. Where ids change their base, some carriers repeat the answer's form in the TLV and write
    the other into the text: the two are one number then, and digits alone would be read in the wrong base."""
    key = normal_id(raw_id, receipt_ids, "receipt")
    if not id_in_text or id_in_text == raw_id:
        return key
    other = normal_id(id_in_text, receipt_ids, "receipt")
    return other if other == normal_id(raw_id, receipt_ids, "answer") else key


def _number(text: str, receipt_ids: str, side: str) -> int | None:
    hex_side = {"hex_to_decimal": "answer", "decimal_to_hex": "receipt"}.get(receipt_ids)
    if hex_side is None:
        return None
    if side != hex_side and _DECIMAL.fullmatch(text):
        return int(text)
    if side != hex_side and _NEGATIVE.fullmatch(text):
        number = int(text)  # the carrier counts in signed integers and writes the same bits as hex unsigned
        return number + (1 << 32 if number >= -(1 << 31) else 1 << 64)
    # Letters on the decimal side: this id was not converted, so its number is the hexadecimal one on both sides.
    digits = _without_prefix(text)
    if not _HEX.fullmatch(digits):
        return None
    number = int(digits, 16)
    return number - _WIDENED if _WIDENED + (1 << 31) <= number < 1 << 64 else number


def _without_prefix(text: str) -> str:
    if text[:1] == "+" and text[1:].isdecimal():
        return text[1:]
    return text[2:] if text[:2] in ("0x", "0X") else text
