"""Micro-batches: what waits together is asked together, in order, and errors reach everyone who asked."""

from __future__ import annotations

import asyncio

import pytest

from gateway.gathering import Gatherer, GatheringFull


async def test_what_arrives_while_a_call_runs_is_the_next_batch() -> None:
    batches: list[list[int]] = []
    release = asyncio.Event()

    async def ask(items: list[int]) -> list[int]:
        batches.append(items)
        await release.wait()
        return [item * 2 for item in items]

    gatherer: Gatherer[int, int] = Gatherer(ask, most=3)
    running = asyncio.create_task(gatherer.run())
    first = asyncio.create_task(gatherer.ask(0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    rest = [asyncio.create_task(gatherer.ask(n)) for n in range(1, 5)]
    await asyncio.sleep(0)
    release.set()
    assert await first == 0
    assert await asyncio.gather(*rest) == [2, 4, 6, 8]
    assert batches == [[0], [1, 2, 3], [4]]
    assert await gatherer.ask_many([7, 8]) == [14, 16]
    gatherer.stop()
    await running


async def test_an_error_reaches_its_batch_and_no_other() -> None:
    calls = 0

    async def ask(items: list[int]) -> list[int]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError
        return items

    gatherer: Gatherer[int, int] = Gatherer(ask, most=10, waiting_max=2)
    both = [asyncio.create_task(gatherer.ask(n)) for n in (1, 2)]
    await asyncio.sleep(0)
    with pytest.raises(GatheringFull):
        await gatherer.ask(3)
    running = asyncio.create_task(gatherer.run())
    assert [type(result) for result in await asyncio.gather(*both, return_exceptions=True)] == [OSError, OSError]
    assert await gatherer.ask(4) == 4
    gatherer.stop()
    await running


async def test_after_a_crowd_the_next_call_waits_for_others_and_after_a_few_it_does_not() -> None:
    batches: list[list[int]] = []

    async def ask(items: list[int]) -> list[int]:
        batches.append(items)
        return items

    gatherer: Gatherer[int, int] = Gatherer(ask, most=10, pace_s=0.3)
    running = asyncio.create_task(gatherer.run())
    await gatherer.ask_many([1, 2, 3])
    apart = []
    for n in (4, 5):
        apart.append(asyncio.create_task(gatherer.ask(n)))
        for _ in range(5):
            await asyncio.sleep(0)
    assert await asyncio.gather(*apart) == [4, 5]
    assert batches == [[1, 2, 3], [4, 5]]
    assert await gatherer.ask(6) == 6
    gatherer.stop()
    await running


async def test_more_than_a_call_takes_is_asked_in_several() -> None:
    sizes: list[int] = []

    async def ask(items: list[int]) -> list[int]:
        sizes.append(len(items))
        return items

    gatherer: Gatherer[int, int] = Gatherer(ask, most=4, waiting_max=10)
    running = asyncio.create_task(gatherer.run())
    assert await gatherer.ask_many(range(10)) == list(range(10))
    assert sizes == [4, 4, 2]
    gatherer.stop()
    await running
