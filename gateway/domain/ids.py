"""Message ids: UUIDv7 (RFC 9562 section 5.7), made here so that the day of a row is known before it is written."""

from __future__ import annotations

from datetime import date
from functools import lru_cache
from uuid import UUID

PREFIX = "msg_"
DAY_MS = 86_400_000
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_DAYS_MAX = date.max.toordinal() - _EPOCH_ORDINAL


def uuid7(at_ms: int, entropy: bytes) -> UUID:
    """The UUIDv7 of an instant (UTC ms) and ten random octets.

    Raises ValueError when fewer than ten octets are given.
    """
    if len(entropy) < 10:
        raise ValueError("uuid7 needs ten random octets")
    rand_a = ((entropy[0] << 8) | entropy[1]) & 0x0FFF
    rand_b = int.from_bytes(entropy[2:10], "big") & 0x3FFF_FFFF_FFFF_FFFF
    return UUID(int=(at_ms << 80) | (0x7 << 76) | (rand_a << 64) | (0b10 << 62) | rand_b)


def made_at(message_id: UUID) -> int:
    """The instant inside a UUIDv7, UTC ms."""
    return message_id.int >> 80


def day_of(message_id: UUID) -> date:
    """The UTC day inside a UUIDv7: the partition of its row."""
    return date.fromordinal(_EPOCH_ORDINAL + made_at(message_id) // DAY_MS)


def show(message_id: UUID) -> str:
    """The id as tenants see it: `msg_` and 32 hex digits."""
    return PREFIX + message_id.hex


def read(text: str) -> UUID | None:
    """The UUID of an id as tenants write it; None where it cannot be one of ours."""
    digits = text.removeprefix(PREFIX)
    if len(text) - len(digits) != len(PREFIX) or len(digits) != 32 or not digits.isascii():
        return None
    try:
        found = UUID(hex=digits)
    except ValueError:
        return None
    # A version other than 7, or a day that no calendar has, would name a partition that cannot exist.
    ours = found.version == 7 and digits == found.hex and made_at(found) // DAY_MS < _DAYS_MAX
    return found if ours else None


@lru_cache(maxsize=64)
def _date_text(days: int) -> str:
    return date.fromordinal(_EPOCH_ORDINAL + days).isoformat()


def rfc3339(at_ms: int) -> str:
    """An instant (UTC ms) in RFC 3339 with milliseconds and `Z`."""
    days, ms = divmod(at_ms, DAY_MS)
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{_date_text(days)}T{hours:02d}:{minutes:02d}:{seconds:02d}.{ms:03d}Z"
