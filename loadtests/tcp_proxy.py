"""A TCP proxy that breaks links on purpose: at an exact place of the traffic, in any of the ways a network does.

`arm` sets one cut; it strikes once, on the connection that meets its place first. With `framing="smpp"` the proxy knows
PDUs, so that "in the middle of the third submit_sm" is exact; with `framing="octets"` it counts octets, for links to
the stores and to callback endpoints. Everything else passes unchanged.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

BEFORE: Final = "before_first_octet"
MIDDLE: Final = "mid_pdu"
AFTER: Final = "after_last_octet"
ANSWER_LOST: Final = "answer_lost"
ANSWER_LATE: Final = "answer_late"
RST: Final = "rst"
FIN: Final = "fin"
BLACK_HOLE: Final = "black_hole"
POINTS: Final = (BEFORE, MIDDLE, AFTER, ANSWER_LOST, ANSWER_LATE, RST, FIN, BLACK_HOLE)
ENDS_LINK: Final = frozenset({BEFORE, MIDDLE, AFTER, RST, FIN, BLACK_HOLE})

_HEADER: Final = struct.Struct(">IIII")
_SUBMIT_SM: Final = 0x0000_0004
_SUBMIT_SM_RESP: Final = 0x8000_0004
_READ: Final = 65_536
_PDU_MAX: Final = 1 << 20
_FIN_GRACE_S: Final = 0.3


@dataclass(frozen=True, slots=True)
class Cut:
    """Strikes at the `at`-th submit_sm that a connection sends from now on (1 is the next), or after `at` octets.

    `inside` is how many octets of it still pass when it is cut in the middle; `late_s` how late a late answer comes.
    """

    point: str
    at: int = 1
    inside: int = 20
    late_s: float = 3.0


@dataclass(slots=True)
class Strike:
    """What became of an armed cut: the instants (UTC ms) around it; `over` once the hit connection has ended."""

    cut: Cut
    began_at: int = 0
    done_at: int = 0
    struck: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class TcpProxy:
    """Listens on loopback and passes everything on to one target."""

    def __init__(self, target: tuple[str, int] | str, framing: str = "smpp") -> None:
        self.delay_s = 0.0
        """Added to everything that passes towards the client."""
        self.blocked = False
        """New connections are closed at once."""
        self._target = target
        self._framing = framing
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._armed: Strike | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def links(self) -> int:
        """Connections that are open."""
        return len(self._links)

    async def start(self, port: int = 0) -> TcpProxy:
        """Listens; raises OSError where the port is taken."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        return self

    async def stop(self) -> None:
        """Ends every connection and the listener."""
        if self._server is not None:
            self._server.close()
        self.drop_all()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def arm(self, cut: Cut) -> Strike:
        """Sets the next cut; it replaces one that has not struck."""
        self._armed = Strike(cut)
        for link in self._links:
            link.seen = 0
        return self._armed

    def drop_all(self, *, rst: bool = False) -> None:
        """Ends every connection now."""
        for link in list(self._links):
            link.end(rst=rst)

    def take_armed(self, seen: int) -> Strike | None:
        """The armed cut, if a connection that has sent so much meets its place; it is disarmed then."""
        strike = self._armed
        if strike is None or seen < strike.cut.at:
            return None
        self._armed = None
        strike.began_at = _now_at()
        return strike

    def end_silent(self) -> None:
        """Ends the connections that fell into a black hole, with a reset."""
        for link in list(self._links):
            if link.silent:
                link.end(rst=True)

    async def _reach(self) -> _Ends:
        """A connection to the target: a port, or the path of a unix socket."""
        if isinstance(self._target, str):
            return await asyncio.open_unix_connection(self._target)
        return await asyncio.open_connection(*self._target)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.blocked:
            writer.close()
            return
        try:
            far_reader, far_writer = await self._reach()
        except OSError:
            writer.close()
            return
        link = _Link(self, (reader, writer), (far_reader, far_writer))
        self._links.add(link)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await link.run(self._framing)
        finally:
            self._tasks.discard(task)
            self._links.discard(link)
            link.end()


