"""One keep-alive HTTP/1.1 connection for load runs: a request costs a fraction of what a full client library takes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

HEAD_S = 15.0


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: status, headers by lower-case name, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpLine:
    """Sends one request at a time; opens its connection when needed. Raises OSError, EOFError, TimeoutError."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        """POST a JSON body."""
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        request = (
            f"POST {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n{head}\r\n"
        ).encode() + body
        try:
            async with asyncio.timeout(HEAD_S):
                if self._stream is None:
                    self._stream = await asyncio.open_connection(self._host, self._port)
                reader, writer = self._stream
                writer.write(request)
                reply = await read_reply(reader)
        except BaseException:
            self.close()
            raise
        if reply.headers.get("connection", "") == "close":
            self.close()
        return reply

    def close(self) -> None:
        """Drops the connection."""
        if self._stream is not None:
            self._stream[1].close()
            self._stream = None


async def read_reply(reader: asyncio.StreamReader) -> Reply:
    """The next answer on a connection: its length told, or in chunks."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name
    }
    body = b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Reply(int(first.split(" ", 2)[1]), headers, body)
