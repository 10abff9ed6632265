"""One SMPP link over TCP or TLS: the asyncio shell around a Session. There is no task per link, nor per message.

What is submitted in one turn of the event loop leaves in one write. The transport's high-water mark is 0: octets go to
the socket only while it takes them, the rest waits in the session's queue, where it is known to be unwritten.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Final, cast

from smpp.link.settings import BindRefused, LinkHandler, LinkLost, LinkSettings
from smpp.protocol.commands import DELIVER_SM, SUBMIT_SM
from smpp.protocol.errors import ROK
from smpp.protocol.events import Answered, Ended, Event, Requested, TimedOut
from smpp.protocol.pdu import Bind, BindReceiver, BindResp, BindTransceiver, BindTransmitter, Pdu
from smpp.protocol.session import Session
from smpp.protocol.states import Side, State

QUEUED_OCTETS_MAX: Final = 256 * 1024
"""Responses that wait for a socket that takes nothing; above it nothing more is read from that peer."""

CLOSE_GRACE_S: Final = 1.0
"""How long the last octets may take to leave before the socket is dropped."""

UNBIND_ANSWER_S: Final = 2.0
"""How long our unbind waits for its response; nothing but good manners depends on it."""

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER switched on with no time to linger: the socket is closed by RST."""

_BINDS: Final[Mapping[str, type[Bind]]] = {
    "transceiver": BindTransceiver,
    "transmitter": BindTransmitter,
    "receiver": BindReceiver,
}


