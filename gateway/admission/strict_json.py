"""JSON as the door takes it (reliability section 5, line 17): one meaning only, bounded, or refused.

Refused: invalid UTF-8, duplicate keys, NaN and infinities, whole numbers over 64 bit, more than 16 levels.
Lone surrogates and control characters are left in: which field they stand in decides (`gateway.admission.fields`).
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

DEPTH_MAX = 16
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_INT_DIGITS_MAX = 20  # a sign and 19 digits, or 20 digits; longer ones are not even converted


class Malformed(ValueError):
    """The body is not the JSON that the door takes; the text says what is wrong and holds nothing of the body."""


def parse(body: bytes) -> Any:
    """The value of a JSON text; raises Malformed and nothing else."""
    try:
        value = _DECODER.decode(body.decode("utf-8"))
    except Malformed:
        raise
    except UnicodeDecodeError as error:
        raise Malformed(f"The body is not UTF-8 (octet {error.start}).") from None
    except json.JSONDecodeError as error:
        raise Malformed(
            f"The body is not JSON (line {error.lineno}, column {error.colno}); JSON is all that is taken."
        ) from None
    except RecursionError:
        raise Malformed(f"The body is nested more than {DEPTH_MAX} levels deep.") from None
    if _deeper_than(value, DEPTH_MAX):
        raise Malformed(f"The body is nested more than {DEPTH_MAX} levels deep.")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Malformed("A key stands twice in one object.")
    return found


def _whole_number(digits: str) -> int:
    if len(digits) > _INT_DIGITS_MAX or not _INT_MIN <= (value := int(digits)) <= _INT_MAX:
        raise Malformed("A whole number is over 64 bit.")
    return value


def _no_constant(_name: str) -> NoReturn:
    raise Malformed("NaN and infinities are not JSON.")


def _number(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise Malformed("A number is too large.")
    return value


def _deeper_than(value: Any, levels: int) -> bool:
    # Level by level, so that the work is bounded by the size of the value and never recurses.
    layer = [value] if isinstance(value, (dict, list)) else []
    for _ in range(levels):
        below: list[Any] = []
        for container in layer:
            members = container.values() if isinstance(container, dict) else container
            below.extend([member for member in members if member.__class__ is dict or member.__class__ is list])
        if not below:
            return False
        layer = below
    return bool(layer)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_without_duplicates, parse_int=_whole_number, parse_float=_number, parse_constant=_no_constant
)
