"""Micro-batches: what waits at this moment is asked in one call (design section 2, "every write on the hot path")."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class GatheringFull(Exception):
    """More waits than the gatherer is willing to hold."""


class Gatherer(Generic[Item, Result]):
    """Collects items of many callers into calls of at most `most` items; one call runs at a time.

    While a call runs the next one collects, so batches grow with load and an idle system waits for nothing. With
    `linger_s` the first who waits gives others that long to join: for work that nobody is in a hurry for.
    """

    def __init__(
        self,
        ask: Callable[[list[Item]], Awaitable[Sequence[Result]]],
        most: int,
        waiting_max: int = 20_000,
        linger_s: float = 0.0,
    ) -> None:
        self._ask = ask
        self._most = most
        self._linger_s = linger_s
        self._waiting_max = waiting_max
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._arrived = asyncio.Event()
        self._stopping = False

    async def ask(self, item: Item) -> Result:
        """The result for one item. Raises what the call raised, or GatheringFull."""
        return await self._put(item)

    async def ask_many(self, items: Sequence[Item]) -> list[Result]:
        """The results for several items, which stay next to each other."""
        return [await future for future in [self._put(item) for item in items]]

    def _put(self, item: Item) -> asyncio.Future[Result]:
        if len(self._waiting) >= self._waiting_max:
            raise GatheringFull
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        self._arrived.set()
        return future

    def stop(self) -> None:
        """Lets `run` end once nothing waits."""
        self._stopping = True
        self._arrived.set()

    async def run(self) -> None:
        """The gatherer's life: asks for what waits until it is stopped."""
        while True:
            while not self._waiting:
                if self._stopping:
                    return
                self._arrived.clear()
                await self._arrived.wait()
            if self._linger_s and len(self._waiting) < self._most and not self._stopping:
                await asyncio.sleep(self._linger_s)
            batch = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
            try:
                results = await self._ask([item for item, _ in batch])
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), result in zip(batch, results, strict=True):
                if not future.done():
                    future.set_result(result)
