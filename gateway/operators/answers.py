"""Answers of the operators' port: JSON and RFC 9457 problems."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.admission import strict_json
from gateway.api.exchange import hang_up

PROBLEM = "application/problem+json"


class Withheld(Response):
    """No answer: the connection ends, since nobody knows what came of the call (`gateway.api.exchange.hang_up`)."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hangs up."""
        await hang_up(scope, receive)


def json(content: Any, status: int = 200) -> Response:
    """A JSON answer."""
    return Response(orjson.dumps(content), status, media_type="application/json", headers={"Cache-Control": "no-store"})


def problem(status: int, code: str, title: str, **members: Any) -> Response:
    """A problem; `code` is stable and dotted."""
    body = {"type": "about:blank", "title": title, "status": status, "code": code, **members}
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return Response(orjson.dumps(body), status, media_type=PROBLEM, headers=headers | {"Cache-Control": "no-store"})


def json_object(request: Request) -> dict[str, Any] | None:
    """The body that `read_body` kept, as a JSON object of one meaning; None where it is none."""
    try:
        orjson.loads(request.state.body)  # no lone surrogates: nothing here could store them
        content = strict_json.parse(bytes(request.state.body))
    except (orjson.JSONDecodeError, strict_json.Malformed):
        return None
    return content if isinstance(content, dict) else None
