"""The page that a supervised role shows its supervisor: /metrics, /healthz and /readyz on a private unix socket.

The supervisor's port has everything else, so a role carries no web framework for it and is back soon after a kill.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Final

import orjson

from gateway.loops import end
from gateway.operators import metrics_page
from gateway.runtime import Runtime

_REQUEST_S: Final = 5.0
_HEAD_MAX: Final = 16_384
_JSON: Final = "application/json"


class InnerPage:
    """Serves one process's page on a listening socket while the context is open; one request per connection."""

    def __init__(self, rt: Runtime, listener: socket.socket) -> None:
        self._rt = rt
        self._listener = listener
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> InnerPage:
        self._server = await asyncio.start_unix_server(self._serve, sock=self._listener, limit=_HEAD_MAX)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        await end(self._open)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(head))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asked is gone, or never said what it wants
        finally:
            self._open.discard(task)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method != b"GET":
            return _response(405, _JSON, b"{}")
        match path:
            case b"/metrics":
                return _response(200, metrics_page.CONTENT_TYPE, metrics_page.own_page().encode())
            case b"/healthz":
                return _response(200, _JSON, orjson.dumps({"status": "ok"}))
            case b"/readyz":
                reason = await self._rt.not_ready()
                if reason is None:
                    return _response(200, _JSON, orjson.dumps({"status": "ready"}))
                return _response(503, _JSON, orjson.dumps({"status": "not ready", "reason": reason}))
        return _response(404, _JSON, b"{}")


def _response(status: int, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} \r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode("ascii") + body
