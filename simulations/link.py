"""A link to Valkey without an event loop, and how several questions share one trip over it.

The product's scheduler is made of coroutines that wait only for the store. Here they are stepped by hand: all that are
asked together are written in one piece and answered in order, so a step of the simulation costs one round trip.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Coroutine, Generator
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import hiredis
from redis.exceptions import ResponseError

T = TypeVar("T")
_CHUNK = 1 << 18


class _Reply:
    """Where a coroutine waits for its reply."""

    def __await__(self) -> Generator[_Reply, Any, Any]:
        return (yield self)


class _Pool:
    connection_kwargs: dict[str, object] = {}  # noqa: RUF012 (read by the scheduler, never written)


class Stepper:
    """Runs coroutines that wait for nothing but this object's replies."""

    def together(self, *coroutines: Coroutine[Any, Any, Any]) -> list[Any]:
        """Runs coroutines to their end; what they ask at the same step travels together, in their order.

        The first failure is raised when all have ended.
        """
        results: list[Any] = [None] * len(coroutines)
        failure: BaseException | None = None
        waiting: list[tuple[int, Coroutine[Any, Any, Any]]] = []

        def step(at: int, coroutine: Coroutine[Any, Any, Any], reply: Any) -> None:
            nonlocal failure
            try:
                if isinstance(reply, hiredis.ReplyError):
                    coroutine.throw(_fault(reply))
                else:
                    coroutine.send(reply)
            except StopIteration as end:
                results[at] = end.value
            except Exception as fault:
                failure = failure or fault
            else:
                waiting.append((at, coroutine))

        for at, coroutine in enumerate(coroutines):
            step(at, coroutine, None)
        while waiting:
            self._flush()
            batch, waiting = waiting, []
            for at, coroutine in batch:
                step(at, coroutine, self._read())
        if failure is not None:
            raise failure
        return results

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """One coroutine to its end."""
        result: T = self.together(coroutine)[0]
        return result

    def _flush(self) -> None:
        raise RuntimeError("an engine without a server has nobody to ask")

    def _read(self) -> Any:
        raise RuntimeError("an engine without a server has nobody to ask")


class Link(Stepper):
    """The few commands of a Redis client that the scheduler uses, over one unix socket.

    Every method is a coroutine for `together`; none may be awaited on an event loop.
    """

    connection_pool = _Pool()

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(unquote(parts.path))
        self._reader = hiredis.Reader()
        self._outgoing: list[bytes] = []
        self.trips = 0
        self.together(self._ask("AUTH", unquote(parts.password or "")))
        self.together(self._ask("SELECT", parse_qs(parts.query).get("db", ["0"])[0]))

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    async def _ask(self, *command: Any) -> Any:
        self._outgoing.append(hiredis.pack_command(command))
        return await _Reply()

    async def fcall(self, function: str, *args: Any) -> Any:
        """Runs a function that the server knows; ResponseError where it does not."""
        return await self._ask("FCALL", function, *args)

    async def function_load(self, text: str) -> Any:
        """Makes a library known."""
        return await self._ask("FUNCTION", "LOAD", text)

    async def info(self, section: str) -> dict[str, str]:
        """A section of the server's own report."""
        lines = (await self._ask("INFO", section)).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    async def flushall(self) -> Any:
        """Empties the server."""
        return await self._ask("FLUSHALL")

    async def unlink(self, *keys: bytes) -> Any:
        """Removes keys."""
        return await self._ask("UNLINK", *keys)

    async def scan_iter(self, match: str, count: int) -> AsyncIterator[bytes]:
        """All keys of a pattern."""
        cursor: bytes = b"0"
        while True:
            cursor, keys = await self._ask("SCAN", cursor, "MATCH", match, "COUNT", count)
            for key in keys:
                yield key
            if cursor == b"0":
                return

    def _flush(self) -> None:
        self.trips += 1
        octets = b"".join(self._outgoing)
        self._outgoing = []
        sent = 0
        view = memoryview(octets)
        while sent < len(octets):
            sent += self._socket.send(view[sent : sent + _CHUNK])

    def _read(self) -> Any:
        reply = self._reader.gets()
        while reply is False:
            octets = self._socket.recv(_CHUNK)
            if not octets:
                raise ConnectionError("Valkey closed the connection")
            self._reader.feed(octets)
            reply = self._reader.gets()
        return reply


def _fault(reply: Exception) -> ResponseError:
    return ResponseError(str(reply))
