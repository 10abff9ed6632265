"""Micro-batches: what waits at this moment is asked in one call (design section 2, "every write on the hot path")."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

CROWD: Final = 3  # items of one call from which on it is worth waiting for more


class GatheringFull(Exception):
    """More waits than the gatherer is willing to hold."""


class Gatherer(Generic[Item, Result]):
    """Collects items of many callers into calls of at most `most` items; one call runs at a time.

    While a call runs the next one collects, so batches grow with load and an idle system waits for nothing. With
    `linger_s` the first who waits gives others that long to join: for work that nobody is in a hurry for. With `pace_s`
    a call that follows one of a crowd begins no sooner than that after it: a call costs both sides more than an item
    does, and a fast store would otherwise be asked for twos and threes by the busiest of callers.
    """

    def __init__(
        self,
        ask: Callable[[list[Item]], Awaitable[Sequence[Result]]],
        most: int,
        waiting_max: int = 20_000,
        linger_s: float = 0.0,
        pace_s: float = 0.0,
    ) -> None:
        self._ask = ask
        self._most = most
        self._linger_s = linger_s
        self._pace_s = pace_s
        self._waiting_max = waiting_max
        self._waiting: deque[tuple[Sequence[Item], asyncio.Future[Sequence[Result]]]] = deque()
        self._count = 0  # items that wait
        self._arrived = asyncio.Event()
        self._stopping = False

    async def ask(self, item: Item) -> Result:
        """The result for one item. Raises what the call raised, or GatheringFull."""
        return (await self._put((item,)))[0]

    async def ask_many(self, items: Sequence[Item]) -> list[Result]:
        """The results for several items, which stay next to each other."""
        most = self._most
        futures = [self._put(items[at : at + most]) for at in range(0, len(items), most)]
        return [result for future in futures for result in await future]

    def _put(self, items: Sequence[Item]) -> asyncio.Future[Sequence[Result]]:
        if self._count + len(items) > self._waiting_max:
            raise GatheringFull
        future: asyncio.Future[Sequence[Result]] = asyncio.get_running_loop().create_future()
        self._waiting.append((items, future))
        self._count += len(items)
        self._arrived.set()
        return future

    def stop(self) -> None:
        """Lets `run` end once nothing waits."""
        self._stopping = True
        self._arrived.set()

    async def run(self) -> None:
        """The gatherer's life: asks for what waits until it is stopped."""
        loop = asyncio.get_running_loop()
        next_mono = 0.0
        while True:
            while not self._waiting:
                if self._stopping:
                    return
                self._arrived.clear()
                await self._arrived.wait()
            if self._count < self._most and not self._stopping:
                if self._linger_s:
                    await asyncio.sleep(self._linger_s)
                elif (rest_s := next_mono - loop.time()) > 0:
                    await asyncio.sleep(rest_s)
            items, futures = self._take()
            if len(items) >= CROWD:
                next_mono = loop.time() + self._pace_s
            try:
                results = await self._ask(items)
            except Exception as error:
                for _, future in futures:
                    if not future.done():
                        future.set_exception(error)
                continue
            if len(results) != len(items):
                raise ValueError("a call answered more or less than was asked")
            at = 0
            for size, future in futures:
                if not future.done():
                    future.set_result(results[at : at + size])
                at += size

    def _take(self) -> tuple[list[Item], list[tuple[int, asyncio.Future[Sequence[Result]]]]]:
        """The items of the next call, and how many of them each future is for."""
        items: list[Item] = []
        futures: list[tuple[int, asyncio.Future[Sequence[Result]]]] = []
        waiting = self._waiting
        while waiting and (not items or len(items) + len(waiting[0][0]) <= self._most):
            asked, future = waiting.popleft()
            items += asked
            futures.append((len(asked), future))
        self._count -= len(items)
        return items, futures
