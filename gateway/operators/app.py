"""The operators' port of one process (contract section 4): metrics, health, console, admin."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any

import aiohttp
import asyncpg
import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway import logs
from gateway.console.site import console_routes
from gateway.operators import metrics_page
from gateway.operators.admin import admin_routes
from gateway.operators.answers import json, problem
from gateway.operators.desk import Desk, Neighbour

_NEIGHBOUR_S = 2.0
_log = logs.get("operators")


def build_app(desk: Desk) -> Starlette:
    """The ASGI app of an operators' port."""

    async def metrics(_request: Request) -> Response:
        neighbours = desk.neighbours()
        if not neighbours:  # a role alone, or one whose page is merged into another
            return PlainTextResponse(metrics_page.own_page(), media_type=metrics_page.CONTENT_TYPE)
        pages = await asyncio.gather(*(fetch(neighbour, "/metrics") for neighbour in neighbours))
        answered = [
            (one.role, one.worker, page[1]) for one, page in zip(neighbours, pages, strict=True) if page is not None
        ]
        own = (desk.rt.role, desk.rt.worker, metrics_page.own_page())
        return PlainTextResponse(metrics_page.merge([own, *answered]), media_type=metrics_page.CONTENT_TYPE)

    async def healthz(_request: Request) -> Response:
        return json({"status": "ok"})

    async def readyz(_request: Request) -> Response:
        reason = await not_ready(desk)
        return json({"status": "ready"}) if reason is None else json({"status": "not ready", "reason": reason}, 503)

    async def front(_request: Request) -> Response:
        return RedirectResponse("/console", 303)

    async def failed(_request: Request, error: Exception) -> Response:
        _log.error("operators_request_failed", error=type(error).__name__, exc_info=error)
        return problem(500, "internal", "Something broke here; the log of the gateway says what")

    async def unavailable(_request: Request, error: Exception) -> Response:
        _log.warning("operators_request_failed", error=type(error).__name__)
        return problem(503, "capacity.storage", "A store does not answer")

    async def unfit(_request: Request, error: Exception) -> Response:
        # NUL in a text, a number beyond bigint, a list where a text belongs: only who asks can bring these here.
        _log.warning("operators_request_unfit", exc_info=error)
        return problem(422, "request.invalid", "A value in the path or in the body cannot be what it stands for")

    async def missing(_request: Request, _error: Exception) -> Response:
        return problem(404, "not_found", "There is nothing here")

    async def no_method(_request: Request, error: Any) -> Response:
        answer = problem(405, "method_not_allowed", "This method does not exist here")
        answer.headers["allow"] = (error.headers or {}).get("Allow", "")
        return answer

    routes = [
        Route("/", front),
        Route("/metrics", metrics),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        # A path with a slash at its end is another one: a redirect would send a body, and a key, to where Host says.
        Mount("/admin", app=Router(routes=admin_routes(desk), redirect_slashes=False)),
        *console_routes(desk),
    ]
    away = (OSError, asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError, asyncpg.InterfaceError)
    handlers: dict[Any, Any] = {404: missing, 405: no_method, Exception: failed, asyncpg.DataError: unfit}
    handlers |= dict.fromkeys(away, unavailable)
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.add_middleware(LocalNames, host=desk.rt.settings.admin_host)
    return app


async def not_ready(desk: Desk) -> str | None:
    """Why this process, or one it supervises, cannot do its work; None when all can."""
    own = await desk.rt.not_ready()
    if own is not None:
        return own
    neighbours = desk.neighbours()
    for neighbour, page in zip(
        neighbours, await asyncio.gather(*(fetch(one, "/readyz") for one in neighbours)), strict=True
    ):
        if page is None:
            return f"{neighbour.worker} does not answer"
        if page[0] != 200:
            return f"{neighbour.worker}: {_reason(page[1])}"
    return None


def _reason(page: str) -> str:
    try:
        return str(orjson.loads(page)["reason"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return "not ready"


async def fetch(neighbour: Neighbour, path: str) -> tuple[int, str] | None:
    """A page of another process on this machine; None where it does not answer in time."""
    timeout = aiohttp.ClientTimeout(total=_NEIGHBOUR_S)
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(neighbour.socket), timeout=timeout) as client,
            client.get(f"http://localhost{path}") as answer,
        ):
            return answer.status, await answer.text()
    except (OSError, TimeoutError, aiohttp.ClientError):
        return None


class LocalNames:
    """On a loopback address only IP literals and `localhost` are taken as Host.

    A web page cannot reach us by a DNS name of its own then.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app = app
        self._guarded = host in ("127.0.0.1", "::1", "localhost")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            self._guarded
            and scope["type"] == "http"
            and not _is_local(dict(scope["headers"]).get(b"host", b"localhost").decode("latin-1"))
        ):
            await problem(421, "request.host", "This address is not served here")(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _is_local(host: str) -> bool:
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if name.lower() in ("localhost", ""):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
