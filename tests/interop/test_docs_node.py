"""The senders of docs/api-guide.md, Node and Python, as they stand there: to a gateway, and to a door that refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.docs_runner import ROOT, blocks_of, commands_of
from tests.integration.running_gateway import RunningGateway, running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]
PAGE = blocks_of(ROOT / "docs" / "api-guide.md")
PROGRAMS = {"node": "node", "python3": sys.executable}


def command_of(program: str) -> list[str]:
    """The page's own command line for a sender."""
    lines = [line for block in PAGE if block.language == "sh" for line in commands_of(block)]
    line = next(line for line in lines if line.startswith(program + " send"))
    found = re.fullmatch(r'(\S+) (\S+) (\S+) "([^"]+)"', line)
    assert found is not None, line
    return [PROGRAMS[program], *found.groups()[1:]]


def send(program: str, folder: Path, api: str, key: str) -> subprocess.CompletedProcess[str]:
    for block in PAGE:
        if block.name is not None:
            (folder / block.name).write_text(block.text, encoding="utf-8")
    environment = os.environ | {"API": api, "KEY": key}
    return subprocess.run(
        command_of(program), cwd=folder, env=environment, capture_output=True, text=True, timeout=90, check=False
    )


class Door(ThreadingHTTPServer):
    """Refuses twice, loses an answer, then accepts; `seen`: idempotency keys and bodies."""

    daemon_threads = True

    def __init__(self, ends: int = 202) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.ends = ends
        self.seen: list[tuple[str, Any]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Answers(BaseHTTPRequestHandler):
    server: Door

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.headers["Idempotency-Key"], body))
        turn = len(self.server.seen)
        if turn == 3:
            return  # closed without a word: nobody knows whether it was kept
        status = {1: 503, 2: 429}.get(turn, self.server.ends)
        answer = json.dumps({"id": "msg_1"} if status == 202 else {"code": "x", "detail": "no"}).encode()
        self.send_response(status)
        if status in (429, 503):
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with running("node") as made:
        yield made


def test_the_node_sender_sends(gateway: RunningGateway, tmp_path: Path) -> None:
    done = send("node", tmp_path, gateway.api_url, gateway.key)
    assert done.returncode == 0, done.stderr
    message = gateway.message(done.stdout.strip())
    assert (message["class"], message["to"]) == ("otp", "+447700900128")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_sender_repeats_with_its_key_until_it_is_taken(program: str, tmp_path: Path) -> None:
    with Door() as door:
        done = send(program, tmp_path, f"http://127.0.0.1:{door.server_address[1]}", "sg_x")
        door.shutdown()
    assert (done.returncode, done.stdout.strip()) == (0, "msg_1"), done.stderr
    assert len(door.seen) == 4 and len({key for key, _ in door.seen}) == 1
    assert len({json.dumps(body) for _, body in door.seen}) == 1


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_sender_does_not_repeat_what_is_wrong(program: str, tmp_path: Path) -> None:
    with Door(ends=422) as door:
        done = send(program, tmp_path, f"http://127.0.0.1:{door.server_address[1]}", "sg_x")
        door.shutdown()
    assert done.returncode != 0 and len(door.seen) == 4
