"""Single values of a policy file: each reader takes the text as written and raises BadValue saying what is expected."""

from __future__ import annotations

import math
import re
from zoneinfo import ZoneInfo, available_timezones

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION_MAX_MS = 3650 * _UNITS_MS["d"]
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_PREFIX = re.compile(r"\+[0-9]{1,15}")
_NUMBER = re.compile(r"\+[1-9][0-9]{4,14}")
_SHORT_CODE = re.compile(r"[0-9]{3,8}")
_NUMERIC = re.compile(r"[0-9]{3,15}")  # a sender of digits alone may be longer than a short code
_ALPHANUMERIC = re.compile(r"[A-Za-z0-9 \-_.&]{1,11}")
_ENVIRONMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RATE_MAX = 1_000_000.0
HIDDEN = re.compile(r"hidden:([0-9]{1,9})\.([0-9]{1,6})")  # see `gateway.policy.rules.hidden`


class BadValue(ValueError):
    """The value is not what the field takes; the text never repeats the value."""


def duration_ms(text: str) -> int:
    """Milliseconds of `500ms`, `10s`, `2m`, `4h`, `3d`."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise BadValue("expects a duration with its unit, such as 500ms, 10s, 2m, 4h or 3d")
    value = round(float(match[1]) * _UNITS_MS[match[2]])
    if value > _DURATION_MAX_MS:
        raise BadValue("expects at most 3650d")
    return value


def rate(text: str) -> float:
    """A rate per second above 0, fractions allowed."""
    value = number(text)
    if not 0 < value <= RATE_MAX:
        raise BadValue(f"expects a rate per second above 0 and at most {RATE_MAX:.0f}")
    return value


def share(text: str) -> float:
    """A share above 0 and up to 1."""
    value = number(text)
    if not 0 < value <= 1:
        raise BadValue("expects a share above 0 and at most 1")
    return value


def share_or_none(text: str) -> float:
    """A share from 0 to 1."""
    value = number(text)
    if not 0 <= value <= 1:
        raise BadValue("expects a share from 0 to 1")
    return value


def number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        raise BadValue("expects a number") from None
    if not math.isfinite(value):
        raise BadValue("expects a number")
    return value


def whole(text: str, least: int, most: int) -> int:
    """A whole number in a range."""
    try:
        value = int(text)
    except ValueError:
        raise BadValue(f"expects a whole number from {least} to {most}") from None
    if not least <= value <= most:
        raise BadValue(f"expects a whole number from {least} to {most}")
    return value


def tag(text: str) -> int:
    """A TLV tag: `0x1400` or decimal."""
    try:
        value = int(text, 0)
    except ValueError:
        value = -1
    if not 1 <= value <= 0xFFFF:
        raise BadValue("expects a tag from 0x0001 to 0xFFFF")
    return value


def command_status(text: str) -> int:
    """A command_status: `0x45` or decimal; 0 is no error."""
    try:
        value = int(text, 0)
    except ValueError:
        value = -1
    if not 1 <= value <= 0xFFFFFFFF:
        raise BadValue("expects a command_status such as 0x45")
    return value


def minute_of_day(text: str) -> int:
    """Minutes since local midnight of `09:00`."""
    match = _CLOCK.fullmatch(text)
    if match is None:
        raise BadValue('expects a time of day in quotes, such as "09:00"')
    return int(match[1]) * 60 + int(match[2])


def zone(text: str) -> str:
    """A time zone of the IANA database."""
    if text != "UTC" and text not in available_timezones():
        raise BadValue("expects a time zone such as Europe/Rome or UTC")
    ZoneInfo(text)
    return text


def prefix(text: str) -> str:
    """The first digits of E.164 numbers, with `+`."""
    if _PREFIX.fullmatch(text) is None:
        raise BadValue('expects the first digits of a number with their plus sign, such as "+39"')
    return text


def own_number(text: str) -> str:
    """A number or short code that handsets write to."""
    if _NUMBER.fullmatch(text) is None and _SHORT_CODE.fullmatch(text) is None:
        raise BadValue('expects a number such as "+393330000001" or a short code such as "60070"')
    return text


def sender(text: str) -> str:
    """A sender as the API takes it: alphanumeric, short code or number."""
    if not any(form.fullmatch(text) for form in (_NUMBER, _NUMERIC, _ALPHANUMERIC)):
        raise BadValue("expects up to 11 letters, digits, spaces or - _ . &, 3 to 15 digits, or a number with +")
    return text


def c_octets(text: str, most: int) -> str:
    """ASCII for a C-octet string of SMPP, without its NUL."""
    if not text.isascii() or any(not char.isprintable() for char in text):
        raise BadValue("expects printable ASCII")
    if len(text) > most:
        raise BadValue(f"expects at most {most} characters (SMPP 3.4)")
    return text


def is_reference(text: str) -> bool:
    """Whether a secret is named, not written out."""
    return text.startswith(("env:", "file:"))


def secret(text: str, most: int | None = None) -> str:
    """`env:NAME`, `file:PATH`, or the value itself (of at most `most` characters of ASCII)."""
    if text.startswith("env:"):
        if _ENVIRONMENT.fullmatch(text[4:]) is None:
            raise BadValue("expects the name of an environment variable after env:")
    elif text.startswith("file:"):
        file_reference(text)
    elif HIDDEN.fullmatch(text) is not None:
        raise BadValue("stands for a hidden secret that is not known here, or not as this: write env:NAME or file:PATH")
    elif most is not None:
        c_octets(text, most)
    return text


def file_reference(text: str) -> str:
    """`file:PATH`."""
    if not text.startswith("file:") or not text[5:].strip() or "\x00" in text:
        raise BadValue("expects file: and a path")
    return text


def name(text: str) -> str:
    """A name of something: printable, up to 100 characters, no blanks around it, no slash.

    A slash stands between a tenant's name and that of its application or sender, in scopes and in paths.
    """
    if "/" in text:
        raise BadValue("expects a name without a slash")
    return application(text)


def application(text: str) -> str:
    """The name of a tenant's application, as its messages may have it: printable, up to 100 characters."""
    if not text or len(text) > 100 or not text.isprintable() or text != text.strip():
        raise BadValue("expects a name of 1 to 100 printable characters")
    return text
