"""The same random calls on the operators' port."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from gateway.operators import openapi as operators_openapi
from gateway.operators.app import build_app
from gateway.operators.desk import Desk
from gateway.operators.server import OperatorsServer
from tests.integration.api.conftest import Gateway
from tests.integration.api.test_schemas import NUMBER, explore


@pytest.mark.timeout(3600 if "TEST_SCHEMA_EXAMPLES" in os.environ else 300)
async def test_operators_calls_answer_as_described(gateway: Gateway) -> None:
    sent = await gateway.send({"to": NUMBER, "from": "ACME", "text": "x", "application": "app"})
    known = {"id": [sent.json["id"]], "name": ["app", "simulator", "sim-1", "everywhere"], "number": [NUMBER]}
    known |= {"tenant": ["acme"], "version": ["1"]}
    listener = socket.create_server(("127.0.0.1", 0))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    desk = Desk(gateway.rt, token="operator")
    async with OperatorsServer(build_app(desk), listener):
        assert await asyncio.to_thread(explore, operators_openapi.document(), base, "operator", known) == []
    await desk.close()
