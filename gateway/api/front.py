"""What every request passes first (contract section 2; reliability section 5, lines 13-18): pure ASGI.

A request id; a bound on requests at work, the least urgent refused first; no compressed bodies; a bound on received
octets, chunked or not; a deadline for the whole request; and a problem instead of a stack trace. A request is at work
once it has arrived: whoever sends slowly takes no place from others, only some of the octets that unfinished bodies may
hold together. The operators' port has the same front with bounds of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
from collections.abc import Mapping, MutableMapping
from types import MappingProxyType
from typing import Any, Final

from gateway import logs
from gateway.admission.problems import INTERNAL, OVERLOAD, Problem
from gateway.api import shedding
from gateway.api.answers import Answer, problem_answer
from gateway.api.exchange import BODY, CLOSING, REQUEST_ID, App, Receive, Scope, Send, send_answer
from gateway.api.protocol import BEGUN_MONO, COMPLETE
from gateway.telemetry import metrics
from scheduler.core.values import valueclass

BODY_MAX: Final = 64 * 1024
BATCH_BODY_MAX: Final = 1024 * 1024
LIST_BODY_MAX: Final = 5 * 1024 * 1024
DEADLINE_S: Final = 10.0
AT_WORK_MAX: Final = 2_000
UNFINISHED_OCTETS_MAX: Final = 64 * 1024 * 1024


@valueclass
class Bodies:
    """Octets that a body may have: in general, and by path."""

    usual: int
    larger: Mapping[str, int]


TENANT_BODIES: Final = Bodies(
    BODY_MAX,
    {
        "/v1/messages/batch": BATCH_BODY_MAX,
        "/v1/opt-outs/import": LIST_BODY_MAX,
        "/v1/opt-ins/import": LIST_BODY_MAX,
    },
)
_NONE: Final[Mapping[tuple[str, str], App]] = MappingProxyType({})
_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9_.:-]{1,64}")
_PROCESS: Final = secrets.token_hex(6).encode("ascii")
_numbers = itertools.count(1)
_log = logs.get("api")


class _Crowded(Exception):
    """The unfinished bodies hold too much together."""


class Front:
    """Wraps the application."""

    def __init__(
        self,
        app: App,
        deadline_s: float = DEADLINE_S,
        at_work_max: int = AT_WORK_MAX,
        unfinished_max: int = UNFINISHED_OCTETS_MAX,
        *,
        bodies: Bodies = TENANT_BODIES,
        operators: bool = False,
        direct: Mapping[tuple[str, str], App] = _NONE,
    ) -> None:
        """`operators`: all requests are equal there, and what the framework answers gets its request id here.

        `direct`: by method and path the applications that answer faults of their own; they are asked past the
        framework's layers, which are half of a bare request's cost.
        """
        self._app = app
        self._direct = direct
        self._bodies = bodies
        self._operators = operators
        self._deadline_s = deadline_s
        self._at_work_max = at_work_max
        self._at_work = 0
        self._unfinished_max = unfinished_max
        self._unfinished = 0  # octets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[REQUEST_ID] = _request_id(scope)
        refusal = self._full() or await self._take_body(scope, receive) or self._shed(scope)
        if refusal is not None:
            await send_answer(scope, send, refusal)
            return
        self._at_work += 1
        try:
            direct = self._direct.get((scope["method"], scope["path"]))
            if direct is None or logs.debugging():
                await self._serve(scope, receive, send)
            else:
                await direct(scope, receive, send)
        finally:
            self._at_work -= 1

    def _full(self) -> Answer | None:
        return problem_answer(OVERLOAD) if self._at_work >= self._at_work_max else None

    def _shed(self, scope: Scope) -> Answer | None:
        """The less urgent a request, the sooner there is no place for it."""
        if self._operators or self._at_work < self._at_work_max * shedding.FREE_SHARE:
            return self._full()
        name = shedding.class_named(scope["method"], scope["path"], scope.get(BODY, b""))
        if self._at_work < self._at_work_max * shedding.share(name):
            return None
        if name is not None:
            metrics.admissions_total.labels(name, "refuse", OVERLOAD.code).inc()
        return problem_answer(OVERLOAD)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watch(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            if not started and logs.debugging():
                _tell(scope, message)
            if self._operators and not started:
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", scope[REQUEST_ID])]
            started = True
            await send(message)

        try:
            await self._app(scope, _given(scope, receive), watch)
        except Exception as error:
            answer = failed(scope, error)
            if started:
                raise
            await send_answer(scope, send, answer)

    async def _take_body(self, scope: Scope, receive: Receive) -> Answer | None:
        """Puts the body into the scope, or tells why it is not taken."""
        length: bytes | None = None
        chunked = False
        hosts = 0
        for name, value in scope["headers"]:
            if name == b"host":
                hosts += 1
            elif name == b"content-length":
                length = value
            elif name == b"transfer-encoding":
                chunked = True
            elif name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
                return problem_answer(Problem("request.encoding", "Send the body without Content-Encoding."))
        if hosts > 1 or (not hosts and scope["http_version"] == "1.1"):
            # Whoever else reads the request may take it for another one (RFC 9112, section 3.2).
            return _closing(problem_answer(Problem("request.malformed", "Send one Host header.")))
        if scope["method"] in _BODILESS and not chunked and length in (None, b"0"):
            return None
        limit = self._bodies.larger.get(scope["path"], self._bodies.usual)
        if length is not None and length.isdigit() and int(length[:20]) > limit:
            return _too_large(limit)
        try:
            body = await (_read(receive, limit) if COMPLETE in scope else self._read_in_time(scope, receive, limit))
        except TimeoutError:
            detail = f"The whole request must arrive within {self._deadline_s:g} s."
            # What is left of the body would be taken for the next request.
            return _closing(problem_answer(Problem("request.timeout", detail)))
        except _Crowded:
            return problem_answer(OVERLOAD)
        if body is None:
            return _too_large(limit)
        scope[BODY] = body
        return None

    async def _read_in_time(self, scope: Scope, receive: Receive, limit: int) -> bytes | None:
        begun_mono = scope.get(BEGUN_MONO)
        if begun_mono is None:
            begun_mono = asyncio.get_running_loop().time()
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout_at(begun_mono + self._deadline_s):
                while size <= limit:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return b""
                    chunks.append(message.get("body", b""))
                    size += len(chunks[-1])
                    self._unfinished += len(chunks[-1])
                    if not message.get("more_body", False):
                        break
                    if self._unfinished > self._unfinished_max:
                        raise _Crowded
        finally:
            self._unfinished -= size
        return b"".join(chunks) if size <= limit else None


def _tell(scope: Scope, start: MutableMapping[str, Any]) -> None:
    """One line per request, at level debug: which call, how it ended, and the message that came of it.

    Of the path only the call's name: what follows may be a number.
    """
    place = dict(start["headers"]).get(b"location", b"").decode("ascii", "replace")
    _log.debug(
        "request_answered",
        request_id=scope[REQUEST_ID].decode("ascii"),
        method=scope["method"],
        call="/".join(scope["path"].split("/")[:3]),
        status=start["status"],
        message_id=place.rpartition("/")[2] or None,
    )


def failed(scope: Scope, error: Exception) -> Answer:
    """The answer to a request that broke something of ours; what broke stands in the log under the request's id."""
    _log.error("request_failed", request_id=scope[REQUEST_ID].decode("ascii"), exc_info=error)
    return problem_answer(INTERNAL)


async def _read(receive: Receive, limit: int) -> bytes | None:
    """The body of a request that is all here: one message."""
    body: bytes = (await receive()).get("body", b"")
    return body if len(body) <= limit else None


def _given(scope: Scope, receive: Receive) -> Receive:
    given = False

    async def read() -> MutableMapping[str, Any]:
        nonlocal given
        if given:  # whoever asks again waits for the client to go
            return await receive()
        given = True
        return {"type": "http.request", "body": scope.get(BODY, b""), "more_body": False}

    return read


def _too_large(limit: int) -> Answer:
    # The connection stays: the server drops the rest of the body as it comes and cuts it off at the request's deadline.
    return problem_answer(
        Problem("request.too_large", f"A body may have {limit} octets here.", members={"limit": limit})
    )


def _closing(answer: Answer) -> Answer:
    return Answer(answer.status, (*answer.headers, CLOSING), answer.body)


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return bytes(value)
    return b"%s-%x" % (_PROCESS, next(_numbers))
