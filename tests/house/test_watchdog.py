"""A test that waits without a limit ends its process and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_CONFTEST = """
from tests import watchdog

watchdog.GRACE_S = 1.0


def pytest_configure(config):
    config.pluginmanager.register(watchdog, "watchdog")
"""
_TESTS = """
import threading

import pytest


@pytest.fixture
def stays():
    yield
    while True:  # swallows the one interruption that pytest-timeout sends
        try:
            threading.Event().wait()
        except BaseException:
            pass


@pytest.mark.flaky(reruns=1)
@pytest.mark.timeout(1)
def test_waits_at_its_end(stays): ...


def test_ends(): ...
"""


def test_a_hanging_test_is_named_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "test_two.py").write_text(_TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 20\n")
    plugins = ["-p", "xdist", "-p", "pytest_timeout", "-p", "pytest_rerunfailures", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *plugins, "-q", "-n", "1", "--dist", "loadscope"]
    ended = subprocess.run(
        [*command, str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(_ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert "1 passed" in ended.stdout
    assert "crashed while running 'test_two.py::test_waits_at_its_end'" in ended.stdout
    assert "in stays" in ended.stderr


_LEFT_OPEN = """
import asyncio

import uvloop


def test_fails_with_an_open_connection():
    kept = []

    async def run():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        kept.append(await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname()))
        raise ValueError("the fault of the test")

    uvloop.run(run())
"""


def test_a_failing_test_with_open_connections_on_uvloop_ends(tmp_path: Path) -> None:
    """Warnings are errors here: one raised inside uvloop's closing would leave it waiting for ever."""
    (tmp_path / "test_open.py").write_text(_LEFT_OPEN)
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(_ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    ended = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-o", "addopts=", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert "the fault of the test" in ended.stdout and "1 failed" in ended.stdout, ended.stdout
