"""What pip-audit said of the lock file, judged; and where nobody answered it, whether each pin is the newest release.

python -m tests.house.pins AUDIT.json          # `make audit` makes the file: pip-audit --format json

pip-audit ends with "No known vulnerabilities found" and 0 where its database does not know a package, or is not there.
That is no answer: such a pin counts as asked for nothing here. A flaw that is told together with the release that mends
it cannot be in the newest release, so the newest is the next best answer; the rest has to be looked up by hand.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"
_PIN = re.compile(r"^([A-Za-z0-9_.\-]+)==([^ ;\\]+)", re.MULTILINE)
_LIST_S = 300  # the index is asked for each package in turn


def plain(name: str) -> str:
    """A distribution's name as it is compared: `jsonschema_rs` and `jsonschema-rs` are one."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lock: str) -> set[tuple[str, str]]:
    """The (name, version) pairs of a lock file; a name stands twice where Python versions need different ones."""
    return {(plain(name), version) for name, version in _PIN.findall(lock)}


def judged(
    audit: dict[str, Any], lock: str, installed: list[dict[str, str]], outdated: list[dict[str, str]]
) -> tuple[list[str], bool]:
    """Lines to print, and whether nothing that is installed here is left to look up.

    `audit` is pip-audit's JSON, `installed` and `outdated` are those of `pip list` in the environment of `lock`."""
    locked = pins(lock)
    asked = {(plain(one["name"]), one["version"]): one["vulns"] for one in audit["dependencies"] if "vulns" in one}
    lines = [
        f"{name} {version}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or 'no release yet'}"
        for (name, version), flaws in sorted(asked.items())
        for flaw in flaws
    ]
    clean = not lines
    lines.append(f"pip-audit's database answered for {len(locked & asked.keys())} of {len(locked)} pins")
    unasked = locked - asked.keys()
    here = unasked & {(plain(one["name"]), one["version"]) for one in installed}
    behind = {(plain(one["name"]), one["version"]): one["latest_version"] for one in outdated}
    old = sorted(here & behind.keys())
    if here:
        lines.append(f"of the others, {len(here) - len(old)} are the newest release: no flaw is told that one mends")
    lines += [f"{name} {version}: not audited, and {behind[name, version]} is out: look it up" for name, version in old]
    elsewhere = sorted(unasked - here)
    if elsewhere:
        words = ", ".join(f"{name} {version}" for name, version in elsewhere)
        lines.append(f"not asked for, since they are for other systems or Pythons than this one: {words}")
    return lines, clean and not old


def _listed(*words: str) -> list[dict[str, str]]:
    command = [sys.executable, "-m", "pip", "list", "--disable-pip-version-check", "--format", "json", *words]
    said = subprocess.run(command, capture_output=True, text=True, timeout=_LIST_S, check=True).stdout
    found: list[dict[str, str]] = json.loads(said)
    return found


if __name__ == "__main__":
    answer = Path(sys.argv[1])
    told = json.loads(answer.read_text(encoding="utf-8")) if answer.exists() else {"dependencies": []}
    said, well = judged(told, LOCK.read_text(encoding="utf-8"), _listed(), _listed("--outdated"))
    sys.stdout.write("\n".join(said) + "\n")
    sys.exit(0 if well else 1)
