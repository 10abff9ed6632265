"""A supervised child process: started again when it dies, stopped in order."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gateway import logs
from gateway.embedded import child
from gateway.loops import end
from gateway.telemetry import metrics

_BACK_OFF_S = (0.0, 0.25, 0.5, 1.0, 2.0, 5.0)  # waits before the n-th start in a row that did not live
_LIVED_S = 10.0
_log = logs.get("supervisor")


@dataclass(slots=True)
class Part:
    """What to run: `start` gives the running child; `died` is told the dead child's id before it is started again."""

    name: str
    start: Callable[[], subprocess.Popen[bytes]]
    died: Callable[[int], None] = lambda _pid: None
    stop_steps: Sequence[tuple[signal.Signals, float]] = ((signal.SIGTERM, 20.0),)
    child: subprocess.Popen[bytes] | None = None
    restarts: int = 0
    stopping: bool = False
    watcher: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self.child.pid if self.child is not None and self.child.poll() is None else None

    def launch(self) -> None:
        """Starts the child and watches it."""
        self.child = self.start()
        metrics.role_restarts_total.labels(self.name)
        self.watch()

    def watch(self) -> None:
        """Watches a child that was started elsewhere (stores are awaited before they are watched)."""
        self.watcher = asyncio.get_running_loop().create_task(self._keep_alive(), name=f"watch {self.name}")

    def tell(self, number: signal.Signals) -> None:
        """Passes a signal on."""
        if (pid := self.pid) is not None:
            os.kill(pid, number)

    async def stop(self) -> int | None:
        """Ends the child for good; returns its exit code."""
        self.stopping = True
        if self.watcher is not None:
            await end([self.watcher])
        if self.child is None:
            return None
        return await child.stop(self.child, *self.stop_steps)

    async def _keep_alive(self) -> None:
        misses = 0
        while not self.stopping and self.child is not None:
            begun_mono = time.monotonic()
            pid = self.child.pid
            code = await child.exited(self.child)
            if self._is_over():
                return
            misses = 0 if time.monotonic() - begun_mono > _LIVED_S else misses + 1
            _log.warning("part_died", name=self.name, pid=pid, exit_code=code)
            self.died(pid)
            await asyncio.sleep(_BACK_OFF_S[min(misses, len(_BACK_OFF_S) - 1)] if misses > 1 else 0.0)
            self.child = await self._start_again()
            self.restarts += 1
            metrics.role_restarts_total.labels(self.name).inc()
            _log.info("part_restarted", name=self.name, pid=self.child.pid)

    def _is_over(self) -> bool:
        return self.stopping

    async def _start_again(self) -> subprocess.Popen[bytes]:
        waits = 0
        while True:
            try:
                return self.start()
            except OSError as error:
                waits = min(waits + 1, len(_BACK_OFF_S) - 1)
                _log.error("part_does_not_start", name=self.name, error=type(error).__name__)
                await asyncio.sleep(_BACK_OFF_S[waits])


def role_arguments(role: str, *flags: str) -> list[str]:
    """The command line of a role's process; it shows the role's name (contract section 1).

    -P: no module may come from the directory that `up` was started in.
    """
    return [sys.executable, "-P", "-m", "gateway.supervisor", role, *flags]


def verb_arguments(verb: str, *flags: str) -> list[str]:
    """The command line of another verb in a process of its own."""
    return [sys.executable, "-P", "-m", "gateway.cli", verb, *flags]


def role_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Our environment with these settings in place of what it says about them, as value or as file."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in settings and name.removesuffix("_FILE") not in settings
    }
    return environment | dict(settings)
