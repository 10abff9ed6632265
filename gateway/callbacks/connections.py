"""Connections to the endpoints of callbacks: one request at a time, kept while idle, a bounded look at each answer.

The parser (llhttp, by httptools) and TLS are the libraries'. Ours is when a connection is opened, kept and dropped.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass
from typing import Any, Final

import httptools

ANSWER_BYTES: Final = 4_096
HEAD_BYTES: Final = 32 * 1024  # of an answer's head and what came before it
FIELDS_MAX: Final = 128
IDLE_S: Final = 30.0


class Unconnected(Exception):
    """No connection could be made; `__cause__` is why."""


class AnswerBroken(Exception):
    """What came is no answer, or the connection ended before one was there."""


class Unread(AnswerBroken):
    """The connection ended before any part of an answer came."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a connection leads: the address that was checked, and the name it was checked for."""

    tls: bool
    host: str
    port: int
    address: str


class Connection(asyncio.Protocol):
    """One connection; `status` and `retry_after` are of the answer to the last request, as soon as its head is there.

    `reusable`: that answer came to its end, and the other side keeps the connection.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.status: int | None = None
        self.retry_after: str | None = None
        self.reusable = False
        self.idle_mono = 0.0
        self._done: asyncio.Future[None] | None = None
        self._transport: Any = None
        self._octets = self._fields = self._seen = 0
        self._parser = httptools.HttpResponseParser(self)
        # As browsers and other clients read answers; what is read differently can harm only this one endpoint.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    async def ask(self, request: bytes) -> None:
        """Sends a request and returns once its answer is there, as far as it is looked at.

        Raises Unread or another AnswerBroken. Where it is cut off, `status` may be there all the same.
        """
        self.status = self.retry_after = None
        self.reusable = False
        self._octets = self._fields = self._seen = 0
        self._done = asyncio.get_running_loop().create_future()
        if self.is_closing():
            raise Unread
        self._transport.write(request)
        try:
            await self._done
        finally:
            self._done = None

    def is_closing(self) -> bool:
        """Whether nothing can be asked any more."""
        return self._transport is None or bool(self._transport.is_closing())

    def abort(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # -- the transport's calls -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over; an answer without a length is whole by that."""
        done = self._done
        if done is None or done.done():
            return
        if self.status is not None:
            done.set_result(None)
        else:
            done.set_exception(AnswerBroken() if self._octets else Unread())

    def data_received(self, data: bytes) -> None:
        """A part of an answer. What comes while nobody asks is none, nor would be what follows it."""
        done = self._done
        if done is None or done.done():
            self.reusable = False
            self._transport.abort()
            return
        self._octets += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._break(done)
            return
        if self.status is None and self._octets > HEAD_BYTES:
            self._break(done)

    def _break(self, done: asyncio.Future[None]) -> None:
        self.reusable = False
        if not done.done():
            if self.status is None:
                done.set_exception(AnswerBroken())
            else:  # a status that came counts, whatever becomes of the rest
                done.set_result(None)
        self._transport.abort()

    # -- the parser's calls --------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """An answer begins; a second one right behind the first was not asked for."""
        if self.status is not None:
            raise AnswerBroken
        self._fields = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field of a head, or of what follows a body in chunks."""
        self._fields += 1
        if self._fields > FIELDS_MAX:
            raise AnswerBroken
        if self.retry_after is None and self.status is None and name.lower() == b"retry-after":
            self.retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """A head is whole: that of the answer, or of an interim one (RFC 9110, section 15.2)."""
        status = self._parser.get_status_code()
        if status == 101 or status < 100:  # nobody asked for another protocol
            raise AnswerBroken
        if status >= 200:
            self.status = status
        else:
            self.retry_after = None

    def on_body(self, body: bytes) -> None:
        """More than is looked at is not waited for."""
        self._seen += len(body)
        if self._seen > ANSWER_BYTES:
            self._finish(reusable=False)

    def on_message_complete(self) -> None:
        """The whole of it is here."""
        if self.status is not None:
            self._finish(reusable=self._parser.should_keep_alive())

    def _finish(self, *, reusable: bool) -> None:
        if self._done is not None and not self._done.done():
            self.reusable = reusable
            self._done.set_result(None)


class Connections:
    """The connections of one process: idle ones by place. Each endpoint's line has a bound of its own."""

    def __init__(self, trust: ssl.SSLContext) -> None:
        self._trust = trust
        self._open: set[Connection] = set()
        self._idle: dict[Place, list[Connection]] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def take(self, place: Place) -> Connection | None:
        """A kept connection, the one that was used last."""
        idle = self._idle.get(place)
        while idle:
            connection = idle.pop()
            if not connection.is_closing():
                return connection
            self._open.discard(connection)
        return None

    async def connect(self, place: Place, patience_s: float) -> Connection:
        """A new connection to exactly this address; raises Unconnected."""
        try:
            async with asyncio.timeout(patience_s):
                connection = await self._connect(place)
        except OSError as error:  # time-outs and faults of TLS are among them
            raise Unconnected from error
        self._open.add(connection)
        return connection

    def give_back(self, connection: Connection) -> None:
        """After an answer, or in the place of one: keeps the connection for a while, or ends it."""
        if not connection.reusable or connection.is_closing():
            connection.abort()
            self._open.discard(connection)
            return
        loop = asyncio.get_running_loop()
        connection.idle_mono = loop.time()
        self._idle.setdefault(connection.place, []).append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(IDLE_S, self._drop_old)

    def close(self) -> None:
        """Ends all of them."""
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in self._open:
            connection.abort()
        self._open.clear()
        self._idle.clear()

    async def _connect(self, place: Place) -> Connection:
        loop = asyncio.get_running_loop()
        # An address in figures: nothing is looked up, only the form that the system wants is made of it.
        infos = socket.getaddrinfo(
            place.address, place.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        )
        made = open_socket(infos[0])
        try:
            made.setblocking(False)
            await loop.sock_connect(made, infos[0][4])
            _, connection = await loop.create_connection(
                lambda: Connection(place),
                sock=made,
                ssl=self._trust if place.tls else None,
                server_hostname=place.host if place.tls else None,
            )
        except BaseException:
            made.close()
            raise
        return connection

    def _drop_old(self) -> None:
        """Ends what has been idle for long; looks again while anything is."""
        loop = asyncio.get_running_loop()
        before_mono, next_mono = loop.time() - IDLE_S, loop.time() + IDLE_S
        for place, idle in list(self._idle.items()):
            for connection in [one for one in idle if one.idle_mono <= before_mono or one.is_closing()]:
                idle.remove(connection)
                connection.abort()
                self._open.discard(connection)
            if idle:
                next_mono = min(next_mono, idle[0].idle_mono + IDLE_S)
            else:
                del self._idle[place]
        self._sweep = loop.call_at(next_mono, self._drop_old) if self._idle else None


def open_socket(info: tuple[Any, ...]) -> socket.socket:
    """A socket of the family that an address belongs to."""
    family, kind, protocol, _, _ = info
    return socket.socket(family, kind, protocol)
