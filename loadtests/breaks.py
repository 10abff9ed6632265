"""Rules of the gateway, broken on purpose in a copy of it: the fault run that guards the rule must notice.

    python -m loadtests.breaks                          # all of them: about three quarters of an hour
    python -m loadtests.breaks --only answer-before-the-disk
    python -m loadtests.breaks --page docs/promises.md  # what was seen so far, as a table

Each break replaces fragments in a copy of this tree and plays one run of the campaign there with few strikes. What was
seen is kept in results/breaks.jsonl. A check that no broken rule has made fail proves nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from loadtests.break_list import BREAKS, Break
from loadtests.pages import put
from loadtests.promises import read_rows
from loadtests.world import ROOT

_LEFT_OUT: Final = shutil.ignore_patterns(".*", "results", "build", "node_modules", "__pycache__")
_PLAYS_WITHIN_S: Final = 1_200.0
_RATE_PER_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What a broken gateway's run said; `noticed` is the line that names the broken promise, empty where none does."""

    noticed: str
    said: Sequence[str]


class Misplaced(ValueError):
    """A fragment does not stand exactly once in its file; the text names both."""


def broken_copy(one: Break, home: Path) -> Path:
    """A copy of this tree with the rule broken; raises Misplaced."""
    copy = home / "broken"
    shutil.copytree(ROOT, copy, ignore=_LEFT_OUT)
    for edit in one.edits:
        path = copy / edit.file
        text = path.read_text()
        if text.count(edit.old) != 1:
            raise Misplaced(f"{one.name}: {edit.file} has {text.count(edit.old)} of: {edit.old}")
        path.write_text(text.replace(edit.old, edit.new))
    return copy


def play(one: Break, rate_per_s: float, keep: Path | None) -> Seen:
    """Play the run that guards the rule against the broken copy; raises TimeoutExpired where it does not end."""
    with tempfile.TemporaryDirectory(prefix="sluicegate-breaks-") as scratch:
        Path(scratch).chmod(0o755)
        copy = broken_copy(one, Path(scratch))
        words = [
            *(sys.executable, "-m", "loadtests.campaign", "--replay", one.run, "--replay-strikes", str(one.strikes)),
            *("--rate", f"{rate_per_s:g}", *(("--keep", str(keep / one.name)) if keep else ())),
        ]
        # The copy stands before the installed tree for every process of the run.
        environment = os.environ | {"PYTHONPATH": str(copy)}
        done = subprocess.run(
            words, cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=_PLAYS_WITHIN_S
        )
    said = [line.strip().removeprefix("! ") for line in done.stdout.splitlines() if line.startswith("    ! ")]
    if done.returncode not in (0, 1) or (done.returncode == 1 and not said):
        raise RuntimeError(f"the run of {one.name} broke off: {done.stderr.strip()[-400:]}")
    return Seen(next((line for line in said if one.says in line), ""), said)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """What was broken, by which run it was noticed, and what that run said; the newest sight of each."""
    newest = {row["break"]: row for row in rows}
    lines = ["| promise | what was broken on purpose | noticed by | it said |", "| --- | --- | --- | --- |"]
    for one in BREAKS:
        row = newest.get(one.name)
        said = "not played yet" if row is None else _short(row["noticed"]) or "**nothing**"
        where = "" if row is None else f" ({row['at'][:10]}, {row['commit']})"
        lines.append(f"| {one.promise} | {one.what} (`{one.name}`) | `{one.run}` | {said}{where} |")
    return "\n".join(lines) + "\n"


def _short(line: str) -> str:
    """Without the ids of the messages concerned."""
    return line.partition(": msg_")[0].partition(": r")[0]


def main() -> int:
    """Play what is asked, print the table; 1 where a broken rule went unnoticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[one.name for one in BREAKS], help="default: all")
    parser.add_argument("--rate", type=float, default=_RATE_PER_S, help="messages a second")
    parser.add_argument("--keep", type=Path, help="run here and keep the logs")
    parser.add_argument("--page", type=Path, help="put the table into this page: docs/promises.md")
    parser.add_argument("--no-play", action="store_true", help="only the table of what was seen before")
    parser.add_argument("--out", type=Path, default=Path("results/breaks.jsonl"))
    asked = parser.parse_args()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    unnoticed = 0
    git = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    for one in BREAKS:
        if asked.no_play or (asked.only and one.name not in asked.only):
            continue
        seen = play(one, asked.rate, asked.keep)
        unnoticed += not seen.noticed
        sys.stdout.write(f"{one.name:>32}  {seen.noticed or 'NOT NOTICED; said: ' + '; '.join(seen.said)}\n")
        sys.stdout.flush()
        row = {"break": one.name, "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", "commit": commit}
        with asked.out.open("a") as out:
            out.write(json.dumps(row | {"noticed": seen.noticed, "said": seen.said}) + "\n")
    text = table(read_rows(asked.out, "break"))
    sys.stdout.write(f"\n{text}")
    if asked.page:
        put(asked.page, "breaks", text)
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
