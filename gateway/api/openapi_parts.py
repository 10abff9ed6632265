"""The pieces of which the calls of the OpenAPI document are made."""

from __future__ import annotations

from typing import Final

from gateway.admission.problems import CODES, MEDIA_TYPE
from gateway.api.schemas import Schema, reference

_EVERYWHERE: Final = (
    "auth.required",
    "auth.scope",
    "capacity.storage",
    "capacity.overload",
    "request.timeout",
    "internal",
)
BODY: Final = ("request.malformed", "request.invalid", "request.too_large", "request.encoding")
_HEADERS: Final[Schema] = {
    "X-Request-Id": {"description": "Names this request in the logs.", "schema": {"type": "string"}},
}
LOCATION: Final[Schema] = {"description": "Where the message is.", "schema": {"type": "string"}}
_RETRY_AFTER: Final[Schema] = {
    "description": "Whole seconds to wait before repeating.",
    "schema": {"type": "integer", "minimum": 1},
}
_STATUS_TEXT: Final = {
    400: "Malformed",
    401: "No valid key",
    403: "The key does not allow this",
    404: "No such object",
    408: "Too slow",
    409: "Conflict",
    413: "Too large",
    415: "Compressed",
    422: "Refused for good",
    429: "Slow down",
    500: "Our fault",
    503: "Not now; repeat with the same Idempotency-Key",
}


def parameter(name: str, schema: Schema, text: str) -> Schema:
    """A parameter of the query."""
    return {"name": name, "in": "query", "required": False, "description": text, "schema": schema}


def takes(name: str) -> Schema:
    """A JSON body."""
    return {"required": True, "content": {"application/json": {"schema": reference(name)}}}


def gives(name: str, text: str, headers: Schema) -> Schema:
    """A JSON answer."""
    return {
        "description": text,
        "headers": _HEADERS | headers,
        "content": {"application/json": {"schema": reference(name)}},
    }


def refuses(codes: tuple[str, ...], headers: Schema) -> Schema:
    """The problems of a call by status, with those that every call may get."""
    by_status: dict[int, list[str]] = {}
    for code in (*codes, *_EVERYWHERE):
        by_status.setdefault(CODES[code][0], []).append(code)
    return {
        str(status): {
            "description": f"{_STATUS_TEXT[status]}: {', '.join(f'`{code}`' for code in named)}",
            "headers": _HEADERS | headers | ({"Retry-After": _RETRY_AFTER} if status in (429, 503) else {}),
            "content": {MEDIA_TYPE: {"schema": reference("Problem")}},
        }
        for status, named in sorted(by_status.items())
    }
