"""The stores under `up`: embedded ones, watched, unless their URLs are configured."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable

from gateway.embedded.home import Home
from gateway.embedded.postgres import PostgresServer
from gateway.embedded.valkey import ValkeyServer
from gateway.settings import Settings
from gateway.supervisor.parts import Part


class Stores:
    """PostgreSQL and Valkey of this run; `parts` holds only what we started ourselves."""

    def __init__(self, settings: Settings, home: Home) -> None:
        self._postgres = None if settings.database_url else PostgresServer(home)
        self._valkey = None if settings.redis_url else ValkeyServer(home)
        self.database_url = settings.database_url or (self._postgres.url() if self._postgres else "")
        self.redis_url = settings.redis_url or (self._valkey.url() if self._valkey else "")
        self.parts: list[Part] = []

    @property
    def embedded_database(self) -> bool:
        """True where the database belongs to this data directory alone."""
        return self._postgres is not None

    async def start(self) -> None:
        """Starts both at once and waits until they answer; raises DataDirectoryRefused."""
        if self._valkey is not None:
            self._valkey.start()
            self.parts.append(
                Part("valkey", _starter(self._valkey), stop_steps=((signal.SIGTERM, 5.0),), child=self._valkey.child)
            )
        if self._postgres is not None:
            self._postgres.start()
            steps = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 10.0))
            self.parts.append(Part("postgres", _starter(self._postgres), stop_steps=steps, child=self._postgres.child))
        await asyncio.gather(*(server.ready() for server in (self._postgres, self._valkey) if server is not None))
        for part in self.parts:
            part.watch()

    async def stop(self) -> None:
        """Valkey first: it can be rebuilt; PostgreSQL last."""
        for part in self.parts:
            await part.stop()


def _starter(server: PostgresServer | ValkeyServer) -> Callable[[], subprocess.Popen[bytes]]:
    def start() -> subprocess.Popen[bytes]:
        server.start()
        assert server.child is not None
        return server.child

    return start
