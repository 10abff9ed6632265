"""A carrier's own TLVs that a message may bring along: values as tenants write them, octets as carriers read them."""

from __future__ import annotations

from typing import Final

from gateway.policy.rules.snapshot import VendorTlv

_SIZES: Final = {"int8": 1, "int16": 2, "int32": 4}
_HEX: Final = "0x"


class TlvUnfit(ValueError):
    """The value is not what the TLV takes; the text says what it takes and never repeats the value."""


def octets_of(rule: VendorTlv, value: str | int) -> bytes:
    """The TLV's value on the wire: c_octet with its NUL, octets as written or, after `0x`, as hex; numbers big-endian.

    Raises TlvUnfit for a value of another type, out of range, or longer than `rule.length_max` (NUL not counted).
    """
    if rule.type in _SIZES:
        return _number(value, _SIZES[rule.type])
    text = str(value)
    octets = _from_hex(text) if rule.type == "octets" and text.startswith(_HEX) else text.encode("ascii")
    if len(octets) > rule.length_max:
        raise TlvUnfit(f"takes at most {rule.length_max} octets")
    return octets + b"\0" if rule.type == "c_octet" else octets


def _number(value: str | int, size: int) -> bytes:
    most = 256**size - 1
    digits = str(value)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) <= most):
        raise TlvUnfit(f"takes a whole number from 0 to {most}")
    return int(digits).to_bytes(size, "big")


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text[len(_HEX) :])
    except ValueError:
        raise TlvUnfit("takes pairs of hex digits after 0x") from None
