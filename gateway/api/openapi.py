"""The OpenAPI document of the tenant port: every route that exists, with what it takes, gives and refuses."""

from __future__ import annotations

from typing import Any, Final

from gateway.admission.fields import CLASSES
from gateway.api.openapi_applications import APPLICATION_SCHEMAS, application_paths
from gateway.api.openapi_lists import LIST_SCHEMAS, list_paths
from gateway.api.openapi_parts import BODY, LOCATION, gives, parameter, refuses, takes
from gateway.api.openapi_waiting import WAITING_SCHEMAS, waiting_paths
from gateway.api.schemas import SCHEMAS, Schema
from gateway.domain import states

TITLE: Final = "Sluicegate"
VERSION: Final = "1"

_SEND: Final = (
    *BODY,
    "idempotency.missing",
    "idempotency.malformed",
    "idempotency.conflict",
    "idempotency.in_progress",
    "quota.rate",
    "quota.daily",
    "quota.backlog",
    "capacity.class_budget_exceeded",
    "capacity.infeasible_deadline",
    "route.none",
    "policy.max_segments",
    "policy.destination",
    "policy.sender",
    "policy.class",
    "policy.content",
    "policy.ttl",
    "policy.tlvs",
    "policy.opted_out",
    "policy.no_consent",
)
_RATE: Final[Schema] = {
    "RateLimit-Policy": {
        "description": "The tenant's door rate (IETF draft): quota and window.",
        "schema": {"type": "string"},
    },
    "RateLimit": {"description": "What is left of it.", "schema": {"type": "string"}},
}
_REPLAYED: Final[Schema] = {"description": "`true` where this is the first answer again.", "schema": {"type": "string"}}


def document() -> dict[str, Any]:
    """The whole document (OpenAPI 3.1)."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": TITLE,
            "version": VERSION,
            "description": "Sends text messages through carriers, and says no in time. A 202 means that the message is "
            "durable, not that it was sent. Two texts to one handset may overtake each other.",
        },
        "security": [{"key": []}],
        "paths": {
            "/v1/messages": {"post": _submit(), "get": _list()},
            "/v1/messages/batch": {"post": _batch()},
            "/v1/messages/{id}": {"get": _one()},
            "/v1/messages/{id}/cancel": {"post": _cancel()},
            **waiting_paths(),
            **application_paths(),
            **list_paths(),
        },
        "components": {
            "schemas": SCHEMAS | WAITING_SCHEMAS | APPLICATION_SCHEMAS | LIST_SCHEMAS,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key: sg_..."}},
        },
    }


def _submit() -> Schema:
    dry_run = parameter(
        "dry_run", {"type": "boolean"}, "Only say what a real call would get; nothing is kept and no key is needed."
    )
    return {
        "operationId": "submitMessage",
        "summary": "Submit one message",
        "description": "Needs the scope `send`. Repeat it with the same key after a failure: it is taken once.",
        "parameters": [_KEY, dry_run],
        "requestBody": takes("MessageRequest"),
        "responses": {
            "202": gives(
                "Message",
                "Durable. It waits for its turn or for its time.",
                _RATE | {"Location": LOCATION, "Idempotent-Replayed": _REPLAYED},
            ),
            "200": gives("DryRun", "What a real call would get (dry run only).", _RATE),
            **refuses(_SEND, _RATE),
        },
    }


def _batch() -> Schema:
    return {
        "operationId": "submitBatch",
        "summary": "Submit up to 1,000 messages under one key",
        "description": "Needs the scope `send`. Answered 202 when at least one was accepted; a refused one can be sent "
        "again in a call with a new key.",
        "parameters": [_KEY],
        "requestBody": takes("BatchRequest"),
        "responses": {
            "202": gives("BatchAnswer", "At least one is durable.", _RATE | {"Idempotent-Replayed": _REPLAYED}),
            **refuses((*_SEND, "batch.refused"), _RATE),
        },
    }


def _list() -> Schema:
    instant = {"type": "string", "format": "date-time"}
    return {
        "operationId": "listMessages",
        "summary": "List messages, newest first",
        "description": "Needs the scope `read`.",
        "parameters": [
            parameter("status", {"type": "string", "enum": sorted(states.ALL)}, "Only these."),
            parameter("class", {"type": "string", "enum": list(CLASSES)}, "Only these."),
            parameter("to", {"type": "string"}, "Only to this number."),
            parameter("client_ref", {"type": "string"}, "Only with this reference."),
            parameter("created_after", instant, "Only later ones."),
            parameter("created_before", instant, "Only earlier ones."),
            parameter("limit", {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}, "How many."),
            parameter("cursor", {"type": "string"}, "`next_cursor` of the page before."),
        ],
        "responses": {"200": gives("MessagePage", "A page.", {}), **refuses(("request.invalid",), {})},
    }


def _one() -> Schema:
    return {
        "operationId": "getMessage",
        "summary": "One message with its parts and its timeline",
        "description": "Needs the scope `read`.",
        "parameters": [_ID],
        "responses": {"200": gives("MessageWithHistory", "The message.", {}), **refuses(("not_found",), {})},
    }


def _cancel() -> Schema:
    return {
        "operationId": "cancelMessage",
        "summary": "Cancel a message that waits",
        "description": "Needs the scope `send`. Works while the message is `queued` or `scheduled` and nothing of it "
        "is in doubt.",
        "parameters": [_ID],
        "responses": {
            "200": gives("MessageWithHistory", "Canceled: it will never be submitted.", {}),
            **refuses(("not_found", "message.not_cancelable"), {}),
        },
    }


_KEY: Final[Schema] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "One of your own per message, 1 to 255 of A-Z a-z 0-9 _ : . -; required but for a dry run.",
    "schema": {"type": "string", "pattern": '^("[A-Za-z0-9_:.-]{1,255}"|[A-Za-z0-9_:.-]{1,255})$'},
}
_ID: Final[Schema] = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