_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    """One connection through the proxy."""

    def __init__(self, proxy: TcpProxy, near: _Ends, far: _Ends) -> None:
        self.seen = 0  # submit_sm or octets sent by the client since a cut was armed
        self._proxy = proxy
        self._near, self._far = near, far
        self.silent = False  # in a black hole
        self._withheld: dict[int, float] = {}  # sequence of a submit_sm -> how late its answer comes; inf: never
        self._strike: Strike | None = None
        self._late: set[asyncio.TimerHandle] = set()

    async def run(self, framing: str) -> None:
        """Passes octets both ways until either side ends."""
        up = self._up_pdus() if framing == "smpp" else self._up_octets()
        down = self._down_pdus() if framing == "smpp" else self._down_octets()
        tasks = [asyncio.ensure_future(up), asyncio.ensure_future(down)]
        try:
            # A link that fell into a black hole ends only when the client gives it up.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if self.silent and not tasks[0].done():
                await asyncio.wait(tasks[:1])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._strike is not None:
                if self._strike.cut.point == BLACK_HOLE:
                    self._strike.done_at = _now_at()
                self._strike.over.set()

    def end(self, *, rst: bool = False) -> None:
        """Closes both sides, with a reset where asked."""
        for handle in self._late:
            handle.cancel()
        for _, writer in (self._near, self._far):
            if rst:
                _linger_zero(writer)
                writer.transport.abort()
            else:
                writer.close()

    async def _up_octets(self) -> None:
        reader, _ = self._near
        while data := await _read(reader):
            self.seen += len(data)
            strike = self._proxy.take_armed(self.seen)
            if strike is not None:
                keep = max(0, len(data) - (self.seen - strike.cut.at))
                await self._hit(strike, data if strike.cut.point == ANSWER_LOST else data[:keep])
            elif not self.silent:
                await self._pass_up(data)

    async def _up_pdus(self) -> None:
        held = b""
        reader, _ = self._near
        while data := await _read(reader):
            held += data
            while (pdu := _first_pdu(held)) is not None:
                held = held[len(pdu) :]
                await self._up_pdu(pdu)

    async def _up_pdu(self, pdu: bytes) -> None:
        if self.silent:
            return
        _, command, _, sequence = _HEADER.unpack_from(pdu)
        strike = None
        if command == _SUBMIT_SM:
            self.seen += 1
            strike = self._proxy.take_armed(self.seen)
        if strike is None:
            await self._pass_up(pdu)
            return
        point = strike.cut.point
        if point in (ANSWER_LOST, ANSWER_LATE):
            self._withheld[sequence] = strike.cut.late_s if point == ANSWER_LATE else float("inf")
            await self._pass_up(pdu)
            _done(strike)
            strike.over.set()
            return
        kept = {BEFORE: 0, MIDDLE: min(strike.cut.inside, len(pdu) - 1)}.get(point, len(pdu))
        await self._hit(strike, pdu[:kept])

    async def _hit(self, strike: Strike, kept: bytes) -> None:
        """What still passes goes out, then the link breaks."""
        self._strike = strike
        if kept:
            await self._pass_up(kept)
        point = strike.cut.point
        if point == BLACK_HOLE:
            self.silent = True
            _done(strike)
            return
        if point == FIN:
            for _, writer in (self._near, self._far):
                with suppress(OSError):
                    writer.write_eof()
            _done(strike)
            await asyncio.sleep(_FIN_GRACE_S)
        self.end(rst=point == RST)
        if point != FIN:
            _done(strike)
        raise ConnectionResetError

    async def _pass_up(self, octets: bytes) -> None:
        _, writer = self._far
        writer.write(octets)
        await writer.drain()

    async def _down_octets(self) -> None:
        reader, _ = self._far
        while data := await _read(reader):
            await self._pass_down(data)

    async def _down_pdus(self) -> None:
        held = b""
        reader, _ = self._far
        while data := await _read(reader):
            held += data
            while (pdu := _first_pdu(held)) is not None:
                held = held[len(pdu) :]
                _, command, _, sequence = _HEADER.unpack_from(pdu)
                late_s = self._withheld.pop(sequence, None) if command == _SUBMIT_SM_RESP else None
                if late_s is None:
                    await self._pass_down(pdu)
                elif late_s != float("inf"):
                    loop = asyncio.get_running_loop()
                    self._late.add(loop.call_later(late_s, self._write_down, pdu))

    async def _pass_down(self, octets: bytes) -> None:
        if self.silent:
            return
        if self._proxy.delay_s > 0:
            await asyncio.sleep(self._proxy.delay_s)
        self._write_down(octets)
        await self._near[1].drain()

    def _write_down(self, octets: bytes) -> None:
        if not self._near[1].is_closing():
            self._near[1].write(octets)


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(_READ)
    except OSError:
        return b""


def _first_pdu(held: bytes) -> bytes | None:
    """The first whole PDU; what cannot be one passes as it is."""
    if len(held) < _HEADER.size:
        return None
    length = int.from_bytes(held[:4], "big")
    if not _HEADER.size <= length <= _PDU_MAX:
        return held
    return held[:length] if len(held) >= length else None


def _linger_zero(writer: asyncio.StreamWriter) -> None:
    found = writer.get_extra_info("socket")
    if found is not None:
        with suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _done(strike: Strike) -> None:
    strike.done_at = _now_at()
    strike.struck.set()


def _now_at() -> int:
    return time.time_ns() // 1_000_000
