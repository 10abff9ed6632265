"""What becomes of a session's lock when the server's answer is lost: never held for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from gateway.clock import Clock
from gateway.egress.owner import Owner
from gateway.ledger import owners

_NEW = """
INSERT INTO processes (role, worker, pid, host, started_at, heartbeat_at) VALUES ('egress', $1, 1, 'h', 0, 0)
RETURNING id
"""


@asynccontextmanager
async def running(url: str, worker: str) -> AsyncIterator[Owner]:
    """The owner of one egress process, with its heartbeat."""
    conn = await asyncpg.connect(url)
    owner_id = await conn.fetchval(_NEW, worker)
    await conn.close()
    owner = Owner(url, owner_id, Clock(), lambda _names: None)
    await owner.start()
    task = asyncio.create_task(owner.run())
    try:
        yield owner
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await owner.close()


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Waits for it, half a minute at most."""
    async with asyncio.timeout(30):
        while not await true():
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("call", ["take", "release"])
async def test_a_lock_whose_answer_was_lost_is_free_for_others(
    database_url: str, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A time-out says nothing about what the server did: taken unseen, a session belonged to nobody for ever."""
    async with running(database_url, "1") as one, running(database_url, "2") as other:
        assert await one.take("kept")
        if call == "release":
            assert await one.take("lost")
        real = getattr(owners, f"{call}_session")

        async def unheard(conn: asyncpg.Connection[Any], name: str) -> bool:
            monkeypatch.undo()
            if call == "take":
                assert await real(conn, name)  # it did what was asked, and nobody heard of it
            raise TimeoutError

        monkeypatch.setattr(owners, f"{call}_session", unheard)
        if call == "take":
            assert not await one.take("lost")
        else:
            await one.release("lost")
        assert one.held == {"kept"}
        await until(lambda: other.take("lost"))
        await until(lambda: _writes(one))
        assert one.held == {"kept"} and not await other.take("kept")


async def _writes(owner: Owner) -> bool:
    return owner.may_write()
