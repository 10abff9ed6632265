"""An ESME that remembers what it was told, and a carrier made of raw octets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from smpp.link import Connection, LinkSettings, connect
from smpp.protocol.codec import decode
from smpp.protocol.framer import Framer
from smpp.protocol.pdu import DataSm, DeliverSm, Pdu, SubmitSm

SETTINGS = LinkSettings(window=10, enquire_link_s=15, response_timeout_s=10, inactivity_s=60)


async def until(condition: Callable[[], Any], timeout_s: float = 10.0) -> None:
    """Waits until the condition holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.002)


class Esme:
    """A link handler that keeps everything; `auto` answers what the carrier asks."""

    def __init__(self, auto: bool = True) -> None:
        self.auto = auto
        self.link: Connection | None = None
        self.answers: list[tuple[Any, Any, bool]] = []
        self.timeouts: list[Any] = []
        self.requests: list[Pdu] = []
        self.rooms = 0
        self.losses: list[tuple[list[tuple[Any, bool]], str]] = []

    def answered(self, token: Any, response: Any, late: bool) -> None:
        self.answers.append((token, response, late))

    def timed_out(self, token: Any) -> None:
        self.timeouts.append(token)

    def requested(self, pdu: Pdu) -> None:
        self.requests.append(pdu)
        if self.auto and self.link is not None and isinstance(pdu, DeliverSm | DataSm):
            self.link.answer(pdu)

    def room(self) -> None:
        self.rooms += 1

    def lost(self, tokens: list[tuple[Any, bool]], reason: str) -> None:
        self.losses.append((tokens, reason))

    async def open(self, port: int, settings: LinkSettings = SETTINGS) -> Connection:
        self.link = await connect("127.0.0.1", port, tls=None, settings=settings, handler=self)
        return self.link

    async def bind(
        self, port: int, settings: LinkSettings = SETTINGS, kind: str = "transceiver", system_id: str = "acme"
    ) -> Connection:
        link = await self.open(port, settings)
        await link.bind(kind, system_id, "pw")
        return link

    def submit(self, token: Any, **fields: Any) -> int:
        assert self.link is not None
        defaults = {"destination_addr": "447700900123", "registered_delivery": 1, "short_message": b"Hi"}
        return self.link.submit(SubmitSm(**{**defaults, **fields}), token)

    async def submit_all(self, destinations: Iterable[str], **fields: Any) -> None:
        """One submit to each, as the window allows; the token is the destination."""
        assert self.link is not None
        for destination in destinations:
            await until(lambda: self.link is None or self.link.window_free > 0 or self.losses)
            self.submit(destination, destination_addr=destination, **fields)

    def results(self) -> dict[Any, int]:
        return {token: response.command_status for token, response, _ in self.answers}


class RawCarrier:
    """One accepted socket at a time; the test reads PDUs and writes octets."""

    def __init__(self) -> None:
        self.server: asyncio.Server | None = None
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None
        self.framer = Framer()
        self.read: list[Pdu] = []
        self.accepted = asyncio.Event()

    async def start(self) -> int:
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self.server.sockets[0].getsockname()[1])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.framer = Framer()
        self.accepted.set()

    async def next(self) -> Pdu:
        """The next PDU of the ESME."""
        await self.accepted.wait()
        assert self.reader is not None
        while not self.read:
            octets = await asyncio.wait_for(self.reader.read(65_536), 60)
            if not octets:
                raise EOFError
            self.read += [decode(one) for one in self.framer.feed(octets)]
        return self.read.pop(0)

    async def at_end(self) -> bool:
        """Whether the ESME closed."""
        assert self.reader is not None
        try:
            while await asyncio.wait_for(self.reader.read(65_536), 10):
                pass
        except ConnectionError:
            pass
        return True

    def write(self, octets: bytes) -> None:
        assert self.writer is not None
        self.writer.write(octets)

    async def accept_bind(self) -> None:
        bind = await self.next()
        self.write((16 + 6).to_bytes(4, "big") + (0x80000009).to_bytes(4, "big") + bytes(4))
        self.write(bind.sequence_number.to_bytes(4, "big") + b"SMSC1\0")

    async def stop(self) -> None:
        if self.writer is not None:
            self.writer.close()
        if self.server is not None:
            self.server.close()
