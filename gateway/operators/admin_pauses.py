"""`/admin/...`: what operators hold by hand and let go on: routes, providers, sessions, applications."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from gateway.admission.problems import Problem
from gateway.api.applications import ACTIONS, Applications
from gateway.api.desk import TenantRef
from gateway.domain.ids import rfc3339
from gateway.ledger import pauses
from gateway.ledger.pauses import PROVIDER, ROUTE, SESSION, Place
from gateway.operators import holding
from gateway.operators.answers import json, problem
from gateway.operators.desk import Desk

Handler = Callable[[Desk, Request, str], Awaitable[Response]]
_SECTIONS: Final = {ROUTE: "routes", PROVIDER: "providers", SESSION: "sessions"}


def pause_routes() -> list[tuple[str, str, Handler]]:
    """Method, path and handler of each call."""
    table: list[tuple[str, str, Handler]] = [
        ("GET", "/pauses", _list),
        ("GET", "/applications/{tenant}", _applications),
    ]
    for kind, section in _SECTIONS.items():
        table += [("POST", f"/{section}/{{name}}/{mode}", _pause(kind, mode)) for mode in holding.modes(kind)]
        table.append(("POST", f"/{section}/{{name}}/resume", _resume(kind)))
    table += [("POST", f"/applications/{{tenant}}/{{name:path}}/{action}", _application(action)) for action in ACTIONS]
    return table


def shown_pause(one: pauses.Pause) -> dict[str, Any]:
    """A pause as JSON."""
    return {
        "kind": one.place.kind,
        "name": one.place.name,
        "tenant": one.place.tenant,
        "mode": one.mode,
        "since": rfc3339(one.since_at),
        "by": one.paused_by,
    }


async def _list(desk: Desk, _request: Request, _actor: str) -> Response:
    async with desk.rt.pool.acquire() as conn:
        standing = await pauses.list_pauses(conn)
    return json({"data": [shown_pause(one) for one in standing]})


def _pause(kind: str, mode: str) -> Handler:
    async def answer(desk: Desk, request: Request, actor: str) -> Response:
        place = Place(kind, request.path_params["name"])
        if not await holding.hold(desk.rt, place, mode, actor):
            return problem(404, "not_found", f"The policy has no {kind} of this name")
        return json({"kind": kind, "name": place.name, "mode": mode})

    return answer


def _resume(kind: str) -> Handler:
    async def answer(desk: Desk, request: Request, actor: str) -> Response:
        place = Place(kind, request.path_params["name"])
        if not await holding.let_go(desk.rt, place, actor):
            return problem(404, "not_found", f"No {kind} of this name is paused, and the policy has none")
        return json({"kind": kind, "name": place.name, "mode": None})

    return answer


def _application(action: str) -> Handler:
    async def answer(desk: Desk, request: Request, actor: str) -> Response:
        tenant = await _tenant(desk, request)
        if tenant is None:
            return problem(404, "not_found", "There is no such tenant")
        outcome = await Applications(desk.rt).act(tenant, request.path_params["name"], action, actor)
        if isinstance(outcome, Problem):
            return problem(404, "not_found", "The tenant has no application of this name")
        return json({"tenant": tenant.name, **outcome})

    return answer


async def _applications(desk: Desk, request: Request, _actor: str) -> Response:
    tenant = await _tenant(desk, request)
    if tenant is None:
        return problem(404, "not_found", "There is no such tenant")
    async with desk.rt.pool.acquire() as conn:
        return json({"data": await Applications(desk.rt).listed(conn, tenant)})


async def _tenant(desk: Desk, request: Request) -> TenantRef | None:
    name = request.path_params["tenant"]
    tenant_id = await desk.rt.pool.fetchval("SELECT id FROM tenants WHERE name = $1", name)
    return None if tenant_id is None else TenantRef(tenant_id, name)
