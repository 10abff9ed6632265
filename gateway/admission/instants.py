"""Instants as tenants write them: RFC 3339 with a zone, to UTC milliseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_FORM = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?([Zz]|[+-][0-9]{2}:[0-5][0-9])"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read(text: str) -> int | None:
    """UTC ms of an RFC 3339 instant (fractions below a millisecond are cut); None where it is not one."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    day, clock, fraction, zone = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in 'Zz' else zone}")
        since = moment - _EPOCH
    except (ValueError, OverflowError):
        return None
    millis = int((fraction or "0")[:3].ljust(3, "0"))
    return (since.days * 86_400 + since.seconds) * 1_000 + millis
