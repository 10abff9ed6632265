"""uvicorn's server for a process that has its own signals and its own end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, Final

import uvicorn

_TICK_S: Final = 1.0  # uvicorn renews its Date header once a second
_TICKS: Final = 10  # what uvicorn counts in a second


class HttpServer(uvicorn.Server):
    """Serves until `end` is called. It looks at itself once a second, not ten times as uvicorn does."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Accepts no more; what is open is finished within the configured time."""
        self.should_exit = True
        self._ending.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the role, not to one of its servers."""
        yield

    async def main_loop(self) -> Any:
        """Ticks until the end."""
        counter = 0
        while not await self.on_tick(counter):
            counter = (counter + _TICKS) % 864_000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._ending.wait()
