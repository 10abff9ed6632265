"""A simulated carrier on the gateway's own session machine: the default carrier of `up`, and `carrier-sim` alone."""

from __future__ import annotations

import asyncio

from smpp.simulator.carrier import Simulator
from smpp.simulator.settings import Phase, ScriptInvalid, SimulatorSettings, load_script

__all__ = ["Phase", "ScriptInvalid", "Simulator", "SimulatorSettings", "load_script", "run"]


async def run(settings: SimulatorSettings, stop_event: asyncio.Event) -> None:
    """Runs one simulator until the event is set, then unbinds and closes. Raises OSError when the port is taken."""
    simulator = await Simulator(settings).start()
    try:
        await stop_event.wait()
    finally:
        await simulator.stop()
