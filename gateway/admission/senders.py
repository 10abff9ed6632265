"""What a message may name as its sender (contract section 2, `from`): a name, a short code or a number."""

from __future__ import annotations

import re

from gateway.admission import numbering

ALPHANUMERIC_MAX = 11  # 3GPP TS 23.040, 9.1.2.5: what fits into the originating address
NUMERIC_MIN, NUMERIC_MAX = 3, 15

ALPHANUMERIC = "alphanumeric"
NUMERIC = "numeric"
INTERNATIONAL = "international"

_NAME = re.compile(r"[A-Za-z0-9_.&-](?:[A-Za-z0-9 _.&-]*[A-Za-z0-9_.&-])?")
_DIGITS = re.compile(rf"[0-9]{{{NUMERIC_MIN},{NUMERIC_MAX}}}")
_LETTER = re.compile(r"[A-Za-z]")


def kind_of(sender: str) -> str:
    """`international`, `numeric` or `alphanumeric` of a normal sender."""
    if sender.startswith("+"):
        return INTERNATIONAL
    return NUMERIC if _DIGITS.fullmatch(sender) else ALPHANUMERIC


def normalise(text: str) -> str | None:
    """The sender as it will be submitted, or None where it cannot be one."""
    if text.startswith("+"):
        return numbering.normalise(text)
    if _LETTER.search(text) is not None:
        return text if len(text) <= ALPHANUMERIC_MAX and _NAME.fullmatch(text) else None
    digits = numbering.bare(text)
    return digits if _DIGITS.fullmatch(digits) else None