class _Asked:
    """Token of a bind or unbind that somebody awaits."""

    __slots__ = ("answer",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.answer: asyncio.Future[Pdu] = loop.create_future()


class Connection(asyncio.Protocol):
    """Made by `connect` and `serve`. `attach` gives the handler once the link is there, its TLS handshake included."""

    def __init__(self, side: Side, settings: LinkSettings, attach: Callable[[Connection], LinkHandler]) -> None:
        self._loop = asyncio.get_running_loop()
        self._session = Session(side, settings.session(side), self._loop.time())
        self._settings = settings
        self._purpose = SUBMIT_SM if side is Side.ESME else DELIVER_SM
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._reading = True
        self._deaf = False
        self._mute = False
        self._flush_due = False
        self._ended = False
        self._wake: asyncio.Handle | None = None
        self._wake_mono = 0.0
        self._asked: set[_Asked] = set()
        self._quiet: asyncio.Future[None] | None = None
        self._gone = asyncio.Event()
        self.outgoing: Callable[[bytes], bytes] | None = None
        """What leaves goes through it: for peers under test that damage or cut what they write."""
        self.read_pause_s = 0.0
        """Pause after each read: for peers under test that read slowly."""
        self._attach = attach
        self._handler: LinkHandler

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self._session.state

    @property
    def bound(self) -> bool:
        return self._session.bound and not self._ended

    @property
    def can_send(self) -> bool:
        """Bound so that our side may send messages, and not unbinding."""
        return not self._ended and self._session.may_send(self._purpose)

    @property
    def window_free(self) -> int:
        return self._session.window_free

    @property
    def unanswered(self) -> int:
        return self._session.unanswered

    @property
    def writable(self) -> bool:
        """False while the socket takes nothing; what is submitted then waits, unwritten."""
        return not self._paused and not self._ended

    @property
    def counts(self) -> Mapping[str, int]:
        """What was ignored or refused on this link, by name (Session.counts)."""
        return self._session.counts

    # -- what one does with it ---------------------------------------------------------------------------------------

    async def bind(self, kind: str, system_id: str, password: str, system_type: str = "") -> str:
        """Binds as transceiver, transmitter or receiver; returns the peer's system_id.

        Raises BindRefused, LinkLost, TimeoutError, or PduInvalid for a field that does not fit; then the link is
        closed. `LinkHandler.lost` is called in these cases too.
        """
        pdu = _BINDS[kind](system_id=system_id, password=password, system_type=system_type)
        asked = self._ask()
        try:
            self._session.bind(pdu, asked)
            self._schedule_flush()
            async with asyncio.timeout(self._settings.bind_timeout_s):
                response = await asked.answer
        except BaseException:
            self._end("bind failed")
            raise
        finally:
            self._asked.discard(asked)
        if response.command_status != ROK:
            self._end("bind refused")
            raise BindRefused(response.command_status)
        return response.system_id if isinstance(response, BindResp) else ""

    def submit(self, pdu: Pdu, token: object) -> int:
        """Queues a request and returns its sequence number; it leaves at the end of this turn of the loop.

        Raises NotPermitted, WindowFull or PduInvalid; callers look at can_send, window_free and writable first.
        """
        sequence = self._session.request(pdu, token)
        self._schedule_flush()
        return sequence

    def push(self) -> None:
        """What is queued leaves now, not at the end of this turn: for those who have more to do in it."""
        self._flush()

    def answer(self, request: Pdu, command_status: int = ROK) -> None:
        """Answers a request of the peer with a status and empty fields. After the link's end it does nothing."""
        self._session.answer(request, command_status)
        self._schedule_flush()

    def respond(self, request: Pdu, response: Pdu) -> None:
        """Answers a request of the peer with this PDU. After the link's end it does nothing."""
        self._session.respond(request, response)
        self._schedule_flush()

    async def unbind(self, timeout_s: float) -> None:
        """Leaves in good order: sends nothing new, awaits due answers up to `timeout_s`, unbinds, closes.

        Takes at most `timeout_s` + UNBIND_ANSWER_S + CLOSE_GRACE_S. Requests still unanswered come back through
        `LinkHandler.lost`. Never raises.
        """
        self._session.leave()
        if not self._ended and self._session.unanswered:
            self._quiet = self._quiet or self._loop.create_future()
            await asyncio.wait({self._quiet}, timeout=timeout_s)
        if not self._ended and self._session.bound:
            asked = self._ask()
            self._session.unbind(asked, self._loop.time())
            self._schedule_flush()
            await asyncio.wait({asked.answer}, timeout=min(UNBIND_ANSWER_S, self._settings.response_timeout_s))
            self._asked.discard(asked)
        self._end("unbound")
        await self._gone.wait()

    def close(self, *, reset: bool = False) -> None:
        """Drops the link without unbind, with `reset` by RST; `LinkHandler.lost` follows in a later turn."""
        self._session.leave()
        if self._transport is None:
            return
        if reset:
            plain = self._transport.get_extra_info("socket")
            if plain is not None:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()

    def hold_reading(self, held: bool) -> None:
        """Stops reading, or goes on: a peer under test that hangs."""
        self._deaf = held
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.pause_reading if held else self._transport.resume_reading)()

    def hold_writing(self, held: bool) -> None:
        """Stops writing, or goes on: a peer under test whose octets get lost on the way."""
        self._mute = held
        self._schedule_flush()

    def write_octets(self, octets: bytes) -> None:
        """Writes octets as they are, behind what is queued: a peer under test that breaks the protocol."""
        self._flush()
        if not self._ended and self._transport is not None and not self._transport.is_closing():
            self._transport.write(octets)

    async def wait_closed(self) -> None:
        """Returns once the socket is closed."""
        await self._gone.wait()

    # -- what asyncio calls ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # asyncio's TLS transport pauses at `size >= high`, its plain one at `size > high`: 0 would pause TLS for ever.
        encrypted = transport.get_extra_info("sslcontext") is not None
        self._transport.set_write_buffer_limits(high=1 if encrypted else 0, low=0)
        self._handler = self._attach(self)
        self._schedule_flush()
        self._arm()

    def data_received(self, data: bytes) -> None:
        if not self._ended:
            self._dispatch(self._session.receive(data, self._loop.time()))
            self._carry_on()
        if self.read_pause_s and not self._ended:
            self._open_transport().pause_reading()
            self._loop.call_later(self.read_pause_s, self._read_on)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._ended:
            return
        self._flush()
        if not self._reading:
            self._reading = True
            self._read_on()
        if not self._paused:
            self._tell(self._handler.room)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("connection closed" if exc is None else f"connection lost: {type(exc).__name__}")
        self._gone.set()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _open_transport(self) -> asyncio.Transport:
        if self._transport is None:
            raise LinkLost("not connected")
        return self._transport

    def _ask(self) -> _Asked:
        asked = _Asked(self._loop)
        if self._ended:
            asked.answer.set_exception(LinkLost("the link has ended"))
        self._asked.add(asked)
        return asked

    def _schedule_flush(self) -> None:
        if not self._flush_due and not self._ended and self._session.queued_octets:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _read_on(self) -> None:
        if self._reading and not self._deaf and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _flush(self) -> None:
        self._flush_due = False
        transport = self._transport
        if self._paused or self._mute or self._ended or transport is None or not self._session.queued_octets:
            return
        if transport.is_closing():
            return
        octets = self._session.take(self._loop.time())
        transport.write(octets if self.outgoing is None else self.outgoing(octets))
        self._arm()

    def _arm(self) -> None:
        due_mono = self._session.next_tick_mono()
        if self._wake is not None:
            if self._wake_mono <= due_mono:
                return  # it wakes early, looks, and arms again: cheaper than a new timer per read
            self._wake.cancel()
        # uvloop's handles do not tell their moment, so it is kept here.
        self._wake_mono = max(due_mono, self._loop.time() + 0.001)
        self._wake = self._loop.call_at(self._wake_mono, self._tick)

    def _tick(self) -> None:
        self._wake = None
        if not self._ended:
            self._dispatch(self._session.tick(self._loop.time()))
            self._carry_on()

    def _carry_on(self) -> None:
        if self._ended:
            return
        self._flush()  # not a turn of the loop later: what an answer made room for is on its way at once
        self._arm()
        if self._paused and self._reading and self._session.queued_octets > QUEUED_OCTETS_MAX:
            self._reading = False
            self._open_transport().pause_reading()

    def _dispatch(self, events: list[Event]) -> None:
        handler = self._handler
        room = False
        for event in events:
            if isinstance(event, Answered):
                token = event.token
                if isinstance(token, _Asked):
                    if not token.answer.done():
                        token.answer.set_result(event.response)
                    continue
                room = True
                self._tell(handler.answered, token, event.response, event.late)
            elif isinstance(event, Requested):
                self._tell(handler.requested, event.pdu)
            elif isinstance(event, TimedOut):
                room = True
                self._tell(handler.timed_out, event.token)
            elif isinstance(event, Ended):
                self._end(event.reason)
        if room and not self._ended:
            if self._quiet is not None and not self._quiet.done() and not self._session.unanswered:
                self._quiet.set_result(None)
            self._tell(handler.room)

    def _tell(self, call: Callable[..., None], *arguments: object) -> None:
        # A fault in the handler must not lose the events behind it, nor tear the link down.
        try:
            call(*arguments)
        except Exception as fault:
            self._loop.call_exception_handler({"message": "smpp link handler failed", "exception": fault})

    def _end(self, reason: str) -> None:
        if self._ended:
            return
        self._ended = True
        parting = self._session.parting()
        tokens = self._session.end()
        if self._wake is not None:
            self._wake.cancel()
        if self._transport is not None and not self._transport.is_closing():
            if self._paused:
                self._transport.abort()
            else:
                if parting and not self._mute:
                    self._transport.write(parting)
                self._transport.close()
                self._loop.call_later(CLOSE_GRACE_S, self._transport.abort)
        for asked in self._asked:
            if not asked.answer.done():
                asked.answer.set_exception(LinkLost(reason))
                asked.answer.exception()  # seen: nobody may be waiting any more
        if self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)
        self._tell(self._handler.lost, tokens, reason)
