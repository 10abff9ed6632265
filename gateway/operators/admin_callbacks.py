"""`/admin/callbacks` and `/admin/inbound`: what endpoints are owed, what was given up, and texts that nobody owns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from starlette.requests import Request
from starlette.responses import Response

from gateway.admission import instants
from gateway.domain.ids import rfc3339
from gateway.ledger import give_up_list, inbound
from gateway.ledger.tenants import ids_by_name
from gateway.operators.answers import json, json_object, problem
from gateway.operators.desk import Desk

Handler = Callable[[Desk, Request, str], Awaitable[Response]]
SHOWN_MAX: Final = 500


def callback_routes() -> list[tuple[str, str, Handler]]:
    """Method, path and handler of each call."""
    return [
        ("GET", "/callbacks", _summary),
        ("POST", "/callbacks/{tenant}/replay", _replay),
        ("GET", "/inbound", _unowned),
    ]


async def _summary(desk: Desk, _request: Request, _actor: str) -> Response:
    """What each endpoint is owed and what was given up, the longest lines first."""
    async with desk.rt.pool.acquire() as conn:
        rows = await give_up_list.summary(conn, SHOWN_MAX)
    return json({"data": [_shown(row) | {"url": _bare(row["url"])} for row in rows]})


async def _replay(desk: Desk, request: Request, actor: str) -> Response:
    """Sends a tenant's callbacks again that were given up `since` an instant."""
    wish = json_object(request)
    since_at = instants.read(str(wish["since"])[:64]) if wish is not None and "since" in wish else None
    if since_at is None:
        return problem(422, "request.invalid", 'The body is {"since": "2030-01-31T09:00:00Z"}')
    tenant = request.path_params["tenant"]
    now_at = desk.rt.clock.now_at()
    async with desk.rt.pool.acquire() as conn:
        tenant_id = (await ids_by_name(conn, [tenant])).get(tenant)
        if tenant_id is None:
            return problem(404, "not_found", "There is no such tenant")
        replayed = await give_up_list.replay(conn, tenant_id, since_at, now_at, by=actor)
    return json({"tenant": tenant, "replayed": replayed})


async def _unowned(desk: Desk, _request: Request, _actor: str) -> Response:
    """Numbers that handsets wrote to and no tenant owns: name one in a tenant's `inbound_numbers` to hand them over."""
    async with desk.rt.pool.acquire() as conn:
        rows = await inbound.unowned_numbers(conn, SHOWN_MAX)
    return json({"data": [_shown(row) for row in rows]})


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: rfc3339(value) if name.endswith("_at") and value is not None else value for name, value in row.items()
    }


def _bare(url: str) -> str:
    """An address without its query, which may hold a token of the tenant's."""
    return urlunsplit(urlsplit(url)._replace(query="", fragment=""))
