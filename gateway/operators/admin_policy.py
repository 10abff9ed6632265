"""`/admin/policy`: read, check, compare, apply, go back (contract section 3)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from gateway.domain.ids import rfc3339
from gateway.operators.answers import json, problem
from gateway.operators.desk import Desk
from gateway.policy import versions
from gateway.policy.applier import PolicyRefused
from gateway.policy.rules.diff import describe
from gateway.policy.rules.faults import Fault, PolicyInvalid
from gateway.policy.rules.parse import read_policy
from gateway.policy.rules.warnings import warn
from gateway.policy.shown import hide, with_secrets

Handler = Callable[[Desk, Request, str], Awaitable[Response]]
YAML = "application/yaml"
_VERSION = "SELECT version, source, applied_at, applied_by, note FROM policy_versions WHERE version = $1"


def policy_routes() -> list[tuple[str, str, Handler]]:
    """Method, path and handler of each call."""
    return [
        ("GET", "/policy", _show),
        ("POST", "/policy", _apply),
        ("GET", "/policy/history", _history),
        ("POST", "/policy/check", _check),
        ("POST", "/policy/diff", _diff),
        ("POST", "/policy/rollback/{version:int}", _rollback),
    ]


async def _show(desk: Desk, request: Request, _actor: str) -> Response:
    asked = request.query_params.get("version")
    if asked is not None and not (asked.isascii() and asked.isdecimal() and len(asked) < 10):
        return problem(422, "request.invalid", "version is a whole number")
    async with desk.rt.pool.acquire() as conn:
        version = int(asked) if asked is not None else (await conn.fetchval("SELECT version FROM policy_active"))
        row = await conn.fetchrow(_VERSION, version)
    if row is None:
        return problem(404, "not_found", "There is no such version")
    source = await asyncio.to_thread(hide, row["source"], row["version"])
    if YAML in request.headers.get("accept", ""):
        return PlainTextResponse(source, media_type=YAML, headers={"X-Policy-Version": str(row["version"])})
    active = row["version"] == desk.rt.policies.current.version
    return json(dict(row) | {"source": source, "applied_at": rfc3339(row["applied_at"]), "active": active})


async def _history(desk: Desk, _request: Request, _actor: str) -> Response:
    async with desk.rt.pool.acquire() as conn:
        entered = await versions.history(conn)
    return json({"data": [shown_version(one) for one in entered]})


def shown_version(one: versions.Version) -> dict[str, Any]:
    """An entered version as JSON, without its text."""
    return {
        "version": one.version,
        "state": one.state,
        "applied_at": rfc3339(one.applied_at),
        "applied_by": one.applied_by,
        "note": one.note,
    }


async def _apply(desk: Desk, request: Request, actor: str) -> Response:
    source = await _source(desk, request)
    if source is None:
        return problem(415, "request.encoding", "Send the policy as UTF-8 with Content-Type: application/yaml")
    return await _applied(desk.rt.applier.apply(source, actor))


async def _rollback(desk: Desk, request: Request, actor: str) -> Response:
    return await _applied(desk.rt.applier.rollback(request.path_params["version"], actor))


async def _applied(work: Awaitable[int]) -> Response:
    try:
        version = await work
    except LookupError as error:
        return problem(404, "not_found", str(error))
    except PolicyInvalid as error:
        return invalid(error)
    except PolicyRefused as error:
        return problem(409, "policy.refused", str(error))
    return json({"version": version})


async def _check(desk: Desk, request: Request, _actor: str) -> Response:
    source = await _source(desk, request)
    if source is None:
        return problem(415, "request.encoding", "Send the policy as UTF-8 with Content-Type: application/yaml")
    try:
        policy = await asyncio.to_thread(read_policy, source)
    except PolicyInvalid as error:
        return invalid(error)
    return json({"valid": True, "warnings": [shown(fault) for fault in warn(policy)]})


async def _diff(desk: Desk, request: Request, _actor: str) -> Response:
    source = await _source(desk, request)
    if source is None:
        return problem(415, "request.encoding", "Send the policy as UTF-8 with Content-Type: application/yaml")
    try:
        policy = await asyncio.to_thread(read_policy, source)
    except PolicyInvalid as error:
        return invalid(error)
    return json({"changes": describe(desk.rt.policies.current, policy)})


def invalid(error: PolicyInvalid) -> Response:
    """The problem that names every fault with its line and path."""
    return problem(
        422,
        "policy.invalid",
        "The policy cannot be used; the one before stays",
        errors=[shown(fault) for fault in error.faults],
    )


def shown(fault: Fault) -> dict[str, Any]:
    """A fault or warning as JSON."""
    return {"line": fault.line, "path": fault.path, "message": fault.message}


async def _source(desk: Desk, request: Request) -> str | None:
    """The text that came, with the secrets that its marks stand for; None where it is no text of YAML."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (YAML, "application/x-yaml", "text/yaml"):
        return None
    try:
        text = bytes(request.state.body).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return await with_secrets(desk.rt.pool, text)
