"""Dates in receipts: vendors write them in many ways, and some can be read twice (SMPP 3.4, appendix B and 7.1.1)."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

FORMATS = ("auto", "yymmddhhmm", "yymmddhhmmss", "yyyymmddhhmm", "yyyymmddhhmmss", "epoch")

# YYMMDDhhmmss, tenths, quarters of an hour from UTC, their direction
_ABSOLUTE = re.compile(r"(\d{12})(\d)(\d{2})([+-])")
_LENGTHS = {"yymmddhhmm": 10, "yymmddhhmmss": 12, "yyyymmddhhmm": 12, "yyyymmddhhmmss": 14}
_EPOCH_NEAR_MS = 400 * 86_400_000  # any ten digits are seconds of some year: only a near one is a guess worth making
_CENTURY_TURN = 70
_YEAR_MIN = 2000  # before it is a clock that was never set: no date
_AUTO = {
    10: ("yymmddhhmm",),
    12: ("yymmddhhmmss", "yyyymmddhhmm"),
    14: ("yyyymmddhhmmss",),
}
_WITH_MILLISECONDS = (15, 17)  # what the forms of 12 and 14 digits come to with a fraction behind them
# ISO 8601, also with slashes, dots or a blank, with or without a zone; a fraction of a second is dropped
_WRITTEN = re.compile(
    r"(\d{4}|\d\d)([-/.])(\d\d)\2(\d\d)[T ]*(\d\d):(\d\d)(?::(\d\d)(?:[.,]\d+)?)? ?(Z|UTC|GMT|[+-]\d\d:?\d\d)?", re.I
)

# Day and month in front of the year, in either order
_YEAR_LAST = re.compile(r"(\d\d)([-/.])(\d\d)\2(\d{4})[T ]*(\d\d:\d\d(?::\d\d)?) ?(Z|UTC|GMT|[+-]\d\d:?\d\d)?", re.I)

# Day and time apart, or followed by a zone; the digits alone are the usual forms
_PARTED = re.compile(r"(\d{6}|\d{8})[T ](\d{4}|\d{6}) ?(Z|UTC|GMT|[+-]\d\d:?\d\d)?", re.I)


def read_date(text: str, dates: str = "auto", timezone: str = "UTC", near_at: int | None = None) -> int | None:
    """UTC ms of a receipt's date, or None where it says none; never raises for what a carrier wrote.

    `near_at` (UTC ms, our own submit or arrival time) settles digits that are a date in both readings.
    """
    readings, guess = _readings(text, dates, timezone)
    if near_at is None:
        return readings[0] if readings else None
    if guess is not None and abs(guess - near_at) <= _EPOCH_NEAR_MS:
        readings = (*readings, guess)
    if len(readings) > 1:
        return min(readings, key=_distance_from(near_at))
    return readings[0] if readings else None


@lru_cache(maxsize=4096)  # receipts come in crowds of the same minute
def _readings(text: str, dates: str, timezone: str) -> tuple[tuple[int, ...], int | None]:
    """Every reading of a date, the likelier first, and what it were as seconds or milliseconds of the epoch."""
    text = text.strip()
    absolute = _ABSOLUTE.fullmatch(text)
    if absolute:
        return _known(_absolute(absolute)), None
    if not text.isascii() or not text.isdigit():
        return _spelled(text, timezone) if text.isascii() else (), None
    if dates == "epoch":
        return _known(_epoch(text)), None
    if dates == "auto" and len(text) in _WITH_MILLISECONDS:
        text = text[:-3]
    names = _AUTO.get(len(text), ()) if dates == "auto" else (dates,)
    found = tuple(at for name in names if (at := _local(text, name, timezone)) is not None)
    return found, _epoch(text) if dates == "auto" else None


def _known(at: int | None) -> tuple[int, ...]:
    return () if at is None else (at,)


def _distance_from(near_at: int) -> Callable[[int], int]:
    return lambda at: abs(at - near_at)


def _spelled(text: str, timezone: str) -> tuple[int, ...]:
    """Readings of a date with signs in it; two where day and month could be either, the day first."""
    found = _YEAR_LAST.fullmatch(text)
    if found is None:
        return _known(_written(text, timezone))
    one, _, other, year, clock, zone = found.groups()
    local = _zone(timezone) if zone is None else _offset(zone)
    if local is None:
        return ()
    days = (other + one, one + other)
    readings = (_instant(int(year), day + clock.replace(":", ""), local) for day in dict.fromkeys(days))
    return tuple(at for at in readings if at is not None)


def _written(text: str, timezone: str) -> int | None:
    written = _WRITTEN.fullmatch(text)
    if written is not None:
        year, _, month, day, hour, minute, second, zone = written.groups()
        rest = month + day + hour + minute + (second or "")
    else:
        parted = _PARTED.fullmatch(text)
        if parted is None:
            return None
        date, clock, zone = parted.groups()
        year, rest = date[:-4], date[-4:] + clock
    local = _zone(timezone) if zone is None else _offset(zone)
    full_year = _full_year(year) if len(year) == 2 else int(year)
    return None if local is None else _instant(full_year, rest, local)


def _offset(zone: str) -> tzinfo | None:
    if zone[0] not in "+-":
        return UTC
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return timezone(timedelta(minutes=minutes if zone[0] == "+" else -minutes)) if minutes < 24 * 60 else None


def _epoch(digits: str) -> int | None:
    if len(digits) in (9, 10):
        return int(digits) * 1000 or None
    return int(digits) if len(digits) == 13 else None


def _local(digits: str, name: str, timezone: str) -> int | None:
    if _LENGTHS.get(name) != len(digits):
        return None
    if name.startswith("yyyy"):
        year, rest = int(digits[:4]), digits[4:]
    else:
        year, rest = _full_year(digits[:2]), digits[2:]
    return _instant(year, rest, _zone(timezone))


def _full_year(digits: str) -> int:
    year = int(digits)
    return year + (2000 if year < _CENTURY_TURN else 1900)


def _instant(year: int, rest: str, zone: tzinfo) -> int | None:
    """UTC ms; midnight at the end of a day (24:00) and a leap second (:60) are the moment after them."""
    month, day, hour, minute = (int(rest[at : at + 2]) for at in range(0, 8, 2))
    second = int(rest[8:10]) if len(rest) > 8 else 0
    is_midnight, is_leap = (hour, minute, second) == (24, 0, 0), second == 60
    if year < _YEAR_MIN:
        return None
    try:
        at = datetime(year, month, day, 0 if is_midnight else hour, minute, 0 if is_leap else second, tzinfo=zone)
        at += timedelta(days=is_midnight, minutes=is_leap)
        return int(at.timestamp()) * 1000
    except (ValueError, OverflowError):
        return None


def _absolute(match: re.Match[str]) -> int | None:
    digits, tenths, quarters, direction = match.groups()
    offset = timedelta(minutes=15 * int(quarters)) * (1 if direction == "+" else -1)
    if abs(offset) >= timedelta(hours=24):
        return None
    at = _instant(_full_year(digits[:2]), digits[2:], timezone(offset))
    return None if at is None else at + 100 * int(tenths)


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)
