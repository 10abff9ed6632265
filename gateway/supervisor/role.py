"""One role in the foreground: its runtime, its operators' port, its signals, its orderly end."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from gateway import logs
from gateway.loops import end
from gateway.policy.entry import apply_quietly, watch_file
from gateway.runtime import Runtime, StartRefused
from gateway.settings import Settings
from gateway.supervisor import addresses
from gateway.supervisor.first_policy import from_file

ROLES = ("api", "egress", "delivery")
_COLLECT: Final = (20_000, 20, 50)
_log = logs.get("role")


async def run_role(settings: Settings, role: str, worker: str, sockets: list[socket.socket] | None = None) -> int:
    """Runs a role until SIGTERM or SIGINT and until it has drained; returns the exit code.

    `sockets` are inherited ones of the tenant port; without them an api role binds its own.
    Raises StartRefused, AddressInUse.
    """
    work = _entry(role)
    if role == "api" and not sockets:
        sockets = [addresses.listen(settings.host, settings.port, "SLUICEGATE_HOST and SLUICEGATE_PORT")]
    early = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, early.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    opened = Runtime.open(settings, role, worker, first_policy=from_file(settings.policy))
    rt = await _enter(opened, early)
    if rt is None:
        return 0
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, rt.stopping.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: read_policy_again(rt))
        if early.is_set():
            rt.stopping.set()
        if settings.admin_socket is None and settings.policy is not None:
            rt.spawn(watch_file(rt, settings.policy), "policy file")
        async with _operators_page(rt):
            _log.info("role_started", process=rt.process_id)
            with calm_collection():
                await _run_to_end(rt, work, sockets or [])
        return 0 if rt.failure is None else 1
    finally:
        await opened.__aexit__(None, None, None)


@contextmanager
def calm_collection() -> Iterator[None]:
    """Collects garbage less often, and never what was there at start: else up to a fifth of a role's CPU goes there."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def read_policy_again(rt: Runtime) -> None:
    """SIGHUP: applies the policy file as it is now; a bad one changes nothing and is told in log, audit and metric."""
    if rt.settings.policy is not None:
        rt.spawn(apply_quietly(rt, rt.settings.policy, f"SIGHUP to {rt.worker}"), "policy on SIGHUP")


async def _enter(opened: Any, early: asyncio.Event) -> Runtime | None:
    # A stop that comes while the stores are still awaited ends the wait.
    entering = asyncio.ensure_future(opened.__aenter__())
    stopped = asyncio.ensure_future(early.wait())
    await asyncio.wait({entering, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if entering.done():
        runtime: Runtime = entering.result()
        return runtime
    await end([entering])
    return None


async def _run_to_end(
    rt: Runtime, work: Callable[[Runtime, list[socket.socket]], Awaitable[None]], sockets: list[socket.socket]
) -> None:
    running = asyncio.ensure_future(work(rt, sockets))
    stopping = asyncio.ensure_future(rt.stopping.wait())
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not running.done():
        _log.info("role_draining")
        done, _ = await asyncio.wait({running}, timeout=rt.settings.drain_s)
        if not done:
            _log.error("drain_took_too_long", seconds=rt.settings.drain_s)
            running.cancel()
            await asyncio.wait({running}, timeout=2.0)
            return
    if not running.cancelled() and (error := running.exception()) is not None:
        rt.fail(error, rt.role)
    elif not rt.stopping.is_set():
        rt.fail(RuntimeError("the role returned by itself"), rt.role)


def _entry(role: str) -> Callable[[Runtime, list[socket.socket]], Awaitable[None]]:
    match role:
        case "api":
            from gateway.api.role import serve

            return serve
        case "egress":
            from gateway.egress.role import run as egress

            return lambda rt, _sockets: egress(rt)
        case "delivery":
            from gateway.delivery.role import run as delivery

            return lambda rt, _sockets: delivery(rt)
    raise StartRefused(f"{role} is not a role: {', '.join(ROLES)}")


@asynccontextmanager
async def _operators_page(rt: Runtime) -> AsyncIterator[None]:
    """The inner page under a supervisor, else an operators' port of this role's own."""
    settings = rt.settings
    if settings.admin_socket is not None:
        from gateway.operators.inner_page import InnerPage

        async with InnerPage(rt, _private_listener(settings.admin_socket)):
            yield
        return
    from gateway.operators.app import build_app
    from gateway.operators.desk import Desk
    from gateway.operators.server import OperatorsServer

    listener = addresses.listen(
        settings.admin_host, settings.admin_port, "SLUICEGATE_ADMIN_HOST and SLUICEGATE_ADMIN_PORT"
    )
    desk = Desk(rt)
    desk.watch()
    async with OperatorsServer(build_app(desk), listener):
        yield
    await desk.close()


def _private_listener(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(16)
    return listener
