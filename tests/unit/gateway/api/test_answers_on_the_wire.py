"""What our own way with uvicorn's connection must keep of uvicorn's: the octets of an answer, the end of idle ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from gateway.api.answers import Answer
from gateway.api.exchange import CLOSING, REQUEST_ID, send_answer
from gateway.api.protocol import BoundedProtocol

HEADERS = ((b"content-type", b"application/problem+json"), (b"retry-after", b"17"))


class Transport:
    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def get_extra_info(self, _name: str) -> None:
        return None


class Loop:
    """Time that stands still, and what was asked for later."""

    def __init__(self) -> None:
        self.now = 100.0
        self.later: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay_s: float, work: Callable[[], None]) -> Any:
        return self.call_at(self.now + delay_s, work)

    def call_at(self, at: float, work: Callable[[], None]) -> Any:
        self.later.append((at, work))
        return SimpleNamespace(cancel=lambda: self.later.remove((at, work)))

    def go(self, to: float) -> None:
        self.now = to
        for at, work in [one for one in self.later if one[0] <= to]:
            self.later.remove((at, work))
            work()


def cycle(transport: Transport, answered: list[int], method: str = "POST", keep_alive: bool = True) -> Any:
    return RequestResponseCycle(
        scope={"method": method},  # type: ignore[typeddict-item]
        transport=transport,  # type: ignore[arg-type]
        flow=SimpleNamespace(write_paused=False),  # type: ignore[arg-type]
        logger=logging.getLogger("none"),
        access_logger=logging.getLogger("none"),
        access_log=False,
        default_headers=[(b"date", b"Tue, 01 Dec 2026 15:00:00 GMT")],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=keep_alive,
        on_response=lambda: answered.append(1),
    )


async def test_an_answer_has_the_octets_that_uvicorn_would_write() -> None:
    for headers, method, keep_alive in (
        (HEADERS, "POST", True),
        (HEADERS, "POST", False),
        (HEADERS, "HEAD", True),
        ((*HEADERS, CLOSING), "POST", True),
    ):
        answer = Answer(503, headers, b'{"status":503}')
        ours, theirs = Transport(), Transport()
        answered: list[int] = []
        direct, stepwise = (cycle(one, answered, method, keep_alive) for one in (ours, theirs))

        async def through(message: Any, stepwise: Any = stepwise) -> None:
            await stepwise.send(message)

        await send_answer({REQUEST_ID: b"r-1"}, direct.send, answer)
        await send_answer({REQUEST_ID: b"r-1"}, through, answer)
        assert ours.written == theirs.written
        assert ours.closed == theirs.closed == (not keep_alive or CLOSING in headers)
        assert direct.response_complete
        assert direct.message_event.is_set()
        assert answered == [1, 1]


async def test_a_connection_ends_once_it_was_idle_for_so_long_whatever_came_before() -> None:
    loop, transport = Loop(), Transport()
    config = uvicorn.Config(lambda: None, log_config=None, timeout_keep_alive=5, lifespan="off")
    connection: Any = BoundedProtocol(config=config, server_state=ServerState(), app_state={}, _loop=loop)  # type: ignore[arg-type]
    connection.connection_made(transport)
    connection.cycle = SimpleNamespace(response_complete=True)
    connection._stop_timer()
    connection.on_response_complete()
    loop.go(103.0)
    connection.on_response_complete()
    assert len(loop.later) == 1
    loop.go(105.0)
    connection._reading = True  # what follows a refusal and is read by nobody
    loop.go(108.0)
    connection._reading = False
    connection.cycle.response_complete = False
    loop.go(113.0)
    assert not loop.later
    connection.cycle.response_complete = True
    connection.on_response_complete()
    assert not transport.closed
    loop.go(118.0)
    assert transport.closed
