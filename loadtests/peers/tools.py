"""Carrier, client and callback sink of the bench: built from the C sources beside this file, or the Python ones.

The C ones take a few per cent of one core at thousands of messages a second; where there is no compiler the Python ones
(`slow`) do the same work slower, and every table says which were used.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from loadtests.peers.processes import Processes
from loadtests.world import ROOT

SOURCES: Final = Path(__file__).resolve().parent
NAMES: Final = ("carrier", "client", "sink")
PLACE: Final = ROOT / ".peers"
_TAIL_OCTETS = 8192


class Tools:
    """How each tool is called: `kind` is "C" or "Python"."""

    def __init__(self, *, python: bool = False) -> None:
        self.kind = "Python" if python or shutil.which("gcc") is None else "C"
        if self.kind == "C":
            _build(PLACE / "bin")

    def words(self, name: str, *options: str) -> list[str]:
        """The command of one tool."""
        if self.kind == "C":
            return [str(PLACE / "bin" / name), *options]
        return [sys.executable, "-m", "loadtests.peers.slow", name, *options]

    def load(self, options: Sequence[str]) -> subprocess.Popen[str]:
        """A client at work; `loaded` reads what it came to."""
        return subprocess.Popen(self.words("client", *options), stdout=subprocess.PIPE, text=True, cwd=ROOT)


def loaded(client: subprocess.Popen[str]) -> dict[str, Any]:
    """What a client came to, once it has ended; raises RuntimeError where it failed."""
    told, _ = client.communicate()
    if client.returncode != 0:
        raise RuntimeError(f"the load client ended with {client.returncode}")
    found: dict[str, Any] = json.loads(told)
    return found


def _build(place: Path) -> None:
    """Compiles what is missing or older than its source."""
    place.mkdir(parents=True, exist_ok=True)
    newest = max(source.stat().st_mtime for source in SOURCES.glob("*.[ch]"))
    for name in NAMES:
        program = place / name
        if not program.exists() or program.stat().st_mtime < newest:
            words = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(SOURCES / f"{name}.c")]
            subprocess.run(words, check=True)


def told(processes: Processes, name: str) -> dict[str, Any]:
    """The newest line of JSON that a tool has written; empty before the first."""
    path = processes.log(name)
    if not path.exists():
        return {}
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - _TAIL_OCTETS))
        lines = log.read().decode(errors="replace").splitlines()
    for line in reversed(lines):
        if line.startswith("{") and line.endswith("}"):
            found: dict[str, Any] = json.loads(line)
            return found
    return {}


def count_anew(processes: Processes, name: str) -> None:
    """The carrier forgets what it has counted so far."""
    for pid in processes.pids(name):
        subprocess.run(["kill", f"-{signal.SIGUSR1.value}", str(pid)], check=True)
    time.sleep(0.3)


def await_count(count: Callable[[], int], wanted: int, *, idle_s: float, limit_s: float) -> int:
    """Waits until a count is reached, stands still for `idle_s`, or `limit_s` have passed; the count then."""
    end_mono = time.monotonic() + limit_s
    last, moved_mono = -1, time.monotonic()
    while (now := count()) < wanted and time.monotonic() < end_mono:
        if now != last:
            last, moved_mono = now, time.monotonic()
        elif time.monotonic() - moved_mono > idle_s:
            break
        time.sleep(0.1)
    return now
