"""One HTTP/1.1 connection to an endpoint: a request goes out in one write, its answer is looked at as far as needed.

A full client costs several times what a callback needs; this one speaks to addresses that were checked, follows
nothing, sends no cookies, asks no proxy and decompresses nothing. The parser is httptools (llhttp).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

import httptools

ANSWER_BYTES: Final = 4_096
HEAD_BYTES: Final = 32_768


class BrokenAnswer(Exception):
    """What came is not an answer that can be used; `unread` says that nothing came at all."""

    def __init__(self, *, unread: bool = False) -> None:
        super().__init__("no answer" if unread else "not an HTTP answer")
        self.unread = unread


class Wire(asyncio.Protocol):
    """A connection that carries one request at a time."""

    def __init__(self) -> None:
        self.used = 0  # requests so far
        self.opened_mono = 0.0
        self.idle_mono = 0.0
        self.reusable = False  # after the last answer
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._parser: Any = None
        self._status = 0
        self._headed = False
        self._retry_after: str | None = None
        self._head_octets = 0
        self._body_octets = 0
        self._unread = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one without saying so

    @property
    def open(self) -> bool:
        """Whether it can carry a request."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def status(self) -> int | None:
        """The status of the answer as far as it came; known once the head is there."""
        return self._status if self._headed else None

    @property
    def retry_after(self) -> str | None:
        """Its Retry-After."""
        return self._retry_after

    async def ask(self, request: bytes) -> None:
        """Sends a request and waits for the end of its answer, or for as much of it as is looked at.

        Raises BrokenAnswer, or OSError where the connection breaks; cancelled, the connection is of no more use.
        """
        assert self._transport is not None
        self._begin_answer()
        self.used += 1
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            await self._waiting
        finally:
            self._waiting = None

    def close(self) -> None:
        """Ends the connection."""
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Octets of an answer; those that nobody asked for end the connection."""
        if self._waiting is None:
            self.close()
            return
        self._unread = False
        if not self._headed:
            self._head_octets += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._end(BrokenAnswer())
        except httptools.HttpParserError:
            # A status that is known counts, whatever its body turned out to be.
            self._end(None if self._headed else BrokenAnswer())
        else:
            if not self._headed and self._head_octets > HEAD_BYTES:
                self._end(BrokenAnswer())

    def connection_lost(self, error: Exception | None) -> None:
        """An answer without a length ends so; anything else is broken."""
        self._transport = None
        self.reusable = False
        if self._waiting is not None and not self._waiting.done():
            if self._headed:
                self._waiting.set_result(None)
            else:
                self._waiting.set_exception(BrokenAnswer(unread=self._unread))

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header line."""
        if name.lower() == b"retry-after" and self._retry_after is None:
            self._retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is there; an interim answer (RFC 9110, 15.2) is not the one waited for."""
        self._status = self._parser.get_status_code()
        self._headed = self._status >= 200

    def on_body(self, body: bytes) -> None:
        """A piece of the body: counted, thrown away, and cut off where it is long."""
        self._body_octets += len(body)
        if self._body_octets > ANSWER_BYTES:
            self._end(None)

    def on_message_complete(self) -> None:
        """The whole answer is there."""
        if not self._headed:
            self._retry_after = None
            return
        self.reusable = self._parser.should_keep_alive()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _end(self, error: BrokenAnswer | None) -> None:
        """The answer is as good as over and the connection of no more use."""
        waiting = self._waiting
        self.close()
        if waiting is not None and not waiting.done():
            if error is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(error)

    def _begin_answer(self) -> None:
        # llhttp goes on with the next message by itself, but not after it saw the end of a connection.
        self._parser = httptools.HttpResponseParser(self)
        self._status = 0
        self._headed = False
        self._retry_after = None
        self._head_octets = 0
        self._body_octets = 0
        self._unread = True
        self.reusable = False
