"""Runs the commands of a documentation page as a reader would type them, beside one gateway for all pages.

A page's `sh` blocks run in order in one bash, in a directory where `.sluicegate` is a running gateway. `python` and
`js` blocks whose first line names a file are put there first. Addresses and the key are those of the gateway; `make up`
finds it running; `sluicegate up` starts another one in the background; what belongs to a machine (docker, kubectl) is
left to the lint.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NAMED: Final = re.compile(r"(?:#|//) (\S+\.(?:py|mjs))\n")
# Long, or a screen of their own: tested where they belong (`make` targets are checked to exist).
_ELSEWHERE: Final = ("make", "docker", "kubectl", "sluicegate top")
_WRAPPER: Final = """#!/bin/bash
if [ "$1" = up ]; then
  shift
  setsid "{python}" -m gateway.cli up "$@" --port 0 --admin-port 0 > up.$$.out 2>&1 &
  started=$!
  echo $started >> started.pids
  for _ in $(seq 900); do
    grep -q 'same data' up.$$.out && exit 0
    kill -0 $started 2>/dev/null || break
    sleep 0.2
  done
  cat up.$$.out; exit 1
fi
exec "{python}" -m gateway.cli "$@"
"""
_CURL: Final = '''#!{python}
"""Enough of curl for the pages, on machines without it."""
import sys, urllib.error, urllib.request
words, headers, method, body, url = sys.argv[1:], {{}}, None, None, ""
while words:
    word = words.pop(0)
    if word == "-H":
        name, _, value = words.pop(0).partition(": ")
        headers[name] = value
    elif word in ("-d", "--data-binary"):
        text = words.pop(0)
        body = open(text[1:], "rb").read() if text.startswith("@") else text.encode()
    elif word == "-X":
        method = words.pop(0)
    elif not word.startswith("-"):
        url = word
try:
    with urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method), timeout=30) as answer:
        sys.stdout.write(answer.read().decode())
except urllib.error.HTTPError as error:
    sys.stdout.write(error.read().decode())
'''


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block; `name` where its first line names a file."""

    language: str
    text: str
    name: str | None


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found = []
    for language, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        named = _NAMED.match(text)
        found.append(Block(language, text, named[1] if named else None))
    return found


def commands_of(block: Block) -> list[str]:
    """The commands of a `sh` block, continued lines and here-documents whole, without comments."""
    commands: list[str] = []
    end: str | None = None
    quoted = False
    for line in block.text.splitlines():
        open_before = bool(commands) and (end is not None or quoted or commands[-1].endswith("\\"))
        if open_before:
            commands[-1] += "\n" + line
        elif line.strip() and not line.lstrip().startswith("#"):
            commands.append(line)
        else:
            continue
        if end is not None:
            end = None if line == end else end
            continue
        here = re.search(r"<<'(\w+)'", line)
        end = here[1] if here else None
        quoted = quoted ^ (re.sub(r"\"[^\"]*\"", "", line).count("'") % 2 == 1) if end is None else quoted
    return commands


def make_place(directory: Path) -> dict[str, str]:
    """A reader's directory and environment."""
    programs = directory / "programs"
    programs.mkdir()
    (directory / ".venv").mkdir()
    (directory / ".venv" / "bin").symlink_to(programs)
    shutil.copy(ROOT / "policy.example.yaml", directory)
    tools = {"sluicegate": _WRAPPER} | ({} if shutil.which("curl") else {"curl": _CURL})
    for name, text in tools.items():
        (programs / name).write_text(text.format(python=sys.executable), encoding="utf-8")
        (programs / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLUICEGATE_")}
    return environment | {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


def run_page(
    page: Path, directory: Path, environment: dict[str, str], words: dict[str, str], *, leave: tuple[str, ...] = ()
) -> str:
    """Runs a page; returns what it printed. AssertionError with the output where a command fails."""
    script = ["set -euo pipefail", "set +m"]
    for block in blocks_of(page):
        if block.name is not None:
            (directory / block.name).write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            for command in commands_of(block):
                if not command.startswith((*_ELSEWHERE, *leave)):
                    script.append(f"echo '== {command.splitlines()[0][:60].replace(chr(39), '')}'\n{command}")
    text = "\n".join(script) + "\n"
    for before, after in words.items():
        text = text.replace(before, after)
    file = directory / f"{page.stem}.sh"
    file.write_text(text, encoding="utf-8")
    try:
        done = subprocess.run(
            ["bash", str(file)], cwd=directory, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=420, check=False,
        )  # fmt: skip
    finally:
        stop_started(directory)
    assert done.returncode == 0, f"{page.name} stumbles:\n{done.stdout[-6000:]}"
    return done.stdout


def stop_started(directory: Path) -> None:
    """Ends the gateways that a page started, by their ids."""
    note = directory / "started.pids"
    if not note.exists():
        return
    import signal
    import time
    from contextlib import suppress

    for pid in map(int, note.read_text().split()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + 60
        while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
            time.sleep(0.1)
    note.unlink()
