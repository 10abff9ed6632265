"""How the console writes what it knows: durations, instants, shares, statuses (pure)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

UNKNOWN: Final = "?"


def span(milliseconds: float | None) -> str:
    """A duration that fits into a table cell."""
    if milliseconds is None:
        return UNKNOWN
    seconds = abs(milliseconds) / 1000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            return f"{_short(seconds / size)} {unit}"
    return f"{milliseconds:.0f} ms"


def rate(per_s: float | None) -> str:
    """Something per second."""
    if per_s is None:
        return UNKNOWN
    return f"{per_s:.0f}" if per_s >= 100 or per_s == int(per_s) else f"{per_s:.1f}" if per_s >= 0.1 else f"{per_s:.2f}"


def count(number: float | None) -> str:
    """A number with thin spaces between its thousands."""
    return UNKNOWN if number is None else f"{round(number):,}".replace(",", "\u202f")


def share(ratio: float | None) -> str:
    """A ratio in percent; what is not quite all never reads 100 %."""
    if ratio is None:
        return UNKNOWN
    if 0.995 <= ratio < 1:
        return f"{int(ratio * 1000) / 10:.1f}\u202f%"
    return f"{ratio * 100:.0f}\u202f%"


def clock(instant: str | int | None) -> str:
    """The time of day (UTC) of an instant in RFC 3339 form or UTC ms."""
    moment = _moment(instant)
    return UNKNOWN if moment is None else moment.strftime("%H:%M:%S")


def fine_clock(instant: str | int | None) -> str:
    """The same with milliseconds."""
    moment = _moment(instant)
    return UNKNOWN if moment is None else f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}"


def moment(instant: str | int | None) -> str:
    """Day and time (UTC)."""
    found = _moment(instant)
    return UNKNOWN if found is None else found.strftime("%Y-%m-%d %H:%M:%S")


def tone(status: str) -> str:
    """good | warn | bad | calm: what a status of a message asks of who looks."""
    return _TONES.get(status, "calm")


_TONES: Final = {
    "delivered": "good",
    "sent": "good",
    "undelivered": "bad",
    "expired": "bad",
    "rejected": "bad",
    "failed": "bad",
    "unconfirmed": "warn",
    "unknown": "warn",
}


def plain(name: str) -> str:
    """A name of the policy or a reason as words."""
    return name.replace("_", " ")


def _moment(instant: str | int | None) -> datetime | None:
    if instant is None:
        return None
    if isinstance(instant, int):
        return datetime.fromtimestamp(instant / 1000, UTC)
    return datetime.fromisoformat(instant)


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 99.5 or number == int(number) else f"{number:.1f}"


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "span": span,
    "rate": rate,
    "count": count,
    "share": share,
    "clock": clock,
    "fine_clock": fine_clock,
    "moment": moment,
    "tone": tone,
    "plain": plain,
}
