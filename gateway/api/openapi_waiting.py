"""The calls that tell why and how long, in the OpenAPI document: explain, capacity."""

from __future__ import annotations

from typing import Final

from gateway.api.openapi_parts import gives, refuses
from gateway.api.schemas import Schema, nullable
from gateway.domain import states

_ID: Final[Schema] = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
_INSTANT: Final[Schema] = {"type": "string", "format": "date-time"}
_MS: Final[Schema] = {"type": "integer", "description": "Milliseconds."}
_SCOPE: Final[Schema] = {
    "type": "object",
    "required": ["kind", "name"],
    "properties": {"kind": {"type": "string"}, "name": {"type": "string"}},
}
_WAITING_FOR: Final[Schema] = {
    "type": "object",
    "required": ["scope", "name", "tokens_missing"],
    "properties": {
        "scope": {
            "type": "string",
            "description": "A limit (`tenant application sender destination number route provider session`), or "
            "`window`, `session_down`, `paused` (with `kind`), `retry`, `not_before`, `fairness`, `answer`, "
            "`confirmation`, `receipt`.",
        },
        "name": nullable({"type": "string"}),
        "kind": {"type": "string", "description": "What is paused."},
        "tokens_missing": nullable({"type": "number", "description": "Segments that the limit lacks for it."}),
    },
}
_ENDED: Final[Schema] = {
    "type": "object",
    "required": ["at", "origin", "code", "reason"],
    "properties": {
        "at": nullable(_INSTANT),
        "origin": {"enum": ["gateway", "carrier"]},
        "code": nullable({"type": "string"}),
        "reason": {"type": "string"},
    },
}
WAITING_SCHEMAS: Final[dict[str, Schema]] = {
    "Explanation": {
        "type": "object",
        "required": ["id", "status", "final", "waiting_for", "position", "predicted_start", "submit_by", "expires_at"],
        "properties": {
            "id": {"type": "string"},
            "status": {"enum": sorted(states.ALL)},
            "final": {"type": "boolean"},
            "waiting_for": nullable(_WAITING_FOR),
            "position": nullable({"type": "integer", "description": "Among what shares its limits, from 1."}),
            "predicted_start": nullable(_INSTANT),
            "submit_by": _INSTANT,
            "expires_at": _INSTANT,
            "will_expire": {"type": "boolean", "description": "Before its predicted start, as things stand."},
            "looked_at_again": nullable(_INSTANT | {"description": "Deferred for a pause that has no known end."}),
            "since": nullable(_INSTANT),
            "until": nullable(_INSTANT),
            "ended": nullable(_ENDED),
        },
    },
    "Capacity": {
        "type": "object",
        "required": ["data", "requests", "policy_version"],
        "properties": {
            "data": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "class": {"type": "string"},
                        "route": {"type": "string"},
                        "provider": {"type": "string"},
                        "verdict": {"enum": ["accept", "defer", "refuse", "slow_down"]},
                        "queue_age_ms": _MS,
                        "predicted_wait_ms": _MS,
                        "wait_budget_ms": _MS,
                        "door_limit_ms": _MS,
                        "scope": nullable(_SCOPE),
                        "cause": nullable({"type": "string"}),
                        "retry_after_s": nullable({"type": "integer"}),
                    },
                },
            },
            "requests": {
                "type": "object",
                "description": "The door rate: messages per second over all keys, and how many may come now.",
                "properties": {
                    "rate_per_s": {"type": "number"},
                    "burst": {"type": "integer"},
                    "remaining": {"type": "integer"},
                },
            },
            "policy_version": {"type": "integer"},
        },
    },
}


def waiting_paths() -> dict[str, Schema]:
    """Path -> operations."""
    return {
        "/v1/messages/{id}/explain": {
            "get": {
                "operationId": "explainMessage",
                "summary": "Why a message waits now, or why it ended",
                "description": "Needs the scope `read`.",
                "parameters": [_ID],
                "responses": {"200": gives("Explanation", "The reason.", {}), **refuses(("not_found",), {})},
            }
        },
        "/v1/capacity": {
            "get": {
                "operationId": "getCapacity",
                "summary": "What a message of this tenant would hear now, by class and route",
                "description": "Needs the scope `read`. Nothing is kept and no place in a line is taken.",
                "responses": {"200": gives("Capacity", "One row per class and route.", {}), **refuses((), {})},
            }
        },
    }
