"""A small HTTP server inside a process that has its own signals."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvicorn

from gateway.api.front import Bodies, Front
from gateway.api.protocol import BoundedProtocol
from gateway.http_server import HttpServer

_STOP_S = 3
_AT_WORK_MAX = 200
_BODIES = Bodies(1 << 20, {})  # a policy of thousands of tenants


class OperatorsServer:
    """Serves an ASGI app on one listening socket while the context is open, with the tenant port's bounds before it."""

    def __init__(self, app: Any, listener: socket.socket) -> None:
        config = uvicorn.Config(
            Front(app, at_work_max=_AT_WORK_MAX, bodies=_BODIES, operators=True), http=BoundedProtocol,
            log_config=None, access_log=False, lifespan="off", ws="none",
            timeout_graceful_shutdown=_STOP_S, timeout_keep_alive=5, server_header=False, proxy_headers=False,
        )  # fmt: skip
        self._server = HttpServer(config)
        self._listener = listener
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> OperatorsServer:
        self._task = asyncio.get_running_loop().create_task(
            self._server.serve(sockets=[self._listener]), name="operators' port"
        )
        while not self._server.started and not self._task.done():  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.005)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.end()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        self._listener.close()
