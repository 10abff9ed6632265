"""A Valkey of a simulation's own: the embedded one, in a directory that goes when the simulation ends."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.embedded import child
from gateway.embedded.home import Home
from gateway.embedded.valkey import ValkeyServer
from simulations.link import Link


@contextmanager
def valkey() -> Iterator[Link]:
    """A link to a fresh server."""
    directory = Path(tempfile.mkdtemp(prefix="sluicegate-sim-"))
    home = Home(directory)
    home.hold()
    server = ValkeyServer(home)
    try:
        server.start()
        asyncio.run(server.ready())
        link = Link(server.url())
        yield link
        link.close()
    finally:
        if server.child is not None:
            child.stop_now(server.child, signal.SIGTERM)
        home.release()
        shutil.rmtree(directory, ignore_errors=True)
