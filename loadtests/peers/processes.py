"""Processes of one bench run: started in a directory of its own, counted, ended by their ids."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class NotStarted(RuntimeError):
    """A process did not come up; the text names it and its log."""


class Processes:
    """What one run has started, by name; logs stand in `home`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self,
        name: str,
        words: Sequence[str],
        *,
        port: int = 0,
        within_s: float = 60.0,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Starts one and waits for its port; raises NotStarted."""
        with self.log(name).open("ab") as log:
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        self._running[name] = child
        end_mono = time.monotonic() + within_s
        while port and not _is_open(port):
            if child.poll() is not None or time.monotonic() > end_mono:
                raise NotStarted(f"{name} does not listen on port {port}: see {self.log(name)}")
            time.sleep(0.05)
        return child

    def log(self, name: str) -> Path:
        """Where a process writes."""
        return self.home / f"{name}.log"

    def pids(self, *names: str) -> list[int]:
        """Ids of the named ones, or of all."""
        return [self._running[name].pid for name in names or tuple(self._running)]

    def stop(self, *names: str) -> None:
        """SIGTERM in reverse order of their start, SIGKILL to what is left of their families."""
        for name in names or tuple(reversed(self._running)):
            child = self._running.pop(name, None)
            if child is None:
                continue
            family = [pid for pid in tree(child.pid) if pid != child.pid]
            with suppress(ProcessLookupError):
                child.send_signal(signal.SIGTERM)
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            for pid in family:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def tree(root: int) -> list[int]:
    """A process and all that descends from it."""
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):
                todo.extend(map(int, children.read_text().split()))
    return found


def cpu_s(pids: Sequence[int]) -> float:
    """CPU seconds of these processes, their living descendants and the children that those have waited for."""
    total = 0
    for pid in {one for root in pids for one in tree(root)}:
        with suppress(OSError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += sum(map(int, fields[11:15]))
    return total / _TICKS_PER_S


def memory_mb(pids: Sequence[int]) -> float:
    """Proportional memory (a page that n processes share counts 1/n to each) of these and their descendants, MiB."""
    total_kb = 0
    for pid in {one for root in pids for one in tree(root)}:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total_kb += int(line.split()[1])
    return total_kb / 1024


def busy_s() -> float:
    """CPU seconds that the whole machine has used since its start, stolen time left out."""
    fields = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]))
    return (sum(fields) - fields[3] - fields[4]) / _TICKS_PER_S
