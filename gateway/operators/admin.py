"""`/admin/*`: what operators do, as JSON, with an operators' key (contract section 4)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.domain.ids import rfc3339
from gateway.ledger import keys, tenants
from gateway.operators import openapi
from gateway.operators.admin_callbacks import callback_routes
from gateway.operators.admin_messages import blockers, explain_message, message_by_id, send_by_hand
from gateway.operators.admin_numbers import erase_number, export_number
from gateway.operators.admin_pauses import pause_routes
from gateway.operators.admin_policy import policy_routes
from gateway.operators.answers import json, json_object, problem
from gateway.operators.desk import Desk
from gateway.operators.look import look

BODY_MAX = 1 << 20
Handler = Callable[[Desk, Request, str], Awaitable[Response]]


def admin_routes(desk: Desk) -> list[Route]:
    """The routes below `/admin`."""
    table: list[tuple[str, str, Handler]] = [
        ("GET", "/openapi.json", _described),
        ("GET", "/status", _status),
        ("GET", "/sessions", _section("sessions")),
        ("GET", "/routes", _section("routes")),
        ("GET", "/tenants", _tenants),
        ("POST", "/tenants", _create_tenant),
        ("GET", "/keys", _keys),
        ("POST", "/keys", _create_key),
        ("DELETE", "/keys/{id}", _revoke_key),
        ("POST", "/messages", send_by_hand),
        ("GET", "/messages/{id}", message_by_id),
        ("GET", "/messages/{id}/explain", explain_message),
        ("GET", "/blockers", blockers),
        ("GET", "/numbers/{number}", export_number),
        ("DELETE", "/numbers/{number}", erase_number),
        ("POST", "/console-links", _console_link),
        *policy_routes(),
        *callback_routes(),
        *pause_routes(),
    ]
    return [Route(path, guarded(desk, handler), methods=[method]) for method, path, handler in table]


def guarded(desk: Desk, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """A handler behind the operators' key, with a body that is bounded before it is read."""

    async def answer(request: Request) -> Response:
        actor = await desk.actor(request)
        if actor is None:
            return problem(401, "auth.required", "An operators' key is needed: Authorization: Bearer <key>")
        if await read_body(request) is None:
            return problem(413, "request.too_large", "The body is too large")
        return await handler(desk, request, actor)

    return answer


async def read_body(request: Request) -> bytes | None:
    """The body, kept in the request; None where it is over 1 MiB."""
    taken = bytearray()
    async for chunk in request.stream():
        taken += chunk
        if len(taken) > BODY_MAX:
            return None
    request.state.body = bytes(taken)
    return request.state.body  # type: ignore[no-any-return]


async def _described(_desk: Desk, _request: Request, _actor: str) -> Response:
    return json(openapi.document())


async def _status(desk: Desk, _request: Request, _actor: str) -> Response:
    rt = desk.rt
    return json(await look(rt.pool, rt.scheduler, rt.policies.current, rt.clock.now_at()))


def _section(name: str) -> Handler:
    async def answer(desk: Desk, _request: Request, _actor: str) -> Response:
        rt = desk.rt
        whole = await look(rt.pool, rt.scheduler, rt.policies.current, rt.clock.now_at())
        return json({"data": [{"name": key, **value} for key, value in whole[name].items()]})

    return answer


async def _tenants(desk: Desk, _request: Request, _actor: str) -> Response:
    async with desk.rt.pool.acquire() as conn:
        rows = await tenants.list_all(conn)
    return json({"data": [row | {"created_at": rfc3339(row["created_at"])} for row in rows]})


async def _create_tenant(desk: Desk, request: Request, actor: str) -> Response:
    wish = json_object(request)
    if wish is None or not isinstance(wish.get("name"), str):
        return problem(422, "request.invalid", 'The body is {"name": "..."}')
    try:
        async with desk.rt.pool.acquire() as conn:
            tenant_id = await tenants.create(conn, wish["name"], actor, desk.rt.clock.now_at())
    except tenants.TenantRefused as error:
        return problem(422, "request.invalid", str(error))
    return json({"id": tenant_id, "name": wish["name"]}, 201)


async def _keys(desk: Desk, _request: Request, _actor: str) -> Response:
    async with desk.rt.pool.acquire() as conn:
        rows = await keys.list_all(conn)
    return json({"data": [shown_key(dict(row)) for row in rows]})


def shown_key(row: dict[str, Any]) -> dict[str, Any]:
    """A key as operators see it: instants in RFC 3339, never a secret."""
    return {
        name: rfc3339(value) if name.endswith("_at") and value is not None else value for name, value in row.items()
    }


async def _create_key(desk: Desk, request: Request, actor: str) -> Response:
    asked = json_object(request)
    if asked is None or not _is_key_wish(asked):
        return problem(
            422,
            "request.invalid",
            'The body is {"tenant": name or null, "scopes": [], "cidrs": [], "expires_at": ms or null}',
        )
    wish = keys.KeyWish(
        asked.get("tenant"), asked.get("scopes") or (), asked.get("cidrs") or (), asked.get("expires_at")
    )
    try:
        async with desk.rt.pool.acquire() as conn:
            written = await keys.create(conn, wish, actor, desk.rt.clock.now_at())
    except keys.KeyRefused as error:
        return problem(422, "request.invalid", str(error))
    return json({"key": written}, 201)


def _is_key_wish(asked: dict[str, Any]) -> bool:
    """Whether every member is known and of its type."""
    tenant, expires_at = asked.get("tenant"), asked.get("expires_at")
    lists = [asked.get(name) or [] for name in ("scopes", "cidrs")]
    return (
        set(asked) <= {"tenant", "scopes", "cidrs", "expires_at"}
        and isinstance(tenant, str | None)
        and (expires_at is None or type(expires_at) is int)
        and all(isinstance(one, list) and all(isinstance(text, str) for text in one) for one in lists)
    )


async def _revoke_key(desk: Desk, request: Request, actor: str) -> Response:
    async with desk.rt.pool.acquire() as conn:
        done = await keys.revoke(conn, request.path_params["id"], actor, desk.rt.clock.now_at())
    return Response(status_code=204) if done else problem(404, "not_found", "There is no such key that is live")


async def _console_link(desk: Desk, _request: Request, actor: str) -> Response:
    return json({"path": f"/console/login?token={desk.links.issue(actor)}"}, 201)
