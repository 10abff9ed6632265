"""`/admin/messages`: one message by hand, and the timeline of any message."""

from __future__ import annotations

import secrets
from typing import Any
from uuid import UUID

import asyncpg
import orjson
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.desk import TenantRef
from gateway.api.explanations import Explanations
from gateway.domain import ids
from gateway.domain.message import message_object, parts
from gateway.domain.message import timeline as events
from gateway.domain.submits import submits
from gateway.ledger import queries
from gateway.ledger.acceptance import CommitUnknown
from gateway.operators.answers import Withheld, json, json_object, problem
from gateway.operators.desk import Desk
from gateway.operators.look import shown_blockers


async def send_by_hand(desk: Desk, request: Request, _actor: str) -> Response:
    """Submits a message for a tenant through the same door as its own calls: `{"tenant": name, ...message fields}`.

    With `?dry_run=true` it only says what would happen and shows the parts.
    """
    dry_run = request.query_params.get("dry_run", "false").lower()
    if dry_run not in ("true", "false", "1", "0"):
        errors = [{"pointer": "/dry_run", "message": "must be true or false"}]
        return problem(422, "request.invalid", "dry_run is true or false", errors=errors)
    given = json_object(request)
    if given is None:
        return problem(400, "request.malformed", "The body is a JSON object")
    tenant = given.pop("tenant", None)
    if not isinstance(tenant, str):
        return problem(
            422,
            "request.invalid",
            "tenant names an account",
            errors=[{"pointer": "/tenant", "message": "must be a name"}],
        )
    tenant_id = await desk.rt.pool.fetchval("SELECT id FROM tenants WHERE name = $1", tenant)
    if tenant_id is None:
        return problem(
            422,
            "request.invalid",
            f"There is no tenant {tenant}",
            errors=[{"pointer": "/tenant", "message": f"there is no tenant {tenant}: create it first"}],
        )
    key = request.headers.get("idempotency-key") or f"by-hand-{secrets.token_hex(12)}"
    rehearsed = dry_run in ("true", "1")
    try:
        answer = await desk.door().submit(TenantRef(tenant_id, tenant), orjson.dumps(given), key, rehearsed)
    except CommitUnknown:
        return Withheld()
    return Response(
        answer.body,
        answer.status,
        headers={name.decode("latin-1"): value.decode("latin-1") for name, value in answer.headers},
    )


async def message_by_id(desk: Desk, request: Request, _actor: str) -> Response:
    """Any tenant's message with both state columns and its timeline."""
    message_id = ids.read(request.path_params["id"])
    if message_id is not None:
        async with desk.rt.pool.acquire() as conn:
            shown = await timeline(conn, message_id)
        if shown is not None:
            return json(shown)
    return problem(404, "not_found", "There is no such message")


async def explain_message(desk: Desk, request: Request, _actor: str) -> Response:
    """Why any tenant's message waits now, or why it ended."""
    message_id = ids.read(request.path_params["id"])
    told = None if message_id is None else await Explanations(desk.rt).told(None, message_id)
    return problem(404, "not_found", "There is no such message") if told is None else json(told)


async def blockers(desk: Desk, _request: Request, _actor: str) -> Response:
    """What holds most, by class: scopes with the work that waits for them and since when."""
    return json({"data": shown_blockers(await desk.rt.scheduler.blockers())})


async def timeline(conn: asyncpg.Connection[Any], message_id: UUID) -> dict[str, Any] | None:
    """A message as its tenant sees it, whose it is, and its submits to carriers; None where there is none."""
    owner = await conn.fetchrow(
        "SELECT t.id, t.name FROM messages m JOIN tenants t ON t.id = m.tenant_id WHERE m.day = $1 AND m.id = $2",
        ids.day_of(message_id),
        message_id,
    )
    found = await queries.find(conn, owner["id"], message_id) if owner is not None else None
    if owner is None or found is None:
        return None
    shown = message_object(found.row, sending=found.row["sending"])
    shown["tenant"] = owner["name"]
    if found.row["segments"] > 1:
        shown["parts"] = parts(found.row, found.accepted_parts, found.history)
    shown["events"] = events(found.row, found.history)
    shown["submits"] = submits(found.history, await queries.carrier_ids(conn, message_id))
    return shown
