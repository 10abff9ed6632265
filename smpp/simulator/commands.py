"""Actions while a simulator runs: one YAML or JSON mapping a line, `{do: cut}` or `{set: {answer_delay_ms: 500}}`."""

from __future__ import annotations

from typing import Any

from smpp.simulator.actions import command_of
from smpp.simulator.carrier import Simulator
from smpp.simulator.script import ScriptInvalid, parse_yaml


def execute(carrier: Simulator, line: str) -> dict[str, Any]:
    """Does what the line says and tells how the carrier stands: its counters and its sessions. Raises ScriptInvalid."""
    command = parse_yaml(line)
    if not isinstance(command, dict):
        raise ScriptInvalid("a command is a mapping such as {do: cut}")
    if "set" in command:
        if len(command) > 1 or not isinstance(command["set"], dict):
            raise ScriptInvalid("set: must be a mapping of settings, and nothing beside it")
        carrier.change(**command["set"])
    elif command != {"tell": True}:
        faults: list[str] = []
        action = command_of(command, "", faults)
        if faults:
            raise ScriptInvalid("\n".join(faults))
        carrier.perform(action)
    return {"bound": carrier.bound, "receipts_waiting": carrier.receipts_waiting, "counters": dict(carrier.counters)}
