"""Drives a real `sluicegate up` from outside, as an operator and a tenant would."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
START_S = 120.0
ROOT = Path(__file__).resolve().parents[2]


class RunningGateway:
    """One `sluicegate up` on free ports in a data directory of its own."""

    def __init__(self, data_dir: Path, *flags: str, environment: dict[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self.flags = flags
        self.environment = environment or {}
        self.greeting = ""
        self.process: subprocess.Popen[bytes]

    def start(self) -> RunningGateway:
        """Starts it and waits for the greeting."""
        arguments = ["up", "--data-dir", str(self.data_dir), "--port", "0", "--admin-port", "0", *self.flags]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLUICEGATE_")}
        self.output = self.data_dir.with_suffix(".out")
        self.errors = self.data_dir.with_suffix(".err")
        with self.output.open("wb") as output, self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gateway.cli", *arguments],
                cwd=ROOT,
                env=inherited | self.environment,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        try:
            wait_for(self._greeted, START_S, self.tell)
        except BaseException:
            self.stop()  # a start that came to nothing leaves nobody behind
            raise
        return self

    def tell(self) -> str:
        """What went wrong, for a failed test."""
        logs = [
            f"== {path.name}\n{path.read_text()[-1500:]}" for path in sorted(self.data_dir.glob("logs/*-[0-9].log"))
        ]
        return "\n".join([self.greeting, self.errors.read_text()[-4000:], *logs])

    def _greeted(self) -> bool:
        self.greeting = self.output.read_text()
        assert self.process.poll() is None, self.tell()
        return "\ncurl " in self.greeting and self.greeting.endswith("same data.\n\n")

    @property
    def api_url(self) -> str:
        """The printed API address."""
        return self._printed(r"API\s+(http://\S+)")

    @property
    def operators_url(self) -> str:
        """The printed operators' address."""
        return self._printed(r"metrics\s+(http://\S+)/metrics")

    @property
    def login_link(self) -> str:
        """The printed one-time link."""
        return self._printed(r"console\s+(http://\S+)")

    @property
    def key(self) -> str:
        """The printed key."""
        return self._printed(r"API key\s+(sg_\S+)")

    def _printed(self, pattern: str) -> str:
        found = re.search(pattern, self.greeting)
        assert found is not None, self.greeting
        return found[1]

    def paste(self) -> tuple[int, Any]:
        """Does what the printed curl line does (a fresh machine may lack curl)."""
        line = next(line for line in self.greeting.splitlines() if line.startswith("curl "))
        words = shlex.split(line)
        headers = dict(words[at + 1].split(": ", 1) for at, word in enumerate(words) if word == "-H")
        body = words[words.index("-d") + 1]
        url = next(word for word in words if word.startswith("http://"))
        return ask("POST", url, body.encode(), headers)

    def message(self, message_id: str) -> Any:
        """A message as its tenant sees it."""
        return ask("GET", f"{self.api_url}/v1/messages/{message_id}", None, {"Authorization": f"Bearer {self.key}"})[1]

    def command(self, *arguments: str, data_dir: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs another verb of the command line."""
        flags = ["--data-dir", str(self.data_dir)] if data_dir else []
        return subprocess.run(
            [sys.executable, "-m", "gateway.cli", *arguments, *flags],
            cwd=ROOT, env=dict(os.environ) | self.environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def status(self) -> Any:
        """`status --json`."""
        done = self.command("status", "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def healthy(self, role: str) -> set[int]:
        """Ids of this role's healthy processes."""
        return {one["pid"] for one in self.status()["processes"] if one["role"] == role and one["healthy"]}

    def left_over(self) -> list[str]:
        """Command lines of processes that belong to this data directory."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            if str(self.data_dir) in line and "pytest" not in line:
                found.append(f"{entry.name} {line}")
        return found

    def stop(self, number: signal.Signals = signal.SIGTERM, patience_s: float = 60.0) -> int:
        """Ends it and returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(patience_s)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()


def ask(method: str, url: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    """One HTTP call: status, and the parsed JSON or the text."""
    request = urllib.request.Request(url, body, headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            status, raw = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            status, raw = error.code, error.read().decode()
    try:
        return status, json.loads(raw)
    except ValueError:
        return status, raw


@contextmanager
def running(prefix: str, *flags: str) -> Iterator[RunningGateway]:
    """A gateway in a new directory under which others may pass (the stores run as another account); gone at the end."""
    parent = Path(tempfile.mkdtemp(prefix=f"sluicegate-{prefix}-"))
    parent.chmod(0o711)
    try:
        made = RunningGateway(parent / ".sluicegate", *flags).start()
        try:
            yield made
        finally:
            made.stop()
    finally:
        shutil.rmtree(parent, ignore_errors=True)


def wait_for(look: Callable[[], T], patience_s: float, tell: Callable[[], object] = lambda: "") -> T:
    """The first true answer of `look`; fails after `patience_s`."""
    until = time.monotonic() + patience_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < until, f"not within {patience_s} s: {tell()}"
        time.sleep(0.05)
