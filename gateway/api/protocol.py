"""The HTTP connection, with the bounds that uvicorn lacks (reliability section 5, lines 14 and 16).

Headers have a deadline and a size; a body that nobody reads any more is cut off at the same deadline; and so is a
client that does not take its answers: the request that writes them would hold its place for ever.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Sized
from typing import Any, Final

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from gateway.admission.problems import MEDIA_TYPE, Problem

BEGUN_MONO: Final = "sluicegate.begun_mono"
COMPLETE: Final = "sluicegate.complete"
HANG_UP: Final = "sluicegate.hang_up"
HEADERS_MAX: Final = 32 * 1024
PIPELINED_MAX: Final = 32  # requests behind the one that is answered; each holds kilobytes for 18 octets on the wire
REQUEST_S: Final = 10.0
_HEADERS_TOO_LARGE: Final = f"The headers are too large: {HEADERS_MAX // 1024} KiB are taken."
_REASONS: Final = {400: "Bad Request", 408: "Request Timeout"}
_OF_A_SWITCH: Final = frozenset({b"upgrade", b"http2-settings"})


class _TooManyAtOnce(Exception):
    """More requests than may wait on one connection."""


class _TooLarge(Exception):
    """More octets in a request's line, headers and trailers than are taken."""


def write_whole(send: object, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
    """Writes an answer of ours in one piece; False where it must go in uvicorn's two steps (`send` takes them).

    Those look for what is wrong in each header and how the body is framed. For answers that say their length, keep the
    connection, and hold no header's value of somebody else that was not looked at.
    """
    cycle = getattr(send, "__self__", None)
    if (
        not isinstance(cycle, RequestResponseCycle)
        or cycle.flow.write_paused
        or cycle.disconnected
        or cycle.response_started
        or not cycle.keep_alive
        or cycle.scope["method"] == "HEAD"
    ):
        return False
    pieces = [STATUS_LINE[status]]
    pieces += [b"%b: %b\r\n" % header for header in cycle.default_headers]
    pieces += [b"%b: %b\r\n" % header for header in headers]
    pieces += (b"\r\n", body)
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    cycle.transport.write(b"".join(pieces))
    cycle.message_event.set()
    cycle.on_response()
    return True


class Cork:
    """A transport that hands on once per turn of the loop what was written in it: an answer's head and body are one
    write to the socket, which costs more than all else that sending it takes."""

    __slots__ = ("_loop", "_pieces", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Keeps the octets until the end of this turn."""
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(data)

    def close(self) -> None:
        """Closes after what was written has gone."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._pieces:
            data = b"".join(self._pieces)
            self._pieces.clear()
            if not self._transport.is_closing():
                self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Flow(FlowControl):
    """Reads no further while requests wait behind the one that is answered (uvicorn goes on reading)."""

    def __init__(self, transport: asyncio.Transport, waiting: Sized) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        """Goes on reading where nothing waits."""
        if not self._waiting:
            super().resume_reading()


class BoundedProtocol(HttpToolsProtocol):
    """HttpToolsProtocol with a deadline from a request's first octet to its last, and a bound on its headers."""

    request_s: float = REQUEST_S

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._reading = False  # a request has begun and not ended
        self._in_headers = False
        self._header_octets = 0  # received, for a header that does not end
        self._field_octets = 0  # parsed, for what comes in one piece and for trailers
        self._switches = False  # the request asks for another protocol
        self._begun_mono = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None
        self._idle_mono = 0.0  # when the last answer was given

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A silent connection is cut like a slow one."""
        super().connection_made(Cork(transport, self.loop))  # type: ignore[arg-type]
        self.flow = _Flow(self.transport, self.pipeline)
        self._timer = self.loop.call_later(self.request_s, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._stop_timer()
        self._unstick()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client takes nothing now; it has as long as for a request."""
        super().pause_writing()
        if self._stuck is None:
            self._stuck = self.loop.call_later(self.request_s, self.transport.abort)

    def resume_writing(self) -> None:
        """The client took what was written."""
        self._unstick()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Feeds the parser; sets the timer only where a request did not come in one piece."""
        self._feed(data)
        if self.transport.is_closing() or not self._reading:
            self._stop_timer()
        elif self._in_headers and self._too_many_headers(len(data)):
            self.send_400_response(_HEADERS_TOO_LARGE)
        elif self._timer is None:
            self._timer = self.loop.call_at(self._begun_mono + self.request_s, self._late)

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._stay(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            too_large = isinstance(error.__context__, _TooLarge)
            self.send_400_response(_HEADERS_TOO_LARGE if too_large else "Invalid HTTP request received.")

    def _stay(self, rest: bytes) -> None:
        """Answers a request that offers another protocol as if it did not (RFC 9110, section 7.8).

        The parser ends such a request at its headers. Java's HttpClient offers h2c with its first request and a body.
        """
        if not self._switches:
            return  # CONNECT: it was refused already
        self._switches = False
        version = self.parser.get_http_version().encode("ascii")
        head = [self.parser.get_method() + b" " + self.url + b" HTTP/" + version]
        for name, value in self.headers:
            if name == b"connection":
                words = [word for word in value.split(b",") if word.strip().lower() not in _OF_A_SWITCH]
                head.append(b"connection:" + b",".join(words))
            elif name not in _OF_A_SWITCH:
                head.append(name + b": " + value)
        begun_mono = self._begun_mono
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._feed(b"\r\n".join(head) + b"\r\n\r\n")
        self._begun_mono = begun_mono
        if not self.transport.is_closing():
            self._feed(rest)

    def on_message_begin(self) -> None:
        """A request's first line has begun."""
        self._reading = self._in_headers = True
        if len(self.pipeline) >= PIPELINED_MAX:
            raise _TooManyAtOnce
        super().on_message_begin()
        self._header_octets = self._field_octets = 0
        self._begun_mono = self.loop.time()
        self._stop_timer()

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._field_octets += len(url)
        if self._field_octets > HEADERS_MAX:
            raise _TooLarge
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header. What comes after the body is none (RFC 9110, section 6.5.1): no proxy has looked at it."""
        self._field_octets += len(name) + len(value) + 4
        if self._field_octets > HEADERS_MAX:
            raise _TooLarge
        if self._in_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The application may start; it goes by the same deadline."""
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._switches = True  # what follows comes anew, see `_stay`
            return
        self._in_headers = False
        self.scope[BEGUN_MONO] = self._begun_mono  # type: ignore[typeddict-unknown-key]
        self.scope[HANG_UP] = self._hang_up  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is all here: whoever reads the body need not watch the clock."""
        if self._switches:
            return
        self._reading = False
        self.scope[COMPLETE] = True  # type: ignore[typeddict-unknown-key]
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The next request, or the wait for one: one timer per connection looks again, where uvicorn makes one for each
        answer and cancels it at the next request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_mono = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection that has said nothing since its last answer for as long as it may."""
        self.timeout_keep_alive_task = None
        if not self.cycle.response_complete:
            return  # its end sets the timer again
        now_mono = self.loop.time()
        # A body that nobody reads any more has a deadline of its own.
        end_mono = (now_mono if self._reading else self._idle_mono) + self.timeout_keep_alive
        if now_mono < end_mono:
            self.timeout_keep_alive_task = self.loop.call_at(end_mono, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP gets a problem too."""
        self._refuse(Problem("request.malformed", msg))

    def _too_many_headers(self, octets: int) -> bool:
        self._header_octets += octets
        return self._header_octets > HEADERS_MAX

    def _hang_up(self) -> None:
        """Ends the connection without an answer to the request at work; those before it have theirs."""
        self.pipeline.clear()
        self.transport.close()

    def _late(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self._in_headers:
            self._refuse(Problem("request.timeout", f"The whole request must arrive within {self.request_s:g} s."))
        elif not self._begun_mono or self.cycle.response_complete:
            self.transport.close()  # it never said a word, or goes on with a body that nobody reads
        # Otherwise the application reads the body and answers by the same deadline.

    def _refuse(self, problem: Problem) -> None:
        unanswered = self.cycle is not None and not self.cycle.response_complete
        in_body = self._reading and not self._in_headers
        if unanswered and not in_body:
            # The fault is in what follows on good requests: they get their answers, and only then the connection ends.
            # A refusal here would be read as theirs.
            self.cycle.keep_alive = False
            return
        if unanswered and self.pipeline:
            self.transport.abort()
            return
        body = problem.body()
        head = (
            f"HTTP/1.1 {problem.status} {_REASONS[problem.status]}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(body)}\r\nx-request-id: {secrets.token_hex(8)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()

    def _unstick(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
