"""A policy file on its way in: at start unless its content was applied before, and when it changes on disk."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Protocol

from gateway import logs
from gateway.policy import versions
from gateway.policy.applier import Applier, PolicyBusy, PolicyRefused
from gateway.policy.rules.faults import Fault, PolicyInvalid

LOOK_S = 1.0
SETTLE_S = 0.2
_LATER = "later"
_log = logs.get("policy")


class Installation(Protocol):
    """What of the runtime is needed here."""

    @property
    def pool(self) -> Any: ...
    @property
    def applier(self) -> Applier: ...


async def apply_file(rt: Installation, path: Path, by: str, *, at_start: bool = False) -> int | None:
    """Applies a file and returns the version in force with it.

    It is read when it is this process's turn: of a SIGHUP and a change seen on disk at once, in one process or in two,
    none brings an older text back. With `at_start` a content that was applied before is left alone (None, with a
    warning where another is in force), so that a restart after a rollback keeps the rollback.
    Raises PolicyInvalid, PolicyRefused.
    """
    return await rt.applier.apply_latest(lambda: read_file(path), by, unless_known=at_start)


async def watch_file(rt: Installation, path: Path) -> None:
    """Applies the file whenever its content changes while running; faults are logged and the old policy stays.

    What could not be judged (PostgreSQL away, another policy on its way) is tried again at each look.
    """
    stamp, digest = _stamp(path), _digest(path)  # before any await: no later change is missed
    while True:
        await asyncio.sleep(LOOK_S)
        seen = await asyncio.to_thread(_stamp, path)
        if seen == stamp:
            continue
        # A file that is being written may be valid already, and lack its end.
        await asyncio.sleep(SETTLE_S)
        if await asyncio.to_thread(_stamp, path) != seen:
            continue
        stamp = seen
        changed = await asyncio.to_thread(_digest, path)
        if changed is None or changed == digest:
            continue
        if await _attempt(rt, path, f"file {path.name}") is _LATER:
            stamp = None
        else:
            digest = changed


async def apply_quietly(rt: Installation, path: Path, by: str) -> int | None:
    """Applies a file for SIGHUP and the watcher: what is wrong is told in log, audit and metric, and None returned."""
    found = await _attempt(rt, path, by)
    return found if isinstance(found, int) else None


async def _attempt(rt: Installation, path: Path, by: str) -> int | str | None:
    """The version in force, None where the file was refused, _LATER where it was not judged."""
    try:
        return await apply_file(rt, path, by)
    except PolicyBusy as busy:
        _log.error("policy_file_not_applied", file=path.name, reason=str(busy))
    except (PolicyInvalid, PolicyRefused) as refused:
        _log.error("policy_file_not_applied", file=path.name, reason=str(refused))
        return None
    except Exception as error:  # PostgreSQL away or the like
        _log.error("policy_file_not_applied", file=path.name, reason=type(error).__name__)
    return _LATER


def read_file(path: Path) -> str:
    """The text of a policy file; raises PolicyInvalid where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise PolicyInvalid([Fault(0, "", f"{path} cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError:
        raise PolicyInvalid([Fault(0, "", f"{path.name} is not UTF-8")]) from None


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _digest(path: Path) -> bytes | None:
    try:
        return versions.digest_of(read_file(path))
    except PolicyInvalid:
        return None
