"""A simulated carrier on the gateway's own session machine: the default carrier of `up`, and `carrier-sim` alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from smpp.simulator.carrier import Simulator
from smpp.simulator.commands import execute
from smpp.simulator.kinds import Distribution
from smpp.simulator.script import ScriptInvalid, load_script
from smpp.simulator.settings import Action, Phase, Rule, SimulatorSettings

__all__ = [
    "Action",
    "Distribution",
    "Phase",
    "Rule",
    "ScriptInvalid",
    "Simulator",
    "SimulatorSettings",
    "execute",
    "load_script",
    "run",
]


async def run(
    settings: SimulatorSettings, stop_event: asyncio.Event, started: Callable[[Simulator], None] | None = None
) -> None:
    """Runs one simulator until the event is set, then unbinds and closes.

    `started` is called once it listens. Raises OSError when the port is taken or a file cannot be read.
    """
    simulator = await Simulator(settings).start()
    try:
        if started is not None:
            started(simulator)
        await stop_event.wait()
    finally:
        await simulator.stop()
