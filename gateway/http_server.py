"""uvicorn's server for a process that has its own signals and its own end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any, Final

import uvicorn

_TICK_S: Final = 1.0  # uvicorn renews its Date header once a second
_HANDSHAKE_S: Final = 10.0  # as long as a request; asyncio would wait a minute for a client that says nothing
_TICKS: Final = 10  # what uvicorn counts in a second


class HttpServer(uvicorn.Server):
    """Serves until `end` is called. It looks at itself once a second, not ten times as uvicorn does."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Accepts no more; what is open is finished within the configured time."""
        self.should_exit = True
        self._ending.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the role, not to one of its servers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens on the given sockets, with a bound on the TLS handshake, which uvicorn lacks."""
        config, loop = self.config, asyncio.get_running_loop()
        handshake_s = None if config.ssl is None else _HANDSHAKE_S

        def protocol() -> asyncio.Protocol:
            return config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )

        self.servers = [
            await loop.create_server(
                protocol, sock=one, ssl=config.ssl, ssl_handshake_timeout=handshake_s, backlog=config.backlog
            )
            for one in sockets or ()
        ]
        self.started = True

    async def main_loop(self) -> Any:
        """Ticks until the end."""
        counter = 0
        while not await self.on_tick(counter):
            counter = (counter + _TICKS) % 864_000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._ending.wait()
