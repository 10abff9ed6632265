"""What handsets wrote, stop and consent lists, usage: their calls in the OpenAPI document, and what callbacks carry."""

from __future__ import annotations

from typing import Any, Final

from gateway.api.openapi_parts import BODY, gives, parameter, refuses
from gateway.api.schemas import Schema, nullable, reference
from gateway.api.usage import DAYS_MAX, STATUSES
from gateway.ledger.usage import GROUPS

_INSTANT: Final[Schema] = {"type": "string", "format": "date-time"}
_STRING: Final[Schema] = {"type": "string"}
_WHOLE: Final[Schema] = {"type": "integer", "minimum": 0}
_NUMBER: Final[Schema] = {
    "name": "number",
    "in": "path",
    "required": True,
    "description": "In E.164 form with `+`.",
    "schema": _STRING,
    "example": "+447700900123",
}
_ID: Final[Schema] = {"name": "id", "in": "path", "required": True, "schema": _STRING}
_SENDER: Final = parameter("sender", _STRING, "Only for this sender of yours; all of them when absent.")
_PAGE: Final = [
    parameter("limit", {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}, "How many."),
    parameter("cursor", _STRING, "`next_cursor` of the page before."),
]

_ENTRY_EXAMPLE: Final[dict[str, Any]] = {
    "number": "+447700900123",
    "sender": "60070",
    "source": "inbound",
    "created_at": "2030-01-31T09:00:00.000Z",
    "entries": [{"sender": "60070", "source": "inbound", "created_at": "2030-01-31T09:00:00.000Z"}],
}
_LISTED: Final[Schema] = {
    "sender": nullable(_STRING | {"description": "Which of your senders; null: all of them."}),
    "source": {"type": "string", "enum": ["inbound", "api", "import"]},
    "created_at": _INSTANT,
}
LIST_SCHEMAS: Final[dict[str, Schema]] = {
    "Inbound": {
        "type": "object",
        "required": ["id", "from", "to", "text", "received_at", "parts"],
        "properties": {
            "id": {"type": "string", "pattern": "^in_[0-9a-f]{32}$"},
            "from": _STRING | {"description": "The handset."},
            "to": _STRING | {"description": "Your number, as the policy writes it."},
            "text": nullable(_STRING | {"description": "Null once its retention is over."}),
            "received_at": _INSTANT,
            "parts": {"type": "integer", "minimum": 1, "description": "How many parts the handset sent."},
            "parts_received": {"type": "integer", "minimum": 1},
            "incomplete": {"type": "boolean", "description": "Parts did not come within the policy's `join_timeout`."},
            "keyword": nullable({"type": "string", "enum": ["stop", "start"]}),
        },
        "example": {
            "id": "in_0199f3a6c1d27c3e8a4b5c6d7e8f9a0b",
            "from": "+447700900123",
            "to": "60070",
            "text": "Is my order on its way?",
            "received_at": "2030-01-31T09:00:00.000Z",
            "parts": 1,
            "parts_received": 1,
            "incomplete": False,
            "keyword": None,
        },
    },
    "InboundPage": {
        "type": "object",
        "required": ["data", "next_cursor"],
        "properties": {"data": {"type": "array", "items": reference("Inbound")}, "next_cursor": nullable(_STRING)},
    },
    "ListEntry": {
        "type": "object",
        "description": "A number on a list. The members beside `entries` are those of its oldest entry.",
        "required": ["number", "sender", "source", "created_at", "entries"],
        "properties": {
            "number": _STRING,
            **_LISTED,
            "entries": {"type": "array", "items": {"type": "object", "properties": _LISTED}},
        },
        "example": _ENTRY_EXAMPLE,
    },
    "ListImport": {
        "type": "object",
        "required": ["id", "list", "status", "rows", "rows_done", "added", "faulty", "faults"],
        "properties": {
            "id": {"type": "string", "pattern": "^imp_[0-9a-f]{32}$"},
            "list": {"type": "string", "enum": ["opt_outs", "opt_ins"]},
            "status": {"type": "string", "enum": ["running", "done"]},
            "rows": _WHOLE,
            "rows_done": _WHOLE,
            "added": _WHOLE | {"description": "Entries that were not there before."},
            "faulty": _WHOLE,
            "faults": {
                "type": "array",
                "description": "The first 100.",
                "items": {"type": "object", "properties": {"line": _WHOLE, "message": _STRING}},
            },
            "created_at": _INSTANT,
            "finished_at": nullable(_INSTANT),
        },
    },
    "Usage": {
        "type": "object",
        "required": ["from", "to", "group_by", "data"],
        "properties": {
            "from": {"type": "string", "format": "date"},
            "to": {"type": "string", "format": "date"},
            "group_by": {"type": "array", "items": {"type": "string", "enum": list(GROUPS)}},
            "data": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["messages", "segments", "segments_by_status"],
                    "properties": {
                        "day": {"type": "string", "format": "date"},
                        "application": nullable(_STRING),
                        "class": _STRING,
                        "route": _STRING,
                        "messages": _WHOLE,
                        "segments": _WHOLE,
                        "segments_by_status": {
                            "type": "object",
                            "properties": {status: _WHOLE for status in STATUSES},
                        },
                    },
                },
            },
        },
    },
}


