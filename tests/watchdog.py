"""No test may hold up the run: a phase that outlives its limit ends its test process, and the long ones are named.

pytest-timeout interrupts a test once. What waits without a limit after that (an end of a fixture, a repetition of the
test: its timer covers all of them together) would wait forever; here the process ends with the stacks of all its
threads on standard error, xdist reports the test as failed and goes on in a new process. The summary says why a test
was repeated: one that passes the second time is no reason to look away.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Generator
from typing import Any

import pytest

# Beyond the test's own limit, so that a plain time-out is told as one and its clean-up has its chance.
GRACE_S = 90.0
_TOLD_AFTER_S, _LOOK_S = 150.0, 15.0
_REASON_MAX = 600  # characters

_stderr = pytest.StashKey[int]()
_stopped = pytest.StashKey[threading.Event]()
_began: dict[str, float] = {}
_told: dict[str, float] = {}


def pytest_configure(config: pytest.Config) -> None:
    """Keeps the real standard error, and on the side that prints watches what runs long."""
    assert sys.__stderr__ is not None
    config.stash[_stderr] = os.dup(sys.__stderr__.fileno())
    if not hasattr(config, "workerinput"):
        config.stash[_stopped] = threading.Event()
        threading.Thread(target=_watch, args=(config, config.stash[_stopped]), daemon=True).start()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the watching."""
    if _stopped in config.stash:
        config.stash[_stopped].set()
    os.close(config.stash[_stderr])


def pytest_runtest_logstart(nodeid: str) -> None:
    """Notes when a test began."""
    _began[nodeid] = time.monotonic()


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Forgets a test that ended."""
    _began.pop(nodeid, None)
    _told.pop(nodeid, None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Bounds the start of the fixtures."""
    return (yield from _bounded(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Bounds the test."""
    return (yield from _bounded(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Bounds the end of the fixtures."""
    return (yield from _bounded(item))


def _bounded(item: pytest.Item) -> Generator[None, object, object]:
    faulthandler.dump_traceback_later(limit_s(item) + GRACE_S, file=item.config.stash[_stderr], exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def limit_s(item: pytest.Item) -> float:
    """The limit that pytest-timeout holds a test to, in seconds."""
    marker = item.get_closest_marker("timeout")
    if marker is None:
        return float(item.config.getini("timeout"))
    return float(marker.args[0] if marker.args else marker.kwargs["timeout"])


def _watch(config: pytest.Config, stopped: threading.Event) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    while not stopped.wait(_LOOK_S):
        now = time.monotonic()
        for nodeid, began in list(_began.items()):
            ran_s = now - began
            # Told at the first time that is remarkable and at each doubling of it.
            if reporter is not None and ran_s > _told.get(nodeid, _TOLD_AFTER_S / 2) * 2:
                _told[nodeid] = ran_s
                reporter.write_line(f"running for {ran_s:.0f} s: {nodeid}")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints what the tests that were repeated had failed of."""
    for report in terminalreporter.stats.get("rerun", ()):
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = str(crash.message if crash else report.longrepr)[:_REASON_MAX]
        terminalreporter.write_line(f"repeated: {report.nodeid}: {reason}")
