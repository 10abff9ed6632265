"""What a carrier does by itself, as a script or a command says it: `{at_s: 5, do: inbound, text: STOP, ...}`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from smpp.protocol.pdu import DeliverSm
from smpp.simulator.kinds import Check, Record, choice, flag, hexadecimal, number, optional, whole, word
from smpp.simulator.settings import ACTIONS, BAD_PDUS, Action
from smpp.text import Carriage, TextError, segment

_DAY_S: Final = 86_400
_COUNT: Final = whole(1, 10_000_000)

_ARGUMENTS: Final[dict[str, dict[str, Check]]] = {
    "inbound": {
        "source": word,
        "destination": word,
        "text": word,
        "octets": hexadecimal,
        "data_coding": whole(0, 255),
        "esm_class": whole(0, 255),
        "encoding": choice(("auto", "gsm7", "ucs2", "latin1")),
        "long_messages": choice(("udh8", "udh16", "sar", "payload")),
        "backwards": flag,
        "without_part": whole(1, 255),
        "count": _COUNT,
        "per_s": number(0, 1_000_000),
        "system_id": optional(word),
    },
    "backlog": {"count": _COUNT, "age_s": number(0, 365 * _DAY_S), "system_id": optional(word)},
    "alert": {"source": word, "system_id": optional(word)},
    "probe": {"count": _COUNT, "system_id": optional(word)},
    "bad_pdu": {"kind": choice(BAD_PDUS), "system_id": optional(word)},
    "cut": {"reset": flag, "system_id": optional(word)},
    "unbind": {"system_id": optional(word)},
}
_REQUIRED: Final = {"inbound": ("source", "destination"), "bad_pdu": ("kind",)}
_WHEN: Final[dict[str, Check]] = {
    "do": choice(ACTIONS),
    "at_s": number(0, 365 * _DAY_S),
    "after_bind_s": number(0, 365 * _DAY_S),
    "every_s": number(0.001, 365 * _DAY_S),
}


def action_of(value: Any, place: str, faults: list[str]) -> Any:
    """An action of a script: it says when. Faults are appended."""
    if isinstance(value, Action):
        return value
    made = command_of(value, place, faults)
    if isinstance(value, Mapping) and ("at_s" in value) == ("after_bind_s" in value):
        faults.append(f"{place}: needs either at_s or after_bind_s")
    return made


def command_of(value: Any, place: str, faults: list[str]) -> Any:
    """An action, whether or not it says when."""
    if not isinstance(value, Mapping):
        faults.append(f"{place}: must be a mapping")
        return None
    do = value.get("do")
    if not isinstance(do, str) or do not in ACTIONS:
        choice(ACTIONS)(do, f"{place}.do" if place else "do", faults)
        return None
    own = _ARGUMENTS[do]
    made = Record(dict, {**_WHEN, **own}, _REQUIRED.get(do, ()))(value, place, faults)
    if made is None:
        return None
    if do == "inbound" and ("text" in made) == ("octets" in made):
        faults.append(f"{place}: needs either text or octets")
    when = {name: made.pop(name) for name in _WHEN if name in made}
    action = Action(**when, arguments=made)
    if do == "inbound" and "text" in made:
        try:
            inbound_pdus(action, 1)
        except TextError as unfit:
            faults.append(f"{place}.text: {unfit}")
    return action


def inbound_pdus(action: Action, number_: int) -> list[DeliverSm]:
    """The deliver_sm of the `number_`-th message: one, or its parts in the order in which they go out.

    `{n}` in text and source stands for the number. Raises TextError.
    """
    given = action.arguments
    blank = DeliverSm(
        source_addr=given["source"].replace("{n}", str(number_)),
        source_addr_ton=1,
        source_addr_npi=1,
        destination_addr=given["destination"],
        data_coding=given.get("data_coding", 0),
        esm_class=given.get("esm_class", 0),
    )
    if "octets" in given:
        return [replace(blank, short_message=given["octets"])]
    parts = list(_segments(given, number_, blank))
    if given.get("backwards"):
        parts.reverse()
    return parts


def _segments(given: Mapping[str, Any], number_: int, blank: DeliverSm) -> Iterator[DeliverSm]:
    segments = segment(
        given["text"].replace("{n}", str(number_)),
        given.get("encoding", "auto"),
        Carriage(long_messages=given.get("long_messages", "udh8")),
        reference=number_ & 0xFFFF,
    )
    for at, one in enumerate(segments, 1):
        if at != given.get("without_part"):
            yield replace(
                blank,
                short_message=one.short_message,
                data_coding=one.data_coding,
                esm_class=blank.esm_class | one.esm_class,
                tlvs=tuple(one.tlvs),
            )
