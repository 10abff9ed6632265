"""A policy file on its way in: at start unless its content was applied before, and when it changes on disk."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any, Protocol

from gateway import logs
from gateway.policy import versions
from gateway.policy.applier import Applier, PolicyBusy, PolicyRefused
from gateway.policy.rules.document import SIZE_MAX
from gateway.policy.rules.faults import Fault, PolicyInvalid
from gateway.policy.rules.watch import SETTLE_S, Sight, Watch

LOOK_S = 1.0
_LOOK_AGAIN_S = SETTLE_S / 2
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

    What could not be judged (PostgreSQL away, another policy on its way) or not be read is tried again at each look; a
    file that was refused, when it is touched.
    """
    watch = Watch(_sight(path), _digest(path))  # before any await: no later change is missed
    while True:
        await asyncio.sleep(_LOOK_AGAIN_S if watch.is_pending else LOOK_S)
        sight, is_whole = await asyncio.to_thread(_look, path)
        if watch.is_due(sight, is_whole, time.monotonic()):
            await _take(rt, path, watch)


async def _take(rt: Installation, path: Path, watch: Watch) -> None:
    try:
        digest = versions.digest_of(await asyncio.to_thread(read_file, path))
    except PolicyInvalid as unreadable:
        if watch.is_untold(str(unreadable)):
            _log.warning("policy_file_not_readable", file=path.name, reason=str(unreadable))
        return
    if not watch.is_news(digest):
        return
    found = await _attempt(rt, path, f"file {path.name}")
    if found is None:
        watch.refused()
    elif found is not _LATER:
        watch.entered(digest)
    else:
        await asyncio.sleep(LOOK_S)


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


def read_file(path: Path, *, piped: bool = False) -> str:
    """The text of a policy file; raises PolicyInvalid where it cannot be read.

    A pipe or a device would keep whoever reads it waiting for ever: only with `piped` (a person's command, such as
    `policy check <(render)`) one is read. Of a text that is too large no more is read
    than shows that it is.
    """
    try:
        if not piped and path.exists() and not path.is_file():
            raise PolicyInvalid([Fault(0, "", f"{path} is not a regular file: name one that holds the policy")])
        with path.open(encoding="utf-8-sig") as file:
            return file.read(SIZE_MAX + 1)
    except OSError as error:
        raise PolicyInvalid([Fault(0, "", f"{path} cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError:
        raise PolicyInvalid([Fault(0, "", f"{path.name} is not UTF-8")]) from None


def _look(path: Path) -> tuple[Sight | None, bool]:
    return _sight(path), _ends_a_line(path)


def _sight(path: Path) -> Sight | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return Sight(status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_dev, status.st_ino)


def _ends_a_line(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) in b"\r\n"
    except OSError:  # an empty one too
        return False


def _digest(path: Path) -> bytes | None:
    try:
        return versions.digest_of(read_file(path))
    except PolicyInvalid:
        return None
