"""The proxy that breaks links: exact places, each in its own way, everything else untouched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from loadtests.tcp_proxy import (
    AFTER,
    ANSWER_LATE,
    ANSWER_LOST,
    BEFORE,
    BLACK_HOLE,
    FIN,
    MIDDLE,
    RST,
    Cut,
    TcpProxy,
)
from smpp.protocol.codec import encode
from smpp.protocol.pdu import EnquireLink, SubmitSm, SubmitSmResp


def _submit(sequence: int) -> bytes:
    return encode(SubmitSm(destination_addr="393331234567", short_message=b"hello", sequence_number=sequence))


def _answer(sequence: int) -> bytes:
    return encode(SubmitSmResp(message_id="1", sequence_number=sequence))


class _Far:
    """What the proxy's target read; `reply` makes the answers."""

    def __init__(self) -> None:
        self.octets = b""
        self.reply: Callable[[bytes], bytes] = lambda data: b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                self.octets += data
                writer.write(self.reply(data))
        except ConnectionError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def _link(
    framing: str = "smpp",
) -> AsyncIterator[tuple[_Far, TcpProxy, asyncio.StreamReader, asyncio.StreamWriter]]:
    far = _Far()
    server = await asyncio.start_server(far.serve, "127.0.0.1", 0)
    proxy = await TcpProxy(server.sockets[0].getsockname()[:2], framing).start()
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield far, proxy, reader, writer
    finally:
        writer.close()
        await proxy.stop()
        server.close()


@pytest.mark.parametrize(
    ("point", "passed"),
    [(BEFORE, 1.0), (MIDDLE, 1.5), (AFTER, 2.0), (RST, 2.0), (FIN, 2.0)],
)
async def test_the_second_submit_is_cut_at_the_place(point: str, passed: float) -> None:
    one = len(_submit(1))
    async with _link() as (far, proxy, reader, writer):
        strike = proxy.arm(Cut(point, at=2, inside=one // 2))
        writer.write(encode(EnquireLink(sequence_number=9)) + _submit(1) + _submit(2) + _submit(3))
        await asyncio.wait_for(strike.over.wait(), 5)
        if point == RST:
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.read(), 5)
        else:
            assert await asyncio.wait_for(reader.read(), 5) == b""
        await asyncio.sleep(0.05)
        assert len(far.octets) == 16 + int(passed * 2) * one // 2
        assert strike.began_at <= strike.done_at


async def test_one_answer_is_lost_or_late_and_the_others_pass() -> None:
    async with _link() as (far, proxy, reader, writer):
        far.reply = lambda data: b"".join(_answer(n) for n in (1, 2) if _submit(n) in data)
        proxy.arm(Cut(ANSWER_LOST))
        writer.write(_submit(1) + _submit(2))
        assert await asyncio.wait_for(reader.readexactly(len(_answer(2))), 5) == _answer(2)
        strike = proxy.arm(Cut(ANSWER_LATE, late_s=0.2))
        writer.write(_submit(1) + _submit(2))
        got = await asyncio.wait_for(reader.readexactly(2 * len(_answer(2))), 5)
        assert got == _answer(2) + _answer(1)
        assert strike.over.is_set()


async def test_a_black_hole_swallows_until_the_client_gives_up() -> None:
    async with _link() as (far, proxy, reader, writer):
        far.reply = lambda data: b"x"
        strike = proxy.arm(Cut(BLACK_HOLE))
        writer.write(_submit(1) + _submit(2))
        await asyncio.wait_for(strike.struck.wait(), 5)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.1)
        assert not strike.over.is_set() and proxy.links == 1
        writer.close()
        await asyncio.wait_for(strike.over.wait(), 5)
        assert len(far.octets) == len(_submit(1))


async def test_octets_are_counted_where_the_protocol_is_another() -> None:
    async with _link("octets") as (far, proxy, reader, writer):
        strike = proxy.arm(Cut(AFTER, at=10))
        writer.write(b"0123456789abcdef")
        await asyncio.wait_for(strike.over.wait(), 5)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        assert far.octets == b"0123456789"
