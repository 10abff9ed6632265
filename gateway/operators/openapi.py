"""The OpenAPI document of `/admin/*`: every call with what it takes, gives and refuses."""

from __future__ import annotations

import re
from typing import Any, Final

from gateway.admission.problems import CODES as DOOR_CODES
from gateway.api.schemas import SCHEMAS, Schema, nullable, reference
from gateway.operators.openapi_schemas import ADMIN_SCHEMAS

_STRING: Final[Schema] = {"type": "string"}
_YAML: Final = "application/yaml"
_PROBLEM: Final = "application/problem+json"
_EVERYWHERE: Final = (400, 401, 408, 413, 415, 500, 503)
_TEXT: Final = {
    200: "Done.",
    201: "Made.",
    202: "Taken.",
    204: "Done; there is nothing to say.",
    400: "The body is no JSON object, or this is not HTTP",
    401: "No operators' key",
    404: "No such thing",
    408: "Too slow",
    409: "A live process cannot use the policy; the old one stays",
    413: "Over 1 MiB",
    415: "Compressed, or no YAML where YAML belongs",
    422: "A value cannot be used",
    429: "The tenant's own limit",
    500: "Our fault",
    503: "A store does not answer, too much at once, or the class cannot keep its promise",
}


def document() -> dict[str, Any]:
    """The whole document (OpenAPI 3.1)."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sluicegate, operators' port",
            "version": "1",
            "description": "What operators do. The key is one of `sluicegate key create --admin`.",
        },
        "security": [{"key": []}],
        "paths": {path: _with_path_parameters(path, calls) for path, calls in _paths().items()},
        "components": {
            "schemas": SCHEMAS | ADMIN_SCHEMAS | {"AdminProblem": _problem()},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _paths() -> dict[str, Schema]:
    paths: dict[str, Schema] = {
        "/admin/openapi.json": {"get": _call("This document", {200: "Anything"})},
        "/admin/status": {"get": _call("One look at everything", {200: "Status"})},
        "/admin/sessions": {"get": _call("SMPP sessions", {200: "Named"})},
        "/admin/routes": {"get": _call("Routes", {200: "Named"})},
        "/admin/tenants": {
            "get": _call("Accounts", {200: "TenantList"}),
            "post": _call("Make an account", {201: "Tenant"}, takes="TenantWish", refuses=(422,)),
        },
        "/admin/keys": {
            "get": _call("Keys, never their secrets", {200: "KeyList"}),
            "post": _call("Make a key; it is shown once", {201: "NewKey"}, takes="KeyWish", refuses=(422,)),
        },
        "/admin/keys/{id}": {
            "delete": _call("Revoke a key: it is dead everywhere within 5 s", {204: None}, refuses=(404, 422))
        },
        "/admin/messages": {"post": _send()},
        "/admin/messages/{id}": {
            "get": _call("Any tenant's message with its timeline", {200: "AnyMessage"}, refuses=(404,))
        },
        "/admin/messages/{id}/explain": {
            "get": _call("Why it waits, or why it ended", {200: "Anything"}, refuses=(404,))
        },
        "/admin/blockers": {"get": _call("What holds most, by class", {200: "BlockerList"})},
        "/admin/numbers/{number}": {
            "get": _call("All that is kept about a person's number", {200: "NumberExport"}, refuses=(404, 422)),
            "delete": _call(
                "Remove a person's number and texts; 202 while messages to it are open",
                {200: "NumberErasure", 202: "NumberErasure"},
                refuses=(404, 422),
            ),
        },
        "/admin/console-links": {"post": _call("A login link for the console; works once", {201: "ConsoleLink"})},
        "/admin/callbacks": {"get": _call("What endpoints are owed", {200: "DataList"})},
        "/admin/callbacks/{tenant}/replay": {
            "post": _call("Send again what was given up", {200: "Replayed"}, takes="ReplayWish", refuses=(404, 422))
        },
        "/admin/inbound": {"get": _call("Numbers that nobody owns and handsets wrote to", {200: "DataList"})},
        "/admin/pauses": {"get": _call("What is paused by hand", {200: "PauseList"})},
        "/admin/applications/{tenant}": {
            "get": _call("A tenant's applications", {200: "DataList"}, refuses=(404, 422))
        },
    }
    for action in ("pause", "resume", "cancel"):
        paths[f"/admin/applications/{{tenant}}/{{name}}/{action}"] = {
            "post": _call(f"{action.capitalize()} an application", {200: "ApplicationNow"}, refuses=(404, 422))
        }
    for section, actions in (
        ("routes", ("pause", "resume")),
        ("providers", ("pause", "resume")),
        ("sessions", ("pause", "drain", "resume")),
    ):
        for action in actions:
            paths[f"/admin/{section}/{{name}}/{action}"] = {
                "post": _call(f"{action.capitalize()} by hand", {200: "PauseNow"}, refuses=(404, 422))
            }
    return paths | _policy_paths()


def _policy_paths() -> dict[str, Schema]:
    show = _call("The policy in force, or an earlier version", {200: "PolicyVersion"}, refuses=(404, 422))
    show["parameters"] = [
        {"name": "version", "in": "query", "required": False, "schema": {"type": "integer", "minimum": 1}}
    ]
    show["responses"]["200"]["content"][_YAML] = {"schema": _STRING}
    rollback = _call(
        "Put an earlier version's text in force again, as a new version", {200: "Applied"}, refuses=(404, 409, 422)
    )
    rollback["parameters"] = [
        {"name": "version", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 0}}
    ]
    return {
        "/admin/policy": {
            "get": show,
            "post": _call("Put a policy in force everywhere", {200: "Applied"}, takes=_YAML, refuses=(409, 422)),
        },
        "/admin/policy/history": {"get": _call("Every version that was entered", {200: "PolicyHistory"})},
        "/admin/policy/check": {
            "post": _call("Every fault and warning of a policy", {200: "PolicyCheck"}, takes=_YAML, refuses=(422,))
        },
        "/admin/policy/diff": {
            "post": _call("What it would change, in words", {200: "PolicyDiff"}, takes=_YAML, refuses=(422,))
        },
        "/admin/policy/rollback/{version}": {"post": rollback},
    }


def _send() -> Schema:
    call = _call(
        "Send one message for a tenant through its own door",
        {202: "Message", 200: "DryRun"},
        takes="MessageByHand",
        refuses=(404, 409, 422, 429),
    )
    call["parameters"] = [
        {"name": "dry_run", "in": "query", "required": False, "schema": {"type": "boolean"}},
        {"name": "Idempotency-Key", "in": "header", "required": False, "schema": _STRING},
    ]
    return call


def _call(
    summary: str, gives: dict[int, str | None], *, takes: str | None = None, refuses: tuple[int, ...] = ()
) -> Schema:
    """One operation; `takes` is a schema, or the media type of YAML."""
    call: Schema = {"summary": summary, "responses": {}}
    if takes == _YAML:
        call["requestBody"] = {"required": True, "content": {_YAML: {"schema": _STRING}}}
    elif takes is not None:
        call["requestBody"] = {"required": True, "content": {"application/json": {"schema": reference(takes)}}}
    for status, name in gives.items():
        answer: Schema = {"description": _TEXT[status], "headers": _HEADERS}
        if name is not None:
            answer["content"] = {"application/json": {"schema": reference(name)}}
        call["responses"][str(status)] = answer
    for status in sorted({*_EVERYWHERE, *refuses}):
        call["responses"][str(status)] = {
            "description": _TEXT[status],
            "headers": _HEADERS,
            "content": {_PROBLEM: {"schema": reference("AdminProblem")}},
        }
    return call


def _with_path_parameters(path: str, calls: Schema) -> Schema:
    named = {one["name"] for call in calls.values() for one in call.get("parameters", ()) if one["in"] == "path"}
    missing = [name for name in re.findall(r"\{(\w+)\}", path) if name not in named]
    if not missing:
        return calls
    return {"parameters": [{"name": n, "in": "path", "required": True, "schema": _STRING} for n in missing], **calls}


def _problem() -> Schema:
    return {
        "type": "object",
        "required": ["type", "title", "status", "code"],
        "properties": {
            "type": _STRING,
            "title": _STRING,
            "status": {"type": "integer"},
            "code": {"enum": sorted({*DOOR_CODES, "policy.invalid", "policy.refused", "request.host"})},
            "detail": _STRING,
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["message"],
                    "properties": {
                        "message": _STRING,
                        "pointer": _STRING,
                        "line": nullable({"type": "integer"}),
                        "path": _STRING,
                    },
                },
            },
        },
    }


_HEADERS: Final[Schema] = {
    "X-Request-Id": {"description": "Names this request in the logs.", "required": True, "schema": _STRING}
}
