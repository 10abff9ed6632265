"""Clients that send or read slowly take no place from the others (reliability section 5, lines 14 and 15)."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from gateway.api import front, protocol
from loadtests import trickle as trickle_run
from tests.integration.api.conftest import Gateway, running, until

MESSAGE = {"to": "+447700900123", "from": "ACME", "text": "hi"}
HEAD = b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n"


def bound(monkeypatch: pytest.MonkeyPatch, deadline_s: float, **bounds: int) -> None:
    monkeypatch.setattr(protocol.BoundedProtocol, "request_s", deadline_s)
    at_work = bounds.get("at_work", front.AT_WORK_MAX)
    monkeypatch.setattr(front.Front.__init__, "__defaults__", (deadline_s, at_work, bounds.get("unfinished", 1 << 26)))


async def trickle(gateway: Gateway, octets: bytes) -> tuple[Any, Any]:
    url = urlsplit(gateway.base)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write(octets)
    await writer.drain()
    return reader, writer


async def test_slow_bodies_take_no_place_from_others(
    database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound(monkeypatch, 60.0, at_work=5)
    async with running(database_url, redis_url) as gateway:
        slow = [await trickle(gateway, HEAD + b"{") for _ in range(20)]
        assert (await gateway.send(MESSAGE)).status == 202
        for _, writer in slow:
            writer.close()


async def test_unfinished_bodies_are_bounded_together(
    database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound(monkeypatch, 60.0, unfinished=100_000)
    async with running(database_url, redis_url) as gateway:
        slow = [await trickle(gateway, HEAD + b" " * 50_000) for _ in range(3)]
        done, waiting = await asyncio.wait(
            [asyncio.ensure_future(reader.readline()) for reader, _ in slow],
            timeout=60,
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert [b" 503 " in one.result() for one in done] == [True]
        assert (await gateway.send(MESSAGE)).status == 202  # what comes in one piece needs no room
        for _, writer in slow:
            writer.close()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_who_takes_no_answers_is_cut(database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bound(monkeypatch, 2.0, at_work=1)
    async with running(database_url, redis_url) as gateway:
        url = urlsplit(gateway.base)
        with closing(socket.socket()) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect((url.hostname, url.port))
            deaf.setblocking(False)
            # The bodies keep the requests of one read below the number that may wait.
            asked = b"GET /docs HTTP/1.1\r\nhost: x\r\ncontent-length: 20000\r\n\r\n" + b"x" * 20_000
            asking = asyncio.ensure_future(asyncio.get_running_loop().sock_sendall(deaf, asked * 500))

            async def free() -> bool:
                return (await gateway.send(MESSAGE)).status == 202

            await until(lambda: _not(free))
            await until(free)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)


def request(text: str, key: str, api_key: str) -> bytes:
    body = json.dumps(MESSAGE | {"text": text}).encode()
    return (
        f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {api_key}\r\nidempotency-key: {key}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode() + body


async def test_what_follows_on_a_good_request_takes_nothing_from_its_answer(gateway: Gateway) -> None:
    for n, rest in enumerate((b"}", b"garbage\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n")):
        reader, writer = await trickle(gateway, request("hi", f"f{n}", gateway.keys["acme"]) + rest)
        async with asyncio.timeout(60):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 202 ")
        assert answer.count(b"HTTP/1.1") == 1
        assert b"connection: close" in answer
        writer.close()
    assert await gateway.count() == 3


async def test_requests_that_wait_on_one_connection_are_bounded(gateway: Gateway) -> None:
    fit = protocol.PIPELINED_MAX + 1
    reader, writer = await trickle(
        gateway, b"".join(request(str(n), f"p{n}", gateway.keys["acme"]) for n in range(2 * fit))
    )
    async with asyncio.timeout(60):
        answer = await reader.read()
    assert answer.count(b"HTTP/1.1 202 ") == answer.count(b"HTTP/1.1") == fit == await gateway.count()
    writer.close()


async def _not(condition: Any) -> bool:
    return not await condition()


async def test_a_crowd_of_trickling_connections_is_cut_and_others_go_on(
    database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The small form of `python -m loadtests.trickle`; how long anything takes is measured there."""
    bound(monkeypatch, 2.0)
    async with running(database_url, redis_url) as gateway:
        slow, all_open = trickle_run.Slow(), asyncio.Event()
        trickling = asyncio.create_task(trickle_run.trickle(gateway.base, 100, slow, all_open))
        sent = 0
        while not trickling.done():  # nothing is kept: no carrier drains here what a crowd of sends would leave
            assert (await gateway.call("POST", "/v1/messages?dry_run=true", json=MESSAGE)).status == 200
            sent += 1
        await trickling
    assert sent > 0
    assert len(slow.lifetimes_s) == 100
    # A reset that overtakes the answer looks like a plain close.
    assert set(slow.told) <= {"HTTP/1.1 408 Request Timeout", "closed"}
