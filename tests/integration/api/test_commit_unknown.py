"""The answer of a commit is lost: no status is sent, and the key finds out later (I8; reliability section 4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import aiohttp
import asyncpg
import pytest

from gateway.ledger.acceptance import WRITERS
from loadtests.tcp_proxy import TcpProxy
from tests.integration.api.conftest import Gateway, Reply, repeated, running, until

MESSAGE = {"to": "+447700900123", "from": "ACME", "text": "hi"}
_LATE_S = 60.0
T = TypeVar("T")


class Between:
    """A gateway that reaches PostgreSQL through a proxy, and a connection beside it."""

    def __init__(self, gateway: Gateway, proxy: TcpProxy, beside: asyncpg.Connection[asyncpg.Record]) -> None:
        self.gateway, self.proxy, self.beside = gateway, proxy, beside

    async def lose_the_answer(self, call: Coroutine[Any, Any, T]) -> T:
        """Makes a call whose commit the server does and whose answer never comes."""
        before = await self.count()
        async with self.beside.transaction():
            await self.beside.execute("LOCK TABLE messages IN ACCESS EXCLUSIVE MODE")
            made = asyncio.create_task(call)
            await self.waiting(1)
            self.proxy.delay_s = _LATE_S

        async def committed() -> bool:
            return await self.count() > before

        await until(committed)
        self.proxy.drop_all()
        self.proxy.delay_s = 0.0
        return await made

    async def count(self) -> int:
        """Messages that are kept."""
        return int(await self.beside.fetchval("SELECT count(*) FROM messages"))

    async def warm(self) -> None:
        """Makes each writer prepare its statement, so that a commit is one round trip."""
        async with self.beside.transaction():
            await self.beside.execute("LOCK TABLE messages IN ACCESS EXCLUSIVE MODE")
            sent = []
            for writer in range(WRITERS):
                sent.append(asyncio.create_task(self.gateway.send(MESSAGE)))
                await self.waiting(writer + 1)
        assert {reply.status for reply in await asyncio.gather(*sent)} == {202}

    async def waiting(self, writers: int) -> None:
        """Waits until so many statements wait for a lock."""

        async def so_many() -> bool:
            return int(await self.beside.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")) >= writers

        await until(so_many)


@pytest.fixture
async def between(database_url: str, redis_url: str) -> AsyncIterator[Between]:
    parts = urlsplit(database_url)
    sockets = parse_qs(parts.query)["host"][0]
    proxy = await TcpProxy(f"{sockets}/.s.PGSQL.5432", framing="octets").start()
    user = parts.netloc.rpartition("@")[0]
    url = f"postgresql://{user}@127.0.0.1:{proxy.port}{parts.path}?sslmode=disable"
    beside = await asyncpg.connect(database_url)
    try:
        async with running(url, redis_url) as gateway:
            made = Between(gateway, proxy, beside)
            await made.warm()
            yield made
    finally:
        await beside.close()
        await proxy.stop()


async def test_a_message_whose_commit_is_not_confirmed_gets_no_status(between: Between) -> None:
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await between.lose_the_answer(between.gateway.send(MESSAGE, key="lost"))
    again = await repeated(lambda: between.gateway.send(MESSAGE, key="lost"))
    assert again.status == 202
    assert again.headers["idempotent-replayed"] == "true"
    assert await between.count() == WRITERS + 1


async def test_a_batch_whose_commit_is_not_confirmed_gets_no_status(between: Between) -> None:
    batch = {"messages": [MESSAGE, MESSAGE, MESSAGE]}

    async def call() -> Reply:
        return await between.gateway.call("POST", "/v1/messages/batch", key="lost-batch", json=batch)

    with pytest.raises(aiohttp.ServerDisconnectedError):
        await between.lose_the_answer(call())
    assert (await repeated(call)).status == 202
    assert await between.count() == WRITERS + 3


async def test_answers_before_it_on_the_connection_are_not_lost(between: Between) -> None:
    """Two requests in one packet: the first has its answer, the second none."""
    host, port = between.gateway.base.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = b'{"to": "+447700900123", "from": "ACME", "text": "hi"}'
    post = (
        f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {between.gateway.keys['acme']}\r\n"
        f"idempotency-key: second\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body

    async def both() -> bytes:
        writer.write(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n" + post)
        async with asyncio.timeout(60):
            return await reader.read(-1)

    answer = await between.lose_the_answer(both())
    writer.close()
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"}")
