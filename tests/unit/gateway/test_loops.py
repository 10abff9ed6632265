"""The end of tasks: each of them ends, whatever swallows a cancellation on the way."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from gateway import loops


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancellation_that_meets_the_result_of_wait_for_is_asked_again(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race of the client of Redis: a command is written at the very turn of the loop that cancels its task."""
    monkeypatch.setattr(loops, "_ASK_AGAIN_S", 0.05)
    written = asyncio.Event()

    async def writes() -> None:
        while True:
            await asyncio.wait_for(written.wait(), 60)
            written.clear()

    task = asyncio.create_task(writes())
    await asyncio.sleep(0.01)
    written.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await loops.end([task])
    assert task.cancelled()


async def test_whatever_tasks_make_of_a_cancellation_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_ASK_AGAIN_S", 0.05)

    async def deaf() -> None:
        for _ in range(3):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)

    async def broken() -> None:
        raise RuntimeError("before anybody asked")

    async def tidy() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(work()) for work in (deaf, broken, tidy)]
    await asyncio.sleep(0.01)
    async with asyncio.timeout(30):
        await loops.end(tasks)
    assert all(task.done() for task in tasks)
    await loops.end([])
