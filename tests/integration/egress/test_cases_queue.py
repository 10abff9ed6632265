"""Case Q24: a helper service that is slow delays nobody. Ours has one on this road: the name service of a carrier."""

from __future__ import annotations

import ast
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from smpp.simulator import SimulatorSettings
from tests.integration.egress.world import PolicyText, open_world

ROOT = Path(__file__).resolve().parents[3]
SLOW_S, ADDED_MAX_S = 10.0, 0.3
# Where a code passes on its way from the door to a carrier, and what asks others over HTTP or runs a resolver.
ROAD = ("gateway/api", "gateway/admission", "gateway/domain", "gateway/ledger", "gateway/egress", "scheduler", "smpp")
OUTSIDE = {"aiohttp", "requests", "httpx", "urllib.request", "http.client", "gateway.callbacks.client"}


@dataclass
class Named(PolicyText):
    """The second session's carrier has a name that takes ten seconds to look up."""

    def yaml(self) -> str:
        return super().yaml().replace("s2: {host: '127.0.0.1'", "s2: {host: 'slow.example'")


async def test_q24_a_slow_name_service_delays_no_code(
    database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked, over = socket.getaddrinfo, [], threading.Event()

    def look_up(host: Any, *more: Any, **named: Any) -> Any:
        if host == "slow.example":
            asked.append(time.monotonic())
            over.wait(SLOW_S)
            raise socket.gaierror("no answer")
        return real(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    def text(port: int) -> PolicyText:
        return Named(port, sessions=2)

    async with open_world(database_url, redis_url, SimulatorSettings(port=0), text) as world, world.egress():
        await world.until_status(await world.put(["warm"], class_name="otp"), "sent")
        took_s = []
        for n in range(3):
            began_mono = time.monotonic()
            await world.until_status(await world.put([f"code {n}"], class_name="otp"), "sent")
            took_s.append(time.monotonic() - began_mono)
        assert asked and time.monotonic() - asked[0] < SLOW_S, "the look-up was over: nothing was proven"
        assert min(took_s) < 3 * ADDED_MAX_S, took_s
        assert {row["session"] for row in await world.conn.fetch("SELECT session FROM attempts")} == {"s1"}
        over.set()


def test_q24_nothing_else_on_the_road_asks_an_outside_service() -> None:
    """Routes come from the policy's prefixes; no module from door to carrier knows a client for anything else."""
    found = []
    for path in sorted(path for folder in ROAD for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
            found += [f"{path.relative_to(ROOT)}: {name}" for name in names if name in OUTSIDE]
    assert found == []
