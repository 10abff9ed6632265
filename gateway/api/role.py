"""The api role: serves HTTP on the given sockets until the process is asked to stop, then loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from socket import socket
from typing import Final

import uvicorn

from gateway.api.app import build
from gateway.api.certificate import certificate_of
from gateway.api.door import Door
from gateway.api.protocol import BoundedProtocol
from gateway.http_server import HttpServer
from gateway.policy.rules.snapshot import Policy
from gateway.policy.rules.tuning import tuning_of
from gateway.runtime import Runtime
from scheduler.store.scheduler import IndexUnavailable

_KEEP_ALIVE_S: Final = 5
_BACKLOG: Final = 2048
_TUNE_AGAIN_S: Final = 1.0


async def serve(rt: Runtime, sockets: Sequence[socket]) -> None:
    """Serves until `rt.stopping`; then accepts no more, finishes what is open, writes and queues what was accepted."""
    door = Door(rt)
    door.start()
    _keep_tuned(rt)
    await _serve(rt, door, sockets)


async def _serve(rt: Runtime, door: Door, sockets: Sequence[socket]) -> None:
    certificate = certificate_of(rt.settings)
    if certificate is not None:
        rt.spawn(certificate.follow(), "certificate")
    server = HttpServer(
        uvicorn.Config(
            build(rt, door),
            ssl_context_factory=None if certificate is None else lambda *_: certificate.context,
            loop="none",
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, int(rt.settings.drain_s) - 3),
        )
    )
    serving = asyncio.create_task(server.serve(sockets=list(sockets)), name="http")
    stopping = asyncio.create_task(rt.stopping.wait(), name="api-stopping")
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        server.end()
        await serving
    finally:
        stopping.cancel()
        await door.stop()


def _keep_tuned(rt: Runtime) -> None:
    """Tells the index of the policy in force: at start and at each change, until it has heard."""
    changed = asyncio.Event()

    def note(_policy: Policy) -> None:
        changed.set()

    async def keep() -> None:
        while True:
            changed.clear()
            policy = rt.policies.current
            told = policy is None or await _tune(rt, policy)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if told else _TUNE_AGAIN_S):
                    await changed.wait()

    rt.policies.on_change(note)
    rt.spawn(keep(), "door-tuning")


async def _tune(rt: Runtime, policy: Policy) -> bool:
    try:
        await rt.scheduler.tune(tuning_of(policy))
    except IndexUnavailable:
        return False
    return True
