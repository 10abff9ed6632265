"""The life of a message as a picture and in words (pure): phases on a strip, events as sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from smpp.protocol.status import describe

WIDTH: Final = 1000.0
_LEAST: Final = 0.8  # a phase of no length still has a width
# What a message does after an event, until the next one: kind (a colour) and words.
_AFTER: Final[Mapping[str, tuple[str, str]]] = {
    "accepted": ("waiting", "in the queue"),
    "deferred": ("held", "held until its time"),
    "released": ("waiting", "in the queue"),
    "resent": ("waiting", "in the queue again"),
    "claimed": ("sending", "claimed"),
    "submitted": ("network", "at the carrier"),
    "refused": ("held", "waits to try again"),
    "unconfirmed": ("doubt", "in doubt"),
    "receipt": ("network", "in the network"),
}
_WORDS: Final[Mapping[str, str]] = {
    "accepted": "Accepted and stored; the tenant got its 202.",
    "deferred": "Put aside for a later time",
    "released": "Its time came: back into the queue",
    "resent": "Goes again after a doubt; it may arrive twice.",
    "claimed": "Claimed for session",
    "submitted": "submit_sm written to",
    "refused": "The carrier refused this try",
    "unconfirmed": "The answer was lost: nobody knows whether the carrier has it.",
    "receipt": "Receipt",
    "corrected": "A later receipt changed the final status",
    "expired": "Our own deadline passed",
    "canceled": "Canceled by the tenant",
    "suppressed": "Stopped: the recipient may not be written to",
    "failed": "Given up",
}
_TONES: Final = {"refused": "warn", "unconfirmed": "warn", "expired": "bad", "failed": "bad", "resent": "warn"}
_WAITS: Final[Mapping[str, str]] = {
    "not_before": "It waits for its time ({name}).",
    "retry": "It waits to try again after {name}.",
    "paused": "It is held by a pause by hand: {name}.",
    "answer": "It was submitted over {name}; the carrier has not answered yet.",
    "confirmation": "The answer of {name} was lost; the rule of its class decides what follows.",
    "receipt": "{name} has it; the final receipt has not come yet.",
    "fairness": "Others of its class have their turn first.",
    "window": "Session window of {name} is full: answers are awaited.",
    "session_down": "No session of {name} is up.",
}


@dataclass(frozen=True, slots=True)
class Phase:
    """A piece of the strip: from `x`, `width` wide (of 1,000)."""

    kind: str
    words: str
    ms: int
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Pin:
    """A deadline on the strip."""

    words: str
    x: float


@dataclass(frozen=True, slots=True)
class Picture:
    """The strip: phases are as wide as the logarithm of their length, so that 2 ms and 2 h both can be seen."""

    phases: tuple[Phase, ...]
    pins: tuple[Pin, ...]


def draw(message: Mapping[str, Any], now_at: int) -> Picture:
    """The strip of a message object with its `events`; an open one ends at `now_at` (UTC ms)."""
    instants = [(_ms(event["at"]), event["type"]) for event in message["events"]]
    end_at = instants[-1][0] if message["final"] else max(now_at, instants[-1][0])
    spans = []
    for (at, kind), after in zip(instants, [*(at for at, _ in instants[1:]), end_at], strict=True):
        if kind in _AFTER and (after > at or kind == "claimed"):
            spans.append((at, max(after - at, 0), *_AFTER[kind]))
    total = sum(_weight(ms) for _, ms, _, _ in spans) or 1.0
    phases, x = [], 0.0
    for _, ms, kind, words in spans:
        width = _weight(ms) / total * WIDTH
        phases.append(Phase(kind, words, ms, round(x, 2), round(width, 2)))
        x += width
    pins = []
    for name, words in (("submit_by", "submit by"), ("expires_at", "expires")):
        place = _place(_ms(message[name]), [(at, ms) for at, ms, _, _ in spans], phases)
        if place is not None:
            pins.append(Pin(words, place))
    return Picture(tuple(phases), tuple(pins))


def tell(message: Mapping[str, Any], explanation: Mapping[str, Any] | None) -> dict[str, Any]:
    """`headline` says how it stands and why; `events` are its events with words, tone and the time since the last."""
    before: int | None = None
    events = []
    for event in message["events"]:
        at = _ms(event["at"])
        gap = None if before is None else at - before
        events.append({**event, "words": _sentence(event), "tone": _tone(event), "gap_ms": gap})
        before = at
    return {"headline": _headline(message, explanation), "events": events}


def _headline(message: Mapping[str, Any], explanation: Mapping[str, Any] | None) -> str:
    if explanation is None:
        return ""
    if (ended := explanation.get("ended")) is not None:
        code = f" ({ended['code']})" if ended["code"] and ended["code"] != message["status"] else ""
        return f"{ended['reason']}{code}"
    waits = explanation.get("waiting_for")
    if waits is None:
        return "It is on its way."
    known = _WAITS.get(waits["scope"])
    if known is not None:
        name = str(waits["name"])
        if waits["scope"] in ("session_down", "paused"):
            name = name.replace(":", " ", 1)  # a scope in full: provider:carrier-a
        return known.format(name=_status_words(name))
    missing = waits.get("tokens_missing")
    lacks = f"; {missing:.1f} segments are missing" if missing else ""
    return f"It waits for the limit of {waits['scope']} {waits['name']}{lacks}."


def _sentence(event: Mapping[str, Any]) -> str:
    words, cause = _WORDS.get(event["type"], event["type"]), event["cause"]
    if cause is None or words.endswith("."):
        return words if words.endswith(".") else f"{words}."
    if event["type"] in ("claimed", "submitted"):
        return f"{words} {cause}."
    return f"{words}: {_status_words(str(cause))}."


def _status_words(cause: str) -> str:
    """A command_status as its name and meaning; anything else as words."""
    if cause.startswith("0x"):
        return describe(int(cause, 16))
    return cause.replace("_", " ")


def _tone(event: Mapping[str, Any]) -> str:
    if event["type"] == "receipt":
        if event["cause"] == "delivered":
            return "good"
        return "bad" if event["cause"] in ("undeliverable", "expired", "deleted", "rejected") else "calm"
    return _TONES.get(event["type"], "calm")


def _place(at: int, spans: Sequence[tuple[int, int]], phases: Sequence[Phase]) -> float | None:
    for (from_at, ms), phase in zip(spans, phases, strict=True):
        if from_at <= at <= from_at + ms and ms:
            return round(phase.x + (at - from_at) / ms * phase.width, 2)
    return None


def _weight(ms: int) -> float:
    return _LEAST + math.log10(1 + ms)


def _ms(instant: str) -> int:
    return round(datetime.fromisoformat(instant).timestamp() * 1000)
