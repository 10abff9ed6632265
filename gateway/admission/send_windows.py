"""Send windows: the local hours in which a class may reach a destination (contract section 3; pure).

A window is open while the wall clock of its zone shows a time from `from` up to, but not including, `to`; it may run
over midnight. Hours that a change of the clock repeats count each time, hours that it skips never come: a window whose
beginning is skipped opens as the clock jumps past it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from gateway.policy.rules.lookup import destination_for
from gateway.policy.rules.snapshot import Destination, Policy, SendWindow

MINUTE_MS: Final = 60_000
_DAY: Final = 1_440  # minutes
# A day and the largest jump that a wall clock makes: within it every window opens and closes.
_SEARCHED: Final = 2 * _DAY


def window_for(policy: Policy, class_name: str, recipient: str) -> SendWindow | None:
    """The window that a message of a class to a number must keep; None where none applies."""
    return window_at(destination_for(policy, recipient), class_name)


def window_at(destination: Destination | None, class_name: str) -> SendWindow | None:
    """The same, for a number whose destination is known."""
    window = None if destination is None else destination.send_window
    return window if window is not None and class_name in window.classes else None


def is_open(window: SendWindow, at_ms: int) -> bool:
    """Whether a message may leave at an instant (UTC ms)."""
    return _holds(window, _wall_minute(window.timezone, at_ms // MINUTE_MS))


def opens_at(window: SendWindow, at_ms: int) -> int:
    """The first instant (UTC ms) at or after `at_ms` at which the window is open."""
    if is_open(window, at_ms):
        return at_ms
    return _next_opening(window, at_ms // MINUTE_MS) * MINUTE_MS


def closes_at(window: SendWindow, at_ms: int) -> int:
    """The first instant (UTC ms) at or after `at_ms` at which the window is closed."""
    if not is_open(window, at_ms):
        return at_ms
    return _next_closing(window, at_ms // MINUTE_MS) * MINUTE_MS


def closed_windows(policy: Policy, at_ms: int) -> tuple[frozenset[str], tuple[str, ...]]:
    """Classes and number prefixes to which some window is closed now: what a claim must look at more closely."""
    classes: set[str] = set()
    prefixes: list[str] = []
    for destination in policy.destinations.values():
        window = destination.send_window
        if window is not None and not is_open(window, at_ms):
            classes |= window.classes
            prefixes += destination.prefixes
    return frozenset(classes), tuple(prefixes)


def longest_closed_ms(window: SendWindow) -> int:
    """How long the window is closed on an ordinary day."""
    return (window.from_minute - window.to_minute) % _DAY * MINUTE_MS


def _holds(window: SendWindow, minute: int) -> bool:
    if window.from_minute < window.to_minute:
        return window.from_minute <= minute < window.to_minute
    return minute >= window.from_minute or minute < window.to_minute


@lru_cache(maxsize=4_096)
def _wall_minute(timezone: str, utc_minute: int) -> int:
    """Minutes since local midnight that the wall clock shows at a UTC minute."""
    local = datetime.fromtimestamp(utc_minute * 60, UTC).astimezone(ZoneInfo(timezone))
    return local.hour * 60 + local.minute


@lru_cache(maxsize=4_096)
def _next_opening(window: SendWindow, utc_minute: int) -> int:
    """The UTC minute at which a window that is closed at `utc_minute` opens."""
    return _next_change(window, utc_minute, window.from_minute, opens=True)


@lru_cache(maxsize=4_096)
def _next_closing(window: SendWindow, utc_minute: int) -> int:
    """The UTC minute at which a window that is open at `utc_minute` closes."""
    return _next_change(window, utc_minute, window.to_minute, opens=False)


def _next_change(window: SendWindow, utc_minute: int, wall_minute: int, *, opens: bool) -> int:
    until = (wall_minute - _wall_minute(window.timezone, utc_minute)) % _DAY
    if _offset(window.timezone, utc_minute) == _offset(window.timezone, utc_minute + until):
        return utc_minute + until
    # The clock is changed in between: no wall time can be reckoned with, so every minute is looked at.
    for minute in range(utc_minute + 1, utc_minute + _SEARCHED):
        if _holds(window, _wall_minute(window.timezone, minute)) == opens:
            return minute
    return utc_minute + _SEARCHED


def _offset(timezone: str, utc_minute: int) -> timedelta | None:
    return datetime.fromtimestamp(utc_minute * 60, UTC).astimezone(ZoneInfo(timezone)).utcoffset()
