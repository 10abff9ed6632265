"""The egress role as a process of its own, for tests that kill it (`python -m` this module, then the worker)."""

from __future__ import annotations

import asyncio
import signal
import sys

import uvloop

from gateway import logs
from gateway.egress import role
from gateway.runtime import Runtime
from gateway.settings import Settings
from gateway.supervisor.role import calm_collection


async def main(worker: str) -> None:
    settings = Settings()
    logs.configure(settings.log_level, "json", role="egress", worker=worker)
    async with Runtime.open(settings, "egress", worker) as rt:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, rt.stopping.set)
        await rt.policies.ready()
        with calm_collection():
            await role.run(rt)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
