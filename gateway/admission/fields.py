"""The fields of a message as a tenant writes them: read strictly, all faults collected (contract section 2).

Reading depends on nothing but the body, so that the same body always means the same request; what a policy allows is
judged later (`gateway.admission.judgement`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from gateway.admission import instants, senders
from scheduler.core.values import valueclass

CLASSES = ("otp", "transactional", "marketing", "non_priority")
ENCODINGS = ("auto", "gsm7", "ucs2")
TO_MAX, NAME_MAX, CLIENT_REF_MAX, URL_MAX = 40, 100, 100, 2048
METADATA_MAX, METADATA_KEY_MAX, METADATA_VALUE_MAX = 10, 40, 200
TLVS_MAX, TLV_VALUE_MAX = 10, 255
SEGMENTS_DEFAULT, SEGMENTS_MAX = 10, 255
TTL_S_MAX = 35 * 86_400
DEFAULTS_POINTER = "/defaults"

# Line feed, form feed and carriage return have places in the GSM alphabet (3GPP TS 23.038, 6.2.1); every other control
# character, NUL first, is not text.
_UNFIT_IN_TEXT = re.compile("[\x00-\x09\x0b\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
# Beside white space: signs that show nothing by themselves, so that a text of them alone is as good as empty.
_NO_INK = re.compile(
    "[\\s\xad\u115f\u1160\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff]*"
)
_UNFIT_IN_NAME = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_TLV_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")
_TLV_TEXT = re.compile(r"[\x20-\x7e]*")


@valueclass
class FieldFault:
    """One wrong field: its JSON Pointer (RFC 6901) and what is wrong with it."""

    pointer: str
    message: str


@valueclass
class Place:
    """Where a message's fields stand in the body: at `pointer`, those named in `inherited` at `/defaults`."""

    pointer: str = ""
    inherited: frozenset[str] = frozenset()

    def fault(self, name: str, message: str) -> FieldFault:
        """A fault of the field `name`."""
        return FieldFault(
            f"{DEFAULTS_POINTER if name in self.inherited else self.pointer}/{pointer_part(name)}", message
        )


ALONE = Place()


@dataclass(slots=True)
class MessageRequest:
    """A message as asked for. `to` is as written; None is "not given"; instants are UTC ms, `ttl_ms` milliseconds."""

    to: str = ""
    text: str = ""
    sender: str | None = None
    class_name: str | None = None
    ttl_ms: int | None = None
    expires_at: int | None = None
    send_at: int | None = None
    application: str | None = None
    client_ref: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    callback_url: str | None = None
    encoding: str = "auto"
    transliterate: bool = False
    max_segments: int = SEGMENTS_DEFAULT
    tlvs: dict[str, str | int] = field(default_factory=dict)


class _Wrong(Exception):
    """A value is not what its field takes."""


def pointer_part(name: str) -> str:
    """A key as a part of a JSON Pointer; what could not be written in UTF-8 or breaks a line is replaced."""
    shown = _UNFIT_IN_NAME.sub("\ufffd", name[:NAME_MAX])
    return shown.replace("~", "~0").replace("/", "~1")


# What other gateways call our fields.
_ELSEWHERE = {
    "body": "text", "message": "text", "content": "text", "msg": "text", "sender": "from", "source": "from",
    "sender_id": "from", "originator": "from", "recipient": "to", "destination": "to", "phone": "to", "number": "to",
    "msisdn": "to", "tag": "client_ref", "reference": "client_ref", "validity": "ttl", "validity_period": "ttl",
    "schedule_at": "send_at", "scheduled_at": "send_at", "webhook": "callback_url", "status_callback": "callback_url",
    "campaign": "application", "type": "class", "priority": "class",
}  # fmt: skip


def _unknown(name: str) -> str:
    plain = name.strip().lower().replace("-", "_")
    close = [_ELSEWHERE[plain]] if plain in _ELSEWHERE else difflib.get_close_matches(plain, _READERS, 1, 0.75)
    return "is not a field of a message" + (f"; did you mean {close[0]}?" if close else "")


def read_message(given: Mapping[str, Any], place: Place) -> tuple[MessageRequest, list[FieldFault]]:
    """The request that an object holds and everything that is wrong with it; an empty list: nothing is."""
    request = MessageRequest()
    faults: list[FieldFault] = []
    for name, value in given.items():
        reader = _READERS.get(name)
        if reader is None:
            faults.append(place.fault(name, _unknown(name)))
            continue
        attribute, read = reader
        if value is None and name not in _REQUIRED:
            continue
        try:
            setattr(request, attribute, read(value))
        except _Wrong as wrong:
            faults.append(place.fault(name, str(wrong)))
    faults.extend(place.fault(name, "is required") for name in _REQUIRED if name not in given)
    if request.ttl_ms is not None and request.expires_at is not None:
        faults.append(place.fault("expires_at", "and ttl exclude each other"))
    return request, faults


def _string(value: Any) -> str:
    if value.__class__ is not str:
        raise _Wrong("must be a string")
    return str(value)


