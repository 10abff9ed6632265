"""Child processes that never outlive their parent."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class ChildCommand:
    """What to start and how: `uid` None keeps ours; `death_signal` is what the child gets when its parent dies."""

    arguments: Sequence[str]
    environment: Mapping[str, str] | None = None
    uid: int | None = None
    gid: int | None = None
    directory: Path = Path("/")
    log: Path | None = None
    death_signal: signal.Signals = signal.SIGKILL
    pass_fds: Sequence[int] = field(default=())


def start(command: ChildCommand) -> subprocess.Popen[bytes]:
    """Starts a child in a session of its own, so that the terminal's Ctrl-C reaches only the parent.

    Must be called from the main thread: the kernel sends the death signal when the *thread* that forked ends.
    Raises OSError where the program cannot be started.
    """
    identity: dict[str, Any] = {}
    if command.uid is not None:
        identity = {"user": command.uid, "group": command.gid, "extra_groups": []}
    output: IO[bytes] | None = open(command.log, "ab") if command.log is not None else None  # noqa: SIM115
    try:
        return subprocess.Popen(
            list(command.arguments),
            env=None if command.environment is None else dict(command.environment),
            cwd=command.directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=tuple(command.pass_fds),
            preexec_fn=_die_with_parent(command.death_signal),  # noqa: PLW1509 - it calls only prctl and getppid
            **identity,
        )
    finally:
        if output is not None:
            output.close()


def _die_with_parent(death_signal: signal.Signals) -> Callable[[], None] | None:
    if _LIBC is None:
        return None
    parent = os.getpid()

    def ask_kernel() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)  # the parent died before the kernel was asked

    return ask_kernel


async def exited(child: subprocess.Popen[bytes]) -> int:
    """Waits for the end of a child without a thread; returns its exit code (negative: the signal)."""
    if not hasattr(os, "pidfd_open"):
        while child.poll() is None:  # noqa: ASYNC110 - nothing tells us but the look
            await asyncio.sleep(_POLL_S)
        return int(child.returncode)
    loop = asyncio.get_running_loop()
    if child.poll() is not None:
        return int(child.returncode)
    descriptor = os.pidfd_open(child.pid)
    gone: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _settle, gone)
    try:
        await gone
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return child.wait()


def _settle(gone: asyncio.Future[None]) -> None:
    if not gone.done():
        gone.set_result(None)


async def stop(child: subprocess.Popen[bytes], *steps: tuple[signal.Signals, float]) -> int:
    """Sends each signal in turn and waits its seconds; SIGKILL ends it at last. Returns the exit code."""
    for number, patience_s in (*steps, (signal.SIGKILL, 10.0)):
        with suppress(ProcessLookupError):
            child.send_signal(number)
        with suppress(TimeoutError):
            return await asyncio.wait_for(exited(child), patience_s)
    return child.wait()


def stop_now(child: subprocess.Popen[bytes], first: signal.Signals, patience_s: float = 10.0) -> None:
    """The same for callers without an event loop."""
    with suppress(ProcessLookupError):
        child.send_signal(first)
    try:
        child.wait(patience_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def alive(pid: int) -> bool:
    """True while a process of this id exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return state.rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        if Path("/proc/self/stat").exists():
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def working_in(directory: Path) -> list[int]:
    """Processes whose working directory this is (Linux; elsewhere none is told)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(entry / "cwd") == str(directory):
                found.append(int(entry.name))
    return sorted(found)


def wait_all_gone(pids: Sequence[int], patience_s: float) -> bool:
    """Waits until processes that are not our children are gone; False where one is still there after `patience_s`."""
    until = time.monotonic() + patience_s
    while any(alive(pid) for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
