"""One request and its answer on a connection of aiohttp's pool, without the objects that its session makes for each.

Connections, TLS, sockets and the reading of answers are aiohttp's own (`TCPConnector`, the protocol that it makes and
its parser). What is left out is what a callback never has: cookies, redirects, proxies, compression, streamed bodies.
That is a third of what a callback costs with `ClientSession` (`python -m loadtests.callback_cost`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import aiohttp
from aiohttp import StreamReader
from aiohttp.connector import Connection
from yarl import URL

ANSWER_BYTES: Final = 4_096
_SWITCHING: Final = 101
_FIXED: Final = (
    "content-type: application/json\r\nuser-agent: sluicegate\r\naccept: */*\r\naccept-encoding: identity\r\n"
)
_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f]")  # would end a line, or is no sign of a header


def head_of(url: URL, shown: str) -> str:
    """The lines that every request to a URL begins with; `shown` is its host as requests name it.

    Raises ValueError where they would not be these lines.
    """
    target = url.raw_path_qs
    if _UNFIT.search(target) or " " in target or _UNFIT.search(shown):
        raise ValueError("not a URL that a request can name")
    return f"POST {target} HTTP/1.1\r\nhost: {shown}\r\n{_FIXED}"


def request_of(head: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """A whole request. Raises ValueError where a header's value has a control character."""
    if _UNFIT.search("".join(headers.values())):
        raise ValueError("a header cannot be sent")
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return f"{head}{lines}content-length: {len(body)}\r\n\r\n".encode("ascii") + body


@dataclass(slots=True)
class Reply:
    """The head of an answer; `end` must be called, and gives the connection back if nothing of the answer is left."""

    status: int
    retry_after: str | None
    _connection: Connection
    _content: StreamReader

    async def skim(self) -> None:
        """Reads to the end of the answer, or as far as it is looked at. Raises what the connection raises."""
        seen = 0
        while seen <= ANSWER_BYTES and (piece := await self._content.readany()):
            seen += len(piece)

    def end(self) -> None:
        """No more of it is wanted."""
        if self._content.at_eof():
            self._connection.release()
        else:
            self._connection.close()


async def exchange(connection: Connection, request: bytes) -> Reply | None:
    """Writes a request and returns the head of what comes next; the connection is the caller's until then.

    None, and nothing written, where something is there that nobody asked for. Raises what aiohttp raises where the
    connection ends or what comes is no answer.
    """
    protocol, transport = connection.protocol, connection.transport
    if protocol is None or transport is None or transport.is_closing():
        raise aiohttp.ServerDisconnectedError
    protocol.set_response_params(read_until_eof=True, auto_decompress=False, read_bufsize=ANSWER_BYTES)
    if len(protocol):
        return None
    transport.write(request)
    while True:
        message, content = await protocol.read()
        if message.code < 100 or message.code >= 200 or message.code == _SWITCHING:
            return Reply(message.code, message.headers.get("retry-after"), connection, content)
