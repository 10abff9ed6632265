"""The script file of a simulator: a YAML mapping of the settings, checked as a whole.

answer_delay_ms: 20
receipt_delay_ms: {uniform: [100, 5000]}
phases:
  - {at_s: 10, throttle_per_s: 50}
  - {at_s: 20, throttle_per_s: 0, error_ratio: 0.1, error_status: 0x14}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import yaml

from smpp.simulator.actions import action_of
from smpp.simulator.dialect import DIALECT, INTERMEDIATE, STATES
from smpp.simulator.kinds import (
    Check,
    Record,
    choice,
    delay,
    flag,
    list_of,
    mapping_of,
    number,
    optional,
    whole,
    word,
)
from smpp.simulator.settings import BAD_PDUS, BIND_KINDS, MESSAGE_IDS, Phase, Rule, SimulatorSettings

_HOUR_MS: Final = 3_600_000
_WEEK_MS: Final = 7 * 86_400_000
_STATUS: Final = whole(0, 0xFFFF_FFFF)
_RATIO: Final = number(0, 1)
_COUNT: Final = whole(0, 1_000_000_000)


class ScriptInvalid(ValueError):
    """The script cannot be used; the message lists every fault, one a line."""


def _weights(value: Any, place: str, faults: list[str]) -> Any:
    checked = mapping_of(number(0, 1_000_000))(value, place, faults)
    faults += [f"{place}.{name}: must be one of {', '.join(STATES)}" for name in checked if name not in STATES]
    if checked and not any(checked.values()):
        faults.append(f"{place}: some weight must be above 0")
    return checked


def _phase(value: Any, place: str, faults: list[str]) -> Any:
    if isinstance(value, Phase):
        return value
    if not isinstance(value, dict):
        faults.append(f"{place}: must be a mapping")
        return None
    changes = dict(value)
    at_s = changes.pop("at_s", None)
    if isinstance(at_s, bool) or not isinstance(at_s, int | float) or at_s < 0:
        faults.append(f"{place}.at_s: must be a number of seconds from 0")
        at_s = 0
    _changes(changes, place, faults)
    return Phase(float(at_s), changes)


def _phases(value: Any, place: str, faults: list[str]) -> Any:
    read = list_of(_phase)(value if value is not None else (), place, faults)
    return tuple(sorted((phase for phase in read if phase is not None), key=lambda phase: phase.at_s))


_RULE: Final = Record(
    Rule,
    {
        "destination": word,
        "source": word,
        "status": optional(_STATUS),
        "ratio": _RATIO,
        "times": _COUNT,
        "answer_delay_ms": optional(delay(_HOUR_MS)),
        "silent": flag,
        "receipt": optional(choice((*STATES, "none"))),
        "receipt_delay_ms": optional(delay(_WEEK_MS)),
        "cut": flag,
    },
)

_AT_START: Final[dict[str, Check]] = {
    "host": word,
    "port": whole(0, 65_535),
    "tls_certificate": optional(word),
    "tls_key": optional(word),
    "tls_client_ca": optional(word),
    "commands": flag,
    "journal": optional(word),
    "keep_submits": whole(0, 1_000_000),
    "keep_messages": whole(0, 1_000_000),
    "seed": optional(whole(-(1 << 63), 1 << 63)),
    "phases": _phases,
    "actions": list_of(action_of),
    "receipt_window": whole(1, 100_000),
}

_ANY_TIME: Final[dict[str, Check]] = {
    "system_id": word,
    "sc_interface_version": whole(0, 255),
    "password": optional(word),
    "accounts": mapping_of(word),
    "bind_kinds": list_of(choice(BIND_KINDS)),
    "bind_status": _STATUS,
    "bind_refusals": _COUNT,
    "bind_delay_ms": delay(_HOUR_MS),
    "bind_silent": flag,
    "max_binds": whole(0, 100_000),
    "outbind": flag,
    "already_bound_s": number(0, 86_400),
    "answer_delay_ms": delay(_HOUR_MS),
    "message_ids": choice(MESSAGE_IDS),
    "throttle_per_s": number(0, 1_000_000),
    "window_max": whole(0, 100_000),
    "window_status": _STATUS,
    "error_ratio": _RATIO,
    "error_status": _STATUS,
    "drop_ratio": _RATIO,
    "dropped_delivered": flag,
    "rules": list_of(_RULE),
    "receipts": flag,
    "receipt_delay_ms": delay(_WEEK_MS),
    "receipt_before_answer": flag,
    "receipt_fail_ratio": _RATIO,
    "receipt_outcomes": _weights,
    "receipt_lost_ratio": _RATIO,
    "receipt_double_ratio": _RATIO,
    "receipt_contradicted_ratio": _RATIO,
    "intermediate": list_of(choice(INTERMEDIATE)),
    "intermediate_late": flag,
    "receipts_held_max": whole(0, 10_000_000),
    "receipt_retry_ms": whole(1, _HOUR_MS),
    "dialect": DIALECT,
    "close_after": _COUNT,
    "cut_after_octets": _COUNT,
    "cut_after_pdus": _COUNT,
    "reset": flag,
    "unbind_after": _COUNT,
    "unbind_after_s": number(0, 86_400),
    "bad_pdu": optional(choice(BAD_PDUS)),
    "bad_pdu_every": whole(1, 1_000_000_000),
    "read_pause_ms": whole(0, _HOUR_MS),
    "black_hole": flag,
    "enquire_link_s": number(0.01, 86_400),
    "response_timeout_s": number(0.01, 86_400),
    "inactivity_s": number(0.01, 86_400),
}
_SETTINGS: Final = Record(SimulatorSettings, {**_AT_START, **_ANY_TIME})


def load_script(text: str) -> SimulatorSettings:
    """Settings from the text of a script. Raises ScriptInvalid with every fault."""
    script = parse_yaml(text)
    if script is None:
        return SimulatorSettings()
    if not isinstance(script, dict):
        raise ScriptInvalid("the script must be a mapping of settings")
    faults: list[str] = []
    values = _SETTINGS.values(script, "", faults)
    faults += _inconsistent(values)
    if faults:
        raise ScriptInvalid("\n".join(faults))
    return SimulatorSettings(**values)


def parse_yaml(text: str) -> Any:
    """The YAML of a script or a command. Raises ScriptInvalid."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as broken:
        mark = getattr(broken, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise ScriptInvalid(f"{where}not YAML: {getattr(broken, 'problem', None) or 'unreadable'}") from None


def changed(settings: SimulatorSettings, changes: Mapping[str, Any]) -> SimulatorSettings:
    """The settings with these changes, for a simulator that runs. Raises ScriptInvalid."""
    faults: list[str] = []
    values = _changes(changes, "", faults)
    if faults:
        raise ScriptInvalid("\n".join(faults))
    return replace(settings, **values)


def _changes(changes: Mapping[str, Any], place: str, faults: list[str]) -> dict[str, Any]:
    values = _SETTINGS.values(changes, place, faults)
    dot = f"{place}." if place else ""
    faults += [f"{dot}{name}: cannot change while the simulator runs" for name in changes if name in _AT_START]
    return values


def _inconsistent(values: Mapping[str, Any]) -> list[str]:
    faults = []
    certificate = values.get("tls_certificate") is not None
    faults += [
        f"{name}: needs tls_certificate"
        for name in ("tls_key", "tls_client_ca")
        if values.get(name) is not None and not certificate
    ]
    if values.get("bind_refusals") and not values.get("bind_status"):
        faults.append("bind_refusals: needs bind_status")
    return faults
