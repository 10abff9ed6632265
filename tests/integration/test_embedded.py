"""The embedded stores' own care: closed directories, killed servers, stale notes, data of another version."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from gateway.embedded import child, programs
from gateway.embedded.home import DataDirectoryRefused, Home
from gateway.embedded.postgres import PostgresServer
from gateway.embedded.valkey import ValkeyServer


@pytest.fixture
def closed_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A data directory below one that only we may enter; the wheels cannot be started in place either."""
    parent = Path(tempfile.mkdtemp(prefix="sluicegate-closed-"))  # mode 0700
    home = Home(parent / "data")
    home.hold()
    wheels = Path(programs.__file__).parents[2] / ".venv"
    in_place = Home.executable
    monkeypatch.setattr(
        Home, "executable", lambda self, program: not program.is_relative_to(wheels) and in_place(self, program)
    )
    outside = home.stores
    yield home
    home.release()
    shutil.rmtree(parent)
    shutil.rmtree(outside, ignore_errors=True)


async def count(server: PostgresServer) -> int:
    connection = await asyncpg.connect(server.url())
    try:
        await connection.execute("CREATE TABLE IF NOT EXISTS kept (n integer)")
        await connection.execute("INSERT INTO kept VALUES (1)")
        return int(await connection.fetchval("SELECT count(*) FROM kept"))
    finally:
        await connection.close()


async def test_directories_that_the_servers_cannot_enter(closed_home: Home) -> None:
    postgres, valkey = PostgresServer(closed_home), ValkeyServer(closed_home)
    postgres.start()
    valkey.start()
    await postgres.ready()
    await valkey.ready()
    assert await count(postgres) == 1
    assert postgres.pid is not None
    if closed_home.identity.dropped:
        assert (closed_home.directory / "stores").is_symlink()
        assert os.stat(f"/proc/{postgres.pid}").st_uid == closed_home.identity.uid
    assert Path(f"/proc/{postgres.pid}/exe").resolve().is_relative_to(closed_home.stores)
    await postgres.stop()
    await valkey.stop()


@pytest.fixture
def fresh_home() -> Iterator[Home]:
    parent = Path(tempfile.mkdtemp(prefix="sluicegate-embedded-"))
    parent.chmod(0o711)
    home = Home(parent / "data")
    home.hold()
    yield home
    home.release()
    shutil.rmtree(parent)


async def test_a_killed_server_starts_again_with_its_data(fresh_home: Home) -> None:
    server = PostgresServer(fresh_home)
    server.start()
    await server.ready()
    assert await count(server) == 1
    assert server.child is not None
    os.kill(server.child.pid, signal.SIGKILL)
    await child.exited(server.child)
    server.start()
    await server.ready()
    assert await count(server) == 2
    await server.stop()

    # A note of a dead server whose process id another program has by now.
    note = fresh_home.stores / "postgres" / "postmaster.pid"
    note.write_text(f"{os.getpid()}\n{note.parent}\n0\n5432\n\n\n0 0\n")
    server.start()
    await server.ready()
    assert await count(server) == 3
    await server.stop()


async def test_data_of_another_major_version_is_refused_in_words(fresh_home: Home) -> None:
    data = fresh_home.own("postgres")
    (data / "PG_VERSION").write_text("17\n")
    with pytest.raises(DataDirectoryRefused, match="was made by PostgreSQL 17 and this release brings 18"):
        PostgresServer(fresh_home).start()


def test_secrets_are_kept_and_private(fresh_home: Home) -> None:
    assert fresh_home.secret("postgres_password") == fresh_home.secret("postgres_password")
    assert (fresh_home.directory / "state.json").stat().st_mode & 0o077 == 0


def test_a_long_path_gets_a_short_place_for_sockets(fresh_home: Home) -> None:
    deep = Home(fresh_home.directory / ("d" * 60) / ("e" * 60))
    deep.directory.mkdir(parents=True)
    place = deep.socket_directory()
    assert len(str(place)) < 60
    assert deep.socket_directory() == place
    shutil.rmtree(place)
