"""One HTTP exchange: what a route needs of the request, and how an answer is sent (pure ASGI, no framework objects)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from gateway.api.answers import Answer
from gateway.api.protocol import HANG_UP, write_whole
from scheduler.core.values import valueclass

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY: Final = "sluicegate.body"
REQUEST_ID: Final = "sluicegate.request_id"
CLOSING: Final = (b"connection", b"close")


@valueclass
class Exchange:
    """A request whose body has arrived."""

    scope: Scope

    @property
    def body(self) -> bytes:
        """The whole body."""
        return bytes(self.scope.get(BODY, b""))

    @property
    def path_parameters(self) -> dict[str, str]:
        """What the route's path matched."""
        return dict(self.scope.get("path_params", {}))

    def header(self, name: bytes) -> str | None:
        """The value of a header (name in lower case); of one that stands in several lines all of them, in their order.

        They mean a list (RFC 9110, section 5.3): the first alone could be what a client wrote in front of its proxy.
        """
        values = [value.decode("latin-1") for key, value in self.scope["headers"] if key == name]
        return ", ".join(values) if values else None

    @property
    def peer(self) -> str | None:
        """The address at the other end of the connection."""
        client = self.scope.get("client")
        return None if client is None else str(client[0])


async def send_answer(scope: Scope, send: Send, answer: Answer) -> None:
    """Sends an answer with its length and the request's id."""
    request_id = scope.get(REQUEST_ID, b"")
    headers = [
        *answer.headers,
        (b"content-length", str(len(answer.body)).encode("ascii")),
        (b"x-request-id", request_id),
    ]
    if CLOSING not in answer.headers and write_whole(send, answer.status, headers, answer.body):
        return
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def hang_up(scope: Scope, receive: Receive) -> None:
    """Ends the connection instead of an answer; returns once it has ended.

    For a call whose outcome nobody knows. A connection that closes without an answer is what clients and proxies take
    for "unknown" (RFC 9110, section 9.2.2); a status would be taken for the outcome.
    """
    scope[HANG_UP]()
    while (await receive())["type"] != "http.disconnect":
        pass