def _to(value: Any) -> str:
    number = _string(value)
    if not 1 <= len(number) <= TO_MAX or _UNFIT_IN_NAME.search(number) is not None:
        raise _Wrong("must be a number in E.164 form: + and 7 to 15 digits")
    return number


def _text(value: Any) -> str:
    text = _string(value)
    if (unfit := _UNFIT_IN_TEXT.search(text)) is not None:
        kind = "a lone surrogate" if "\ud800" <= unfit.group() <= "\udfff" else "a control character"
        raise _Wrong(f"holds {kind} at position {unfit.start()}")
    if _NO_INK.fullmatch(text) is not None:
        raise _Wrong("must not be empty or blanks only")
    return text


def _sender(value: Any) -> str:
    sender = senders.normalise(_string(value))
    if sender is None:
        raise _Wrong(
            "must be 1 to 11 of A-Z a-z 0-9 space - _ . & with a letter among them, "
            "a short code of 3 to 15 digits, or a number in E.164 form"
        )
    return sender


def _one_of(choices: tuple[str, ...]) -> Callable[[Any], str]:
    wrong = f"must be one of {', '.join(choices)}"

    def read(value: Any) -> str:
        if value.__class__ is not str or value not in choices:
            raise _Wrong(wrong)
        return str(value)

    return read


def _ttl(value: Any) -> int:
    if value.__class__ is not int or not 1 <= value <= TTL_S_MAX:
        raise _Wrong(f"must be whole seconds from 1 to {TTL_S_MAX}")
    return int(value) * 1_000


def _instant(value: Any) -> int:
    at = instants.read(_string(value)[:64])
    if at is None:
        raise _Wrong("must be an instant in RFC 3339 form with a zone, for instance 2030-01-31T09:00:00Z")
    return at


def _name(length_max: int) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        name = _string(value)
        if not 1 <= len(name) <= length_max:
            raise _Wrong(f"must have 1 to {length_max} characters")
        if _UNFIT_IN_NAME.search(name) is not None:
            raise _Wrong("must not hold control characters or lone surrogates")
        return name

    return read


_metadata_key = _name(METADATA_KEY_MAX)


def _metadata(value: Any) -> dict[str, str]:
    if value.__class__ is not dict or len(value) > METADATA_MAX:
        raise _Wrong(f"must be an object of up to {METADATA_MAX} strings")
    for key, member in value.items():
        _metadata_key(key)
        if member.__class__ is not str or len(member) > METADATA_VALUE_MAX:
            raise _Wrong(f"takes strings of up to {METADATA_VALUE_MAX} characters")
        if _UNFIT_IN_TEXT.search(member) is not None:
            raise _Wrong("must not hold control characters or lone surrogates")
    return dict(value)


def _callback_url(value: Any) -> str:
    url = _string(value)
    wrong = _Wrong(f"must be an http or https URL of up to {URL_MAX} ASCII characters without user name or fragment")
    if len(url) > URL_MAX or not url.isascii() or any(letter <= " " or letter == "\x7f" for letter in url):
        raise wrong
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise wrong from None
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or "@" in parts.netloc
        or parts.fragment
        or port == 0
    ):
        raise wrong
    return url


def _flag(value: Any) -> bool:
    if value.__class__ is not bool:
        raise _Wrong("must be true or false")
    return bool(value)


def _max_segments(value: Any) -> int:
    if value.__class__ is not int or not 1 <= value <= SEGMENTS_MAX:
        raise _Wrong(f"must be a whole number from 1 to {SEGMENTS_MAX}")
    return int(value)


def _tlvs(value: Any) -> dict[str, str | int]:
    if value.__class__ is not dict or len(value) > TLVS_MAX:
        raise _Wrong(f"must be an object of up to {TLVS_MAX} entries")
    for name, member in value.items():
        if _TLV_NAME.fullmatch(name) is None:
            raise _Wrong("takes names of 1 to 64 letters, digits and _")
        if member.__class__ is str:
            fits = len(member) <= TLV_VALUE_MAX and _TLV_TEXT.fullmatch(member) is not None
        else:
            fits = member.__class__ is int and 0 <= member < 2**32
        if not fits:
            raise _Wrong(f"takes printable ASCII of up to {TLV_VALUE_MAX} characters or whole numbers of up to 32 bit")
    return dict(value)


_REQUIRED = ("to", "text")
_READERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "to": ("to", _to),
    "from": ("sender", _sender),
    "text": ("text", _text),
    "class": ("class_name", _one_of(CLASSES)),
    "ttl": ("ttl_ms", _ttl),
    "expires_at": ("expires_at", _instant),
    "send_at": ("send_at", _instant),
    "application": ("application", _name(NAME_MAX)),
    "client_ref": ("client_ref", _name(CLIENT_REF_MAX)),
    "metadata": ("metadata", _metadata),
    "callback_url": ("callback_url", _callback_url),
    "encoding": ("encoding", _one_of(ENCODINGS)),
    "transliterate": ("transliterate", _flag),
    "max_segments": ("max_segments", _max_segments),
    "tlvs": ("tlvs", _tlvs),
}
