"""Whether two bodies ask for the same: compared as parsed fields, never as octets (contract section 2, same key).

The fingerprint is keyed: a body holds guessable things (a number, a six-digit code), and the fingerprint is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson

from gateway.admission import numbering

_NUMBERS = ("to", "from")
_LIKE_A_NUMBER = re.compile(r"[0-9+ .()\[\]-]+")


def fingerprint(pepper: bytes, given: Any) -> bytes:
    """Sixteen octets that stand for a parsed body.

    Order and layout of the JSON, nulls, and the spaces, dots, brackets and hyphens of numbers make no difference.
    """
    return _digest(pepper, _comparable(given))


def fingerprint_of_batch(pepper: bytes, given: Mapping[str, Any]) -> bytes:
    """The same for `{"defaults": {...}, "messages": [...]}`."""
    messages = given.get("messages")
    comparable = {
        **given,
        "defaults": _comparable(given.get("defaults") or {}),
        "messages": [_comparable(one) for one in messages] if isinstance(messages, list) else messages,
    }
    return _digest(pepper, comparable)


def key_token(tenant_id: int, endpoint: str, key: str) -> int:
    """A signed 64-bit number for a key: advisory lock and place in the waiting line."""
    digest = blake2b(f"{tenant_id}\0{endpoint}\0{key}".encode("ascii"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _comparable(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    fields = {name: value for name, value in given.items() if value is not None}
    for name in _NUMBERS:
        value = fields.get(name)
        if isinstance(value, str) and _LIKE_A_NUMBER.fullmatch(value):
            fields[name] = numbering.bare(value)
    return fields


def _digest(pepper: bytes, comparable: Any) -> bytes:
    try:
        canonical = orjson.dumps(comparable, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # Lone surrogates: never accepted, so only "differs from every accepted body" matters.
        canonical = b"\x00" + repr(comparable).encode("ascii", "backslashreplace")
    return blake2b(canonical, digest_size=16, key=pepper[:64]).digest()
