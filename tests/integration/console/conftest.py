"""A running door with its operators' port, and somebody who looks at the console."""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from gateway.operators.app import build_app
from gateway.operators.desk import Desk
from gateway.operators.server import OperatorsServer
from tests.integration.api.conftest import Gateway, running


@dataclass
class Console:
    """A browser of few words: cookies are kept, forms carry the token of the page they stand on."""

    gateway: Gateway
    desk: Desk
    base: str
    session: aiohttp.ClientSession
    csrf: str = ""

    async def get(self, path: str, **options: Any) -> tuple[int, str]:
        """A page."""
        async with self.session.get(self.base + path, **options) as reply:
            text = await reply.text()
        if (found := re.search(r'name="csrf" value="([0-9a-f]+)"', text)) is not None:
            self.csrf = found[1]
        return reply.status, text

    async def post(self, path: str, form: dict[str, str] | None = None, **headers: str) -> tuple[int, str]:
        """A form of this origin with the session's token, unless `headers` or the form say otherwise."""
        fields = {"csrf": self.csrf} | (form or {})
        given = {"Origin": self.base} | headers
        async with self.session.post(self.base + path, data=fields, headers=given) as reply:
            return reply.status, await reply.text()

    async def log_in(self) -> None:
        """By a link."""
        status, _ = await self.post("/console/login", {"token": self.desk.links.issue("the tests")})
        assert status == 200
        await self.get("/console/carriers")

    async def audit(self) -> list[tuple[str, str]]:
        """Actor and action, oldest first."""
        rows = await self.gateway.rt.pool.fetch("SELECT actor, action FROM audit ORDER BY id")
        return [(row["actor"], row["action"]) for row in rows]


@pytest.fixture
async def console(database_url: str, redis_url: str) -> AsyncIterator[Console]:
    """Nobody is logged in yet."""
    async with running(database_url, redis_url) as gateway:
        listener = socket.create_server(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        desk = Desk(gateway.rt, token="operator")
        jar = aiohttp.CookieJar(unsafe=True)
        async with OperatorsServer(build_app(desk), listener), aiohttp.ClientSession(cookie_jar=jar) as session:
            yield Console(gateway, desk, base, session)
        await desk.close()
