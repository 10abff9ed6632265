"""The embedded Valkey: an index that PostgreSQL can rebuild, so nothing of it is written to disk (design section 2)."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

import redis.asyncio
import redis.exceptions

from gateway.embedded import child
from gateway.embedded.home import DataDirectoryRefused, Home, write_private
from gateway.embedded.programs import valkey_program

_READY_S = 20.0
_CONFIGURATION = """\
port 0
unixsocket "{socket}"
unixsocketperm 700
requirepass {password}
dir "{directory}"
save ""
appendonly no
daemonize no
maxmemory-policy noeviction
loglevel notice
"""


class ValkeyServer:
    """One Valkey in a held data directory."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._socket = home.socket_directory() / "valkey.sock"
        self._directory = home.own("valkey")
        self._password = home.secret("valkey_password")
        self._program: Path | None = None
        self.child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The server's process id."""
        return None if self.child is None else self.child.pid

    def url(self, database: int = 0) -> str:
        """The connection URL."""
        return f"unix://:{quote(self._password)}@{quote(str(self._socket))}?db={database}"

    def start(self) -> None:
        """Starts the server; an old socket of a killed one is replaced."""
        self._program = self._program or valkey_program(self._home)
        configuration = self._directory / "valkey.conf"
        write_private(
            configuration,
            _CONFIGURATION.format(socket=self._socket, password=self._password, directory=self._directory),
        )
        self._home.give(configuration)
        self._socket.unlink(missing_ok=True)
        self.child = child.start(
            child.ChildCommand(
                arguments=[str(self._program), str(configuration)],
                environment={"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"},
                uid=self._home.identity.uid,
                gid=self._home.identity.gid,
                log=self._home.log("valkey"),
                death_signal=signal.SIGKILL,
            )
        )

    async def ready(self) -> None:
        """Waits until the server answers; raises DataDirectoryRefused, naming the log, when it ends instead."""
        until = time.monotonic() + _READY_S
        client = redis.asyncio.Redis.from_url(self.url())
        try:
            while True:
                try:
                    await client.ping()
                    return
                except (OSError, redis.exceptions.RedisError) as error:
                    if self.child is None or self.child.poll() is not None or time.monotonic() > until:
                        raise DataDirectoryRefused(f"Valkey did not start, see {self._home.log('valkey')}") from error
                await asyncio.sleep(0.01)
        finally:
            await client.aclose()

    async def stop(self) -> None:
        """Ends the server; there is nothing to save."""
        if self.child is not None:
            await child.stop(self.child, (signal.SIGTERM, 5.0))
