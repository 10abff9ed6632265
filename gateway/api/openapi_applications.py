"""The calls on applications in the OpenAPI document."""

from __future__ import annotations

from typing import Final

from gateway.api.openapi_parts import gives, refuses
from gateway.api.schemas import Schema, nullable, reference
from gateway.domain import states

_NAME: Final[Schema] = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}

APPLICATION_SCHEMAS: Final[dict[str, Schema]] = {
    "Application": {
        "type": "object",
        "required": ["name", "paused", "paused_since", "counts"],
        "properties": {
            "name": {"type": "string"},
            "paused": {"type": "boolean", "description": "Its messages are accepted and held."},
            "paused_since": nullable({"type": "string", "format": "date-time"}),
            "counts": {
                "type": "object",
                "description": "Messages by status; a status that none has is left out.",
                "propertyNames": {"enum": sorted(states.ALL)},
                "additionalProperties": {"type": "integer"},
            },
            "canceled": {"type": "integer", "description": "How many this call canceled (only in its answer)."},
        },
    },
    "ApplicationList": {
        "type": "object",
        "required": ["data"],
        "properties": {"data": {"type": "array", "items": reference("Application")}},
    },
}


def application_paths() -> dict[str, Schema]:
    """Path -> operations."""
    return {
        "/v1/applications": {"get": _list()},
        "/v1/applications/{name}/pause": {
            "post": _act(
                "pauseApplication",
                "Hold an application",
                "Its messages are accepted and wait as `queued`. The pause does not count against `submit_by`; "
                "`expires_at` stands.",
            )
        },
        "/v1/applications/{name}/resume": {
            "post": _act(
                "resumeApplication",
                "Let a held application go on",
                "`submit_by` of what waits moves by the time that the pause took, never beyond `expires_at`.",
            )
        },
        "/v1/applications/{name}/cancel": {
            "post": _act(
                "cancelApplication",
                "Cancel all that waits of an application",
                "What is `queued` or `scheduled` now becomes `canceled`; what is being sent, or in doubt, goes on.",
            )
        },
    }


def _list() -> Schema:
    return {
        "operationId": "listApplications",
        "summary": "Applications with their messages by status",
        "description": "Needs the scope `read`.",
        "responses": {"200": gives("ApplicationList", "Every application.", {}), **refuses((), {})},
    }


def _act(operation: str, summary: str, text: str) -> Schema:
    return {
        "operationId": operation,
        "summary": summary,
        "description": f"Needs the scope `manage`. {text}",
        "parameters": [_NAME],
        "responses": {
            "200": gives("Application", "How it stands now.", {}),
            **refuses(("not_found",), {}),
        },
    }
