"""The embedded PostgreSQL: made once, started in the foreground on a unix socket, with fsync on: it holds real data."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import asyncpg

from gateway.embedded import child
from gateway.embedded.home import DataDirectoryRefused, Home
from gateway.embedded.programs import postgres_programs

DATABASE = "sluicegate"
_READY_S = 120.0  # recovery after a crash may take its time
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "wal_compression": "on",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "autovacuum_naptime": "15s",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
    # A statement or a detail line could carry a text or a number.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}


class PostgresServer:
    """One PostgreSQL in a held data directory."""

    def __init__(self, home: Home, *, settings: dict[str, str] | None = None) -> None:
        self._home = home
        self._settings = _SETTINGS | (settings or {})
        self._sockets = home.socket_directory()
        self._data = home.stores / "postgres"
        self._programs: Path | None = None
        self._password = home.secret("postgres_password")
        self.child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The postmaster's process id."""
        return None if self.child is None else self.child.pid

    def url(self, database: str = DATABASE, user: str = DATABASE) -> str:
        """The connection URL of a database; `postgres` is the superuser."""
        return f"postgresql://{user}:{quote(self._password)}@/{database}?{urlencode({'host': str(self._sockets)})}"

    def start(self) -> None:
        """Makes the data directory where there is none, ends what an earlier run left, and starts the server.

        Raises DataDirectoryRefused for a directory of another major version or an initdb that failed.
        """
        self._programs = self._programs or postgres_programs(self._home)
        if not self._data.exists():
            self._make(self._programs)
        self._check_version(self._programs)
        self._end_leftover()
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        self.child = child.start(
            child.ChildCommand(
                arguments=[str(self._programs / "postgres"), "-D", str(self._data), "-k", str(self._sockets), *options],
                environment=_ENVIRONMENT,
                uid=self._home.identity.uid,
                gid=self._home.identity.gid,
                log=self._home.log("postgres"),
                death_signal=signal.SIGINT,
            )
        )

    async def ready(self) -> None:
        """Waits until the server answers, then makes our account and database where they are missing.

        Raises DataDirectoryRefused with the place of the log when the server ends instead.
        """
        connection = await self._first_connection()
        try:
            if not await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", DATABASE):
                # Hexadecimal and made by us, so safe inside a literal: utility statements take no parameters.
                await connection.execute(f"CREATE ROLE {DATABASE} LOGIN CREATEDB PASSWORD '{self._password}'")
            if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", DATABASE):
                await connection.execute(f"CREATE DATABASE {DATABASE} OWNER {DATABASE}")
        finally:
            await connection.close()

    async def stop(self) -> None:
        """Fast stop: open transactions are rolled back, the rest is on disk."""
        if self.child is not None:
            await child.stop(self.child, (signal.SIGINT, 30.0), (signal.SIGQUIT, 10.0))

    async def _first_connection(self) -> asyncpg.Connection[Any]:
        until = time.monotonic() + _READY_S
        while True:
            try:
                return await asyncpg.connect(self.url("postgres", "postgres"), timeout=5)
            except (OSError, TimeoutError, asyncpg.CannotConnectNowError, asyncpg.ConnectionDoesNotExistError) as error:
                if self.child is None or self.child.poll() is not None:
                    raise DataDirectoryRefused(f"PostgreSQL did not start, see {self._home.log('postgres')}") from error
                if time.monotonic() > until:
                    raise DataDirectoryRefused(
                        f"PostgreSQL is not ready after {_READY_S:.0f} s, see {self._home.log('postgres')}"
                    ) from error
            await asyncio.sleep(0.02)

    def _make(self, programs: Path) -> None:
        fresh = self._data.with_name("postgres.new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        self._home.give(fresh)
        password_file = fresh.with_name("postgres.password")
        descriptor = os.open(password_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(self._password + "\n")
        self._home.give(password_file)
        arguments = [
            str(programs / "initdb"), "-D", str(fresh), "-U", "postgres", f"--pwfile={password_file}",
            "--auth=scram-sha-256", "--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8",
            "--locale=C", "--no-instructions",
        ]  # fmt: skip
        who: dict[str, Any] = {}
        if self._home.identity.dropped:
            who = {"user": self._home.identity.uid, "group": self._home.identity.gid, "extra_groups": []}
        try:
            done = subprocess.run(
                arguments,
                cwd="/",
                env=_ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=180,
                check=False,
                **who,
            )
        finally:
            password_file.unlink()
        if done.returncode != 0:
            last = (done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
            raise DataDirectoryRefused(f"initdb failed: {last}")
        fresh.rename(self._data)

    def _check_version(self, programs: Path) -> None:
        theirs = (self._data / "PG_VERSION").read_text(encoding="ascii").strip()
        told = subprocess.run(
            [str(programs / "postgres"), "--version"], capture_output=True, text=True, timeout=20, check=True
        ).stdout
        ours = told.split()[2].partition(".")[0]
        if theirs != ours:
            raise DataDirectoryRefused(
                f"{self._data} was made by PostgreSQL {theirs} and this release brings {ours}:"
                f" dump it with a PostgreSQL {theirs} and restore it"
                " into an empty data directory, or point SLUICEGATE_DATABASE_URL at a server of your own"
            )

    def _end_leftover(self) -> None:
        # We hold the lock of the data directory, so whatever still runs in it has lost its supervisor. Its processes
        # must be gone before a new server starts; PostgreSQL's own guard is the shared memory named in postmaster.pid.
        note = self._data / "postmaster.pid"
        try:
            pid = int(note.read_text(encoding="ascii").split()[0])
        except (OSError, ValueError, IndexError):
            return
        for number, patience_s in ((signal.SIGINT, 20.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 5.0)):
            left = child.working_in(self._data)
            if not left:
                break
            with suppress(ProcessLookupError):
                os.kill(pid if pid in left else left[0], number)
            child.wait_all_gone(left, patience_s)
        if child.alive(pid) and Path("/proc/self/cwd").exists():
            # The id belongs to another program by now, and the server would take it for its predecessor.
            note.unlink(missing_ok=True)
