"""Node processes that tell one JSON line per event."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class Node:
    """A script of this folder and what it told; its standard input stays open until `stop`."""

    def __init__(self, script: str, *words: str) -> None:
        self.events: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            ["node", script, *words], cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.events.extend(json.loads(line) for line in self.process.stdout)

    def told(self, event: str) -> list[dict[str, Any]]:
        """Events of one kind so far."""
        return [one for one in list(self.events) if one["event"] == event]

    def stop(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self.reader.join(5)
        self.process.stdout.close()


def converse(script: str, lines: list[str]) -> list[dict[str, Any]]:
    """Runs a script of this folder on these lines; one JSON line comes back for each."""
    finished = subprocess.run(
        ["node", script], cwd=HERE, input="\n".join(lines), capture_output=True, text=True, timeout=60, check=False
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    return [json.loads(line) for line in finished.stdout.splitlines()]
