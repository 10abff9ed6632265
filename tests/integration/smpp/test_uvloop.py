"""The link and the simulator on uvloop, which the gateway runs on: its transports and timers differ from asyncio's."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from smpp.simulator import Simulator, SimulatorSettings
from tests.integration.smpp import test_link, test_page_answers, test_page_receipts, test_simulator
from tests.integration.smpp.peers import RawCarrier


def _scenarios(module: Any, needed: str) -> list[Callable[..., Awaitable[None]]]:
    return [
        function
        for name, function in inspect.getmembers(module, inspect.iscoroutinefunction)
        if name.startswith("test_") and list(inspect.signature(function).parameters) == [needed]
    ]


@pytest.mark.parametrize("scenario", _scenarios(test_link, "carrier"), ids=lambda scenario: scenario.__name__)
def test_links(scenario: Callable[[RawCarrier], Awaitable[None]]) -> None:
    async def run() -> None:
        carrier = RawCarrier()
        try:
            await scenario(carrier)
        finally:
            await carrier.stop()

    uvloop.run(run())


@pytest.mark.parametrize("scenario", _scenarios(test_simulator, "start"), ids=lambda scenario: scenario.__name__)
def test_simulators(scenario: Callable[[test_simulator.Start], Awaitable[None]]) -> None:
    async def run() -> None:
        running: list[Simulator] = []

        async def begin(**settings: Any) -> Simulator:
            running.append(Simulator(SimulatorSettings(**{"port": 0, "receipt_delay_ms": 0, **settings})))
            return await running[-1].start()

        try:
            await scenario(begin)
        finally:
            for simulator in running:
                await simulator.stop()

    uvloop.run(run())


@pytest.mark.parametrize(
    "scenario",
    [
        test_page_answers.test_black_hole,
        test_page_answers.test_cut_mid_answer,
        test_page_answers.test_cut_inside_the_bind_response,
        test_page_answers.test_slow_reader,
        test_page_answers.test_stream_goes_wrong,
        test_page_answers.test_outbind,
        test_page_receipts.test_alerts_probes_cut,
        test_page_receipts.test_long_inbound,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_disturbances(scenario: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await scenario()

    uvloop.run(run())
