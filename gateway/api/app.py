"""The tenant port's application: plain Starlette routes in a FastAPI app, one bounded front before all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admission.problems import NOT_FOUND, Problem
from gateway.api import docs_page, openapi
from gateway.api.answers import Answer, json_answer, problem_answer
from gateway.api.applications import Applications
from gateway.api.aside import Aside, Handler
from gateway.api.authentication import Authentication
from gateway.api.capacity import Capacity
from gateway.api.door import Door
from gateway.api.exchange import App, Exchange, Receive, Scope, Send, hang_up, send_answer
from gateway.api.explanations import Explanations
from gateway.api.front import Front, failed
from gateway.api.inbound import Inbox
from gateway.api.messages import Messages
from gateway.api.opt_lists import Imports, OptLists, Reader
from gateway.api.usage import Usage
from gateway.ledger.acceptance import CommitUnknown
from gateway.ledger.consents import OPT_INS, OPT_OUTS
from gateway.ledger.keys import MANAGE, READ, SEND, KeyRing
from gateway.runtime import Runtime

Call = tuple[str, str, str, Handler]
_HOT: Final = frozenset({("POST", "/v1/messages"), ("POST", "/v1/messages/batch")})


@dataclass(frozen=True)
class Endpoint:
    """A route's ASGI application: authenticates, asks the handler, sends its answer; faults have an answer too."""

    authentication: Authentication
    scope_needed: str
    handler: Handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope)
        try:
            tenant = await self.authentication.tenant(exchange, self.scope_needed)
            answer = problem_answer(tenant) if isinstance(tenant, Problem) else await self.handler(exchange, tenant)
        except CommitUnknown:
            await hang_up(scope, receive)
            return
        except Exception as error:  # here, since the framework's own answer to it is no problem+json
            answer = failed(scope, error)
        await send_answer(scope, send, answer)


@dataclass(frozen=True)
class Page:
    """A route's ASGI application for an answer that never changes."""

    answer: Answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_answer(scope, send, self.answer)


def build(rt: Runtime, door: Door) -> App:
    """The application of one process."""
    app = FastAPI(
        title=openapi.TITLE,
        version=openapi.VERSION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    described = openapi.document()
    app.openapi = lambda: described  # type: ignore[method-assign]
    authentication = Authentication(KeyRing(rt.pool, rt.clock), rt.clock, rt.settings.trusted_proxies)
    messages = Messages(rt, door)
    aside, at_the_door = Aside(), (messages.submit, messages.submit_batch)
    for method, path, scope_needed, handler in calls_of(rt, door, messages):
        served = handler if handler in at_the_door else aside(handler)
        app.add_route(path, Endpoint(authentication, scope_needed, served), methods=[method])  # type: ignore[arg-type]
    app.add_route("/openapi.json", Page(json_answer(200, described)), methods=["GET"])  # type: ignore[arg-type]
    app.add_route("/docs", Page(docs_page.answer(described)), methods=["GET"])  # type: ignore[arg-type]
    _give_problems(app)
    direct: dict[tuple[str, str], App] = {
        (method, route.path): route.app
        for route in app.routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if (method, route.path) in _HOT
    }
    return Front(app, direct=direct)


def calls_of(rt: Runtime, door: Door, messages: Messages) -> list[Call]:
    """Every call of a tenant: method, path, the scope that its key needs, handler."""
    applications = Applications(rt)
    calls: list[Call] = [
        ("POST", "/v1/messages", SEND, messages.submit),
        ("POST", "/v1/messages/batch", SEND, messages.submit_batch),
        ("GET", "/v1/messages", READ, messages.page),
        ("GET", "/v1/messages/{id}", READ, messages.one),
        ("POST", "/v1/messages/{id}/cancel", SEND, messages.cancel),
        ("GET", "/v1/messages/{id}/explain", READ, Explanations(rt).one),
        ("GET", "/v1/capacity", READ, Capacity(door.desk).get),
        ("GET", "/v1/applications", READ, applications.page),
        ("POST", "/v1/applications/{name:path}/pause", MANAGE, applications.pause),
        ("POST", "/v1/applications/{name:path}/resume", MANAGE, applications.resume),
        ("POST", "/v1/applications/{name:path}/cancel", MANAGE, applications.cancel),
    ]
    return calls + _tenant_calls(rt)


def _tenant_calls(rt: Runtime) -> list[Call]:
    """The calls besides messages: what handsets wrote, who may be written to, what was used."""
    inbox, imports, reader = Inbox(rt), Imports(rt), Reader()
    calls: list[Call] = [
        ("GET", "/v1/inbound", READ, inbox.page),
        ("GET", "/v1/inbound/{id}", READ, inbox.one),
        ("GET", "/v1/imports/{id}", READ, imports.one),
        ("GET", "/v1/usage", READ, Usage(rt).get),
    ]
    for path, table in (("/v1/opt-outs", OPT_OUTS), ("/v1/opt-ins", OPT_INS)):
        lists = OptLists(rt, table, reader)
        calls += [
            ("POST", f"{path}/import", MANAGE, lists.take_list),
            ("GET", f"{path}/{{number}}", READ, lists.get),
            ("PUT", f"{path}/{{number}}", MANAGE, lists.put),
            ("DELETE", f"{path}/{{number}}", MANAGE, lists.delete),
        ]
    return calls


def _give_problems(app: FastAPI) -> None:
    allowed: dict[str, set[str]] = {}
    for route in app.routes:
        if isinstance(route, Route):
            allowed.setdefault(route.path_regex.pattern, set()).update(route.methods or ())

    async def refuse(request: Request, error: Any) -> Response:
        if error.status_code == 405:
            matching = [
                route
                for route in app.routes
                if isinstance(route, Route) and route.path_regex.match(request.scope["path"])
            ]
            methods = sorted(set().union(*(allowed[route.path_regex.pattern] for route in matching)))
            answer = problem_answer(
                Problem("method_not_allowed", f"Here work: {', '.join(methods)}."),
                ((b"allow", ", ".join(methods).encode("ascii")),),
            )
        else:
            answer = problem_answer(NOT_FOUND)
        response = Response(answer.body, answer.status)
        response.raw_headers = [*answer.headers, (b"content-length", str(len(answer.body)).encode("ascii"))]
        response.raw_headers.append((b"x-request-id", request.scope["sluicegate.request_id"]))
        return response

    app.add_exception_handler(HTTPException, refuse)
