"""Real stores for the tests: a PostgreSQL and a Valkey per test process, a fresh migrated database per test."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
import redis
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from gateway.embedded import child
from gateway.embedded.home import Home
from gateway.embedded.postgres import PostgresServer
from gateway.embedded.valkey import ValkeyServer
from gateway.ledger.migrate import migrate
from tests import watchdog
from tests.steady_parser import steady_parser

steady_parser()
# How long an example takes says how busy the machine is, and nothing about the code.
hypothesis_settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("any-machine")
# Texts at rest are always sealed; processes that tests start inherit it.
os.environ.setdefault("SLUICEGATE_DATA_KEY", "5e" * 32)
# Where this is set a line that is said into a pipe and not flushed would go unnoticed.
os.environ.pop("PYTHONUNBUFFERED", None)

T = TypeVar("T")
_OUTSIDE = {"integration", "faults"}
_TEMPLATE = "sluicegate_template"
_ROOMY_OCTETS = 4 << 30
_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Sees to it that no test holds up the run."""
    config.pluginmanager.register(watchdog, "watchdog")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that a busy machine can fail are repeated; the summary tells which (`R`).

    `timing`: best of three, for tests that assert a time. Against real processes and stores: once more.
    """
    for item in items:
        if item.get_closest_marker("timing"):
            item.add_marker(pytest.mark.flaky(reruns=2))
        elif _OUTSIDE & set(item.path.parts):
            item.add_marker(pytest.mark.flaky(reruns=1))


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on an event loop in another thread, so that a test's own loop is left alone."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def _available_octets() -> int:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def _roomy_memory() -> str | None:
    """The file system in memory where it is large, else None: the place of temporary files.

    A database is some 750 files. ext4 makes a file the slower the more were deleted in the last minutes, which is
    what a fresh database per test comes to: half of the time of the tests with stores.
    """
    try:
        place = os.statvfs("/dev/shm")
        room = min(place.f_bavail * place.f_frsize, _available_octets())
    except (OSError, StopIteration):
        return None
    return "/dev/shm" if room >= _ROOMY_OCTETS else None


@pytest.fixture(scope="session")
def home() -> Iterator[Home]:
    """A data directory that the servers' account can enter (pytest's own temporary directories are closed to it)."""
    directory = Path(tempfile.mkdtemp(prefix="sluicegate-test-", dir=_roomy_memory()))
    held = Home(directory)
    held.hold()
    yield held
    held.release()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server(home: Home) -> Iterator[PostgresServer]:
    """A running PostgreSQL; its superuser URL is `.url("postgres", "postgres")`."""
    # What it holds ends with the tests, so nothing waits for the disk (the gateways that `up` starts for a test do).
    hasty = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "128MB"}
    server = PostgresServer(home, settings={"shared_buffers": "64MB", "autovacuum_naptime": "60s", **hasty})
    server.start()
    run_apart(server.ready())
    yield server
    assert server.child is not None
    child.stop_now(server.child, signal.SIGINT)


@pytest.fixture(scope="session")
def valkey_server(home: Home) -> Iterator[ValkeyServer]:
    """A running Valkey."""
    server = ValkeyServer(home)
    server.start()
    run_apart(server.ready())
    yield server
    assert server.child is not None
    child.stop_now(server.child, signal.SIGTERM)


@pytest.fixture(scope="session")
def template_database(postgres_server: PostgresServer) -> str:
    """Name of a migrated database that fresh ones are copied from."""

    async def make() -> None:
        await _execute(postgres_server, f"CREATE DATABASE {_TEMPLATE} OWNER sluicegate")
        await migrate(postgres_server.url(_TEMPLATE))

    run_apart(make())
    return _TEMPLATE


@pytest.fixture
def database_url(postgres_server: PostgresServer, template_database: str) -> Iterator[str]:
    """URL of a fresh migrated database, dropped after the test."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    copied = f"TEMPLATE {template_database} STRATEGY FILE_COPY"  # without fsync a quarter of what the log would take
    run_apart(_execute(postgres_server, f"CREATE DATABASE {name} {copied} OWNER sluicegate"))
    yield postgres_server.url(name)
    run_apart(_execute(postgres_server, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
def empty_database_url(postgres_server: PostgresServer) -> Iterator[str]:
    """URL of a fresh database without any schema, dropped after the test."""
    name = f"empty_{os.getpid()}_{next(_numbers)}"
    run_apart(_execute(postgres_server, f"CREATE DATABASE {name} OWNER sluicegate"))
    yield postgres_server.url(name)
    run_apart(_execute(postgres_server, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
def redis_url(request: pytest.FixtureRequest) -> str:
    """URL of the Valkey of this test process, emptied (data and scripts), or of a server named by TEST_REDIS_URL.

    A server that is named is emptied too.
    """
    url = os.environ.get("TEST_REDIS_URL") or request.getfixturevalue("valkey_server").url()
    with redis.Redis.from_url(url) as client:
        client.flushall()
        client.script_flush()
        client.function_flush()
    return url


def superuser_url(server: PostgresServer, url: str) -> str:
    """The same database as `url`, as superuser."""
    database = urlsplit(url).path.lstrip("/")
    wanted = urlsplit(server.url(database, "postgres"))
    return urlunsplit(wanted)


async def _execute(server: PostgresServer, statement: str) -> None:
    connection = await asyncpg.connect(server.url("postgres", "postgres"))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
