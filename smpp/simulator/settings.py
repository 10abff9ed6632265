"""How the simulated carrier behaves, and the script file that says so.

A script is a YAML mapping of the names below. `phases` changes them while the simulator runs:

    answer_delay_ms: 20
    receipt_delay_ms: 200
    phases:
      - {at_s: 10, throttle_per_s: 50}
      - {at_s: 20, throttle_per_s: 0, error_ratio: 0.1, error_status: 0x14}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

import yaml


class ScriptInvalid(ValueError):
    """The script cannot be used; the message lists every fault, one a line."""


@dataclass(frozen=True, slots=True)
class Phase:
    """Changes that take effect `at_s` seconds after the start."""

    at_s: float
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SimulatorSettings:
    """Durations in ms or s as named, ratios 0 to 1; a limit of 0 means none."""

    host: str = "127.0.0.1"
    port: int = 2775
    """0 takes any free port; `Simulator.port` tells it."""
    system_id: str = "simulator"
    """What bind responses carry."""
    password: str | None = None
    """Asked of every bind when set."""
    bind_status: int = 0
    """Answered to every bind when not 0: 0x05 already bound, 0x0E wrong password."""
    max_binds: int = 0
    answer_delay_ms: int = 0
    throttle_per_s: float = 0.0
    """submit_sm per second, all sessions together, above which ESME_RTHROTTLED is answered; a tenth of it may burst."""
    error_ratio: float = 0.0
    error_status: int = 0x08
    drop_ratio: float = 0.0
    """Share of submit_sm that is never answered."""
    dropped_delivered: bool = False
    """Whether a message whose answer was dropped is still delivered and reported by a receipt."""
    close_after: int = 0
    """submit_sm of one session after which its connection is cut."""
    receipts: bool = True
    receipt_delay_ms: int = 200
    receipt_before_answer: bool = False
    receipt_fail_ratio: float = 0.0
    """Share of receipts that say UNDELIV."""
    receipt_window: int = 100
    """Unanswered deliver_sm per session."""
    receipts_held_max: int = 200_000
    """Receipts kept for later and for an ESME that is away; beyond it they are dropped and counted."""
    receipt_retry_ms: int = 1_000
    """Pause before a receipt that was refused or not answered is sent again."""
    enquire_link_s: float = 30.0
    response_timeout_s: float = 30.0
    inactivity_s: float = 300.0
    journal: str | None = None
    """File for one JSON line per event. It holds numbers and the beginning of texts: an instrument for tests."""
    keep_submits: int = 0
    """Last submit_sm that `Simulator.submits` keeps in memory."""
    seed: int | None = None
    phases: tuple[Phase, ...] = ()


class _Range(NamedTuple):
    kind: type
    least: float
    most: float


_RANGES: Final[dict[str, _Range]] = {
    "port": _Range(int, 0, 65_535),
    "bind_status": _Range(int, 0, 0xFFFF_FFFF),
    "max_binds": _Range(int, 0, 100_000),
    "answer_delay_ms": _Range(int, 0, 3_600_000),
    "throttle_per_s": _Range(float, 0, 1_000_000),
    "error_ratio": _Range(float, 0, 1),
    "error_status": _Range(int, 0, 0xFFFF_FFFF),
    "drop_ratio": _Range(float, 0, 1),
    "close_after": _Range(int, 0, 1_000_000_000),
    "receipt_delay_ms": _Range(int, 0, 7 * 86_400_000),
    "receipt_fail_ratio": _Range(float, 0, 1),
    "receipt_window": _Range(int, 1, 100_000),
    "receipts_held_max": _Range(int, 0, 10_000_000),
    "receipt_retry_ms": _Range(int, 1, 3_600_000),
    "enquire_link_s": _Range(float, 0.01, 86_400),
    "response_timeout_s": _Range(float, 0.01, 86_400),
    "inactivity_s": _Range(float, 0.01, 86_400),
    "keep_submits": _Range(int, 0, 1_000_000),
}
_FLAGS: Final = frozenset({"dropped_delivered", "receipts", "receipt_before_answer"})
_WORDS: Final = frozenset({"host", "system_id"})
_KNOWN: Final = tuple(field.name for field in fields(SimulatorSettings))
_AT_START_ONLY: Final = frozenset({"host", "port", "journal", "keep_submits", "seed", "phases", "receipt_window"})


def load_script(text: str) -> SimulatorSettings:
    """Settings from the text of a script. Raises ScriptInvalid with every fault."""
    try:
        script = yaml.safe_load(text)
    except yaml.YAMLError as broken:
        mark = getattr(broken, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise ScriptInvalid(f"{where}not YAML: {getattr(broken, 'problem', None) or 'unreadable'}") from None
    if script is None:
        return SimulatorSettings()
    if not isinstance(script, dict):
        raise ScriptInvalid("the script must be a mapping of settings")
    values: dict[str, Any] = dict(script)
    written_phases = values.pop("phases", None)
    faults = _faults(values, "")
    phases = _phases(written_phases if written_phases is not None else [], faults)
    if faults:
        raise ScriptInvalid("\n".join(faults))
    return SimulatorSettings(**values, phases=phases)


def changed(settings: SimulatorSettings, changes: Mapping[str, Any]) -> SimulatorSettings:
    """The settings with these changes, for a simulator that runs. Raises ScriptInvalid."""
    faults = _faults(changes, "")
    faults += [f"{name}: cannot change while the simulator runs" for name in changes if name in _AT_START_ONLY]
    if faults:
        raise ScriptInvalid("\n".join(faults))
    return replace(settings, **changes)


def _phases(written: object, faults: list[str]) -> tuple[Phase, ...]:
    if not isinstance(written, list):
        faults.append("phases: must be a list")
        return ()
    phases = []
    for number, entry in enumerate(written):
        place = f"phases[{number}]."
        if not isinstance(entry, dict):
            faults.append(f"phases[{number}]: must be a mapping")
            continue
        changes = dict(entry)
        at_s = changes.pop("at_s", None)
        if isinstance(at_s, bool) or not isinstance(at_s, int | float) or at_s < 0:
            faults.append(f"{place}at_s: must be a number of seconds from 0")
            at_s = 0
        faults += _faults(changes, place)
        faults += [
            f"{place}{name}: cannot change while the simulator runs" for name in changes if name in _AT_START_ONLY
        ]
        phases.append(Phase(float(at_s), changes))
    return tuple(sorted(phases, key=lambda phase: phase.at_s))


def _faults(values: Mapping[Any, Any], place: str) -> list[str]:
    faults = []
    for name, value in values.items():
        fault = _fault(name, value)
        if fault is not None:
            faults.append(f"{place}{name}: {fault}")
    return faults


def _fault(name: object, value: object) -> str | None:
    if not isinstance(name, str) or name not in _KNOWN or name == "phases":
        near = get_close_matches(str(name), _KNOWN, n=1)
        return "unknown setting" + (f", did you mean {near[0]}?" if near else "")
    if name in _RANGES:
        kind, least, most = _RANGES[name]
        fits = (
            isinstance(value, int | float) and not isinstance(value, bool) and (kind is float or isinstance(value, int))
        )
        if not fits or not least <= value <= most:  # type: ignore[operator]
            noun = "whole number" if kind is int else "number"
            return f"must be a {noun} from {least:g} to {most:g}"
    elif name in _FLAGS:
        if not isinstance(value, bool):
            return "must be true or false"
    elif name == "seed":
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            return "must be a whole number"
    elif not isinstance(value, str) and (name in _WORDS or value is not None):
        return "must be a text"
    return None