def list_paths() -> dict[str, Schema]:
    """Path -> operations."""
    return {
        "/v1/inbound": {"get": _inbound()},
        "/v1/inbound/{id}": {"get": _one_inbound()},
        **_list("/v1/opt-outs", "OptOut", "stop list", "A class with `consent: opt_out` or `opt_in` heeds it."),
        **_list("/v1/opt-ins", "OptIn", "consent list", "A class with `consent: opt_in` sends only to who is on it."),
        "/v1/imports/{id}": {"get": _import()},
        "/v1/usage": {"get": _usage()},
    }


def _inbound() -> Schema:
    return {
        "operationId": "listInbound",
        "summary": "List what handsets wrote to your numbers, newest first",
        "description": "Needs the scope `read`. Long messages are joined from their parts.",
        "parameters": [
            parameter("from", _STRING, "Only from this handset."),
            parameter("to", _STRING, "Only to this number of yours."),
            parameter("received_after", _INSTANT, "Only later ones."),
            parameter("received_before", _INSTANT, "Only earlier ones."),
            *_PAGE,
        ],
        "responses": {"200": gives("InboundPage", "A page.", {}), **refuses(("request.invalid",), {})},
    }


def _one_inbound() -> Schema:
    return {
        "operationId": "getInbound",
        "summary": "One message from a handset",
        "description": "Needs the scope `read`.",
        "parameters": [_ID],
        "responses": {"200": gives("Inbound", "The message.", {}), **refuses(("not_found",), {})},
    }


def _list(path: str, name: str, words: str, meaning: str) -> dict[str, Schema]:
    number = {"parameters": [_NUMBER, _SENDER]}
    return {
        f"{path}/{{number}}": {
            "get": {
                "operationId": f"get{name}",
                "summary": f"Whether a number is on the {words}",
                "description": f"Needs the scope `read`. {meaning}",
                **number,
                "responses": {
                    "200": gives("ListEntry", "It is.", {}),
                    **refuses(("not_found", "request.invalid"), {}),
                },
            },
            "put": {
                "operationId": f"put{name}",
                "summary": f"Put a number on the {words}",
                "description": "Needs the scope `manage`. Safe to repeat: an entry that stands keeps its date.",
                **number,
                "responses": {"200": gives("ListEntry", "It is on the list.", {}), **refuses(BODY, {})},
            },
            "delete": {
                "operationId": f"delete{name}",
                "summary": f"Take a number off the {words}",
                "description": "Needs the scope `manage`. Without `sender` every entry of the number goes.",
                **number,
                "responses": {"204": {"description": "It is not on the list."}, **refuses(("request.invalid",), {})},
            },
        },
        f"{path}/import": {
            "post": {
                "operationId": f"import{name}s",
                "summary": f"Put many numbers on the {words}",
                "description": "Needs the scope `manage`. CSV in UTF-8 of up to 5 MiB and 200,000 lines: a number on "
                "each line, and a sender behind it where the entry is for one; or a first line that names the columns "
                "`number` and `sender`. Up to 2,000 lines are done with the answer, more in the background.",
                "requestBody": {
                    "required": True,
                    "content": {
                        "text/csv": {
                            "schema": _STRING,
                            "example": "number,sender\n+447700900123,\n+447700900124,60070\n",
                        }
                    },
                },
                "responses": {
                    "202": gives("ListImport", "Kept; `Location` tells how far it is.", {}),
                    **refuses((*BODY, "quota.imports"), {}),
                },
            }
        },
    }


def _import() -> Schema:
    return {
        "operationId": "getImport",
        "summary": "How far an import is",
        "description": "Needs the scope `read`.",
        "parameters": [_ID],
        "responses": {"200": gives("ListImport", "Its progress.", {}), **refuses(("not_found",), {})},
    }


def _usage() -> Schema:
    day: Schema = {"type": "string", "format": "date"}
    answer = gives("Usage", "As JSON, or as CSV where `Accept: text/csv` says so.", {})
    answer["content"]["text/csv"] = {"schema": _STRING}
    return {
        "operationId": "getUsage",
        "summary": "Messages and segments by outcome",
        "description": "Needs the scope `read`. Counted from the ledger itself; a message counts on the UTC day of its "
        "creation, and one that is being submitted counts as `queued`.",
        "parameters": [
            parameter("from", day, f"First day; at most {DAYS_MAX} days with `to`. 30 days when absent."),
            parameter("to", day, "Last day; today when absent."),
            parameter("group_by", {"type": "string", "default": "day"}, f"Some of {', '.join(GROUPS)}, with commas."),
        ],
        "responses": {"200": answer, **refuses(("request.invalid",), {})},
    }
