"""A policy file on its way in: at start unless its content was applied before, and when it changes on disk."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Protocol

from gateway import logs
from gateway.policy import versions
from gateway.policy.applier import Applier, PolicyRefused
from gateway.policy.rules.faults import Fault, PolicyInvalid

LOOK_S = 1.0
_log = logs.get("policy")


class Installation(Protocol):
    """What of the runtime is needed here."""

    @property
    def pool(self) -> Any: ...
    @property
    def applier(self) -> Applier: ...


async def apply_file(rt: Installation, path: Path, by: str, *, at_start: bool = False) -> int | None:
    """Applies a file and returns the version in force with it.

    With `at_start` a content that was applied before is left alone (None, with a warning where another is in force),
    so that a restart after a rollback keeps the rollback. Raises PolicyInvalid, PolicyRefused.
    """
    source = await asyncio.to_thread(read_file, path)
    if at_start:
        async with rt.pool.acquire() as conn:
            in_force = await versions.active(conn)
            known = await versions.known(conn, versions.digest_of(source))
        if in_force is not None and in_force[1] == source:
            return in_force[0]
        if in_force is not None and known is not None:
            _log.warning("policy_file_applied_before", version=known, in_force=in_force[0])
            return None
    return await rt.applier.apply(source, by)


async def watch_file(rt: Installation, path: Path) -> None:
    """Applies the file whenever its content changes while running; faults are logged and the old policy stays."""
    stamp, digest = _stamp(path), _digest(path)  # before any await: no later change is missed
    while True:
        await asyncio.sleep(LOOK_S)
        seen = await asyncio.to_thread(_stamp, path)
        if seen == stamp:
            continue
        stamp = seen
        changed = await asyncio.to_thread(_digest, path)
        if changed is None or changed == digest:
            continue
        digest = changed
        await apply_quietly(rt, path, f"file {path.name}")


async def apply_quietly(rt: Installation, path: Path, by: str) -> int | None:
    """Applies a file for SIGHUP and the watcher: what is wrong is told in log, audit and metric, and None returned."""
    try:
        return await apply_file(rt, path, by)
    except (PolicyInvalid, PolicyRefused) as refused:
        _log.error("policy_file_not_applied", file=path.name, reason=str(refused))
    except Exception as error:  # PostgreSQL away or the like: the next change or SIGHUP tries again
        _log.error("policy_file_not_applied", file=path.name, reason=type(error).__name__)
    return None


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
