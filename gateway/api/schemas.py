"""The JSON schemas of the tenant port, as they stand in its OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

from gateway.admission import batch, fields
from gateway.admission.problems import CODES
from gateway.domain import states
from smpp.text.forms import NATIONAL_SHIFTS

Schema = dict[str, Any]


def nullable(schema: Schema) -> Schema:
    """The schema, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def reference(name: str) -> Schema:
    """A reference to a named schema."""
    return {"$ref": f"#/components/schemas/{name}"}


_INSTANT: Final[Schema] = {"type": "string", "format": "date-time", "examples": ["2030-01-31T09:00:00.000Z"]}
_CLASS: Final[Schema] = {"type": "string", "enum": list(fields.CLASSES)}
_STRING: Final[Schema] = {"type": "string"}
_WHOLE: Final[Schema] = {"type": "integer", "minimum": 0}

_FIELDS: Final[Schema] = {
    "to": {
        "type": "string",
        "maxLength": fields.TO_MAX,
        "description": "The recipient in E.164 form with `+`; spaces, dots, brackets and hyphens are dropped.",
        "examples": ["+393331234567"],
    },
    "from": nullable(
        {
            "type": "string",
            "description": "A name of up to 11 letters, digits, space, `-`, `_`, `.`, `&`; a short code; or a number. "
            "The tenant's default when absent.",
            "examples": ["ACME"],
        }
    ),
    "text": {
        "type": "string",
        "minLength": 1,
        "description": "The text; not blank, no control characters but line and form feeds and carriage returns.",
    },
    "class": nullable(_CLASS | {"description": "The class of traffic; the tenant's default when absent."}),
    "ttl": nullable(
        {
            "type": "integer",
            "minimum": 1,
            "maximum": fields.TTL_S_MAX,
            "description": "For how many seconds the message is useful. Excludes `expires_at`.",
        }
    ),
    "expires_at": nullable(_INSTANT | {"description": "Until when the message is useful. Excludes `ttl`."}),
    "send_at": nullable(
        _INSTANT | {"description": "Not before this moment, up to 35 days ahead; one in the past means now."}
    ),
    "application": nullable(
        {
            "type": "string",
            "minLength": 1,
            "maxLength": fields.NAME_MAX,
            "description": "Campaign or app inside the tenant.",
        }
    ),
    "client_ref": nullable(
        {
            "type": "string",
            "minLength": 1,
            "maxLength": fields.CLIENT_REF_MAX,
            "description": "A reference of your own.",
        }
    ),
    "metadata": nullable(
        {
            "type": "object",
            "maxProperties": fields.METADATA_MAX,
            "description": "Echoed.",
            "additionalProperties": {"type": "string", "maxLength": fields.METADATA_VALUE_MAX},
        }
    ),
    "callback_url": nullable(
        {
            "type": "string",
            "format": "uri",
            "maxLength": fields.URL_MAX,
            "description": "Where the events of this message go.",
        }
    ),
    "encoding": nullable({"type": "string", "enum": list(fields.ENCODINGS), "default": "auto"}),
    "transliterate": nullable(
        {
            "type": "boolean",
            "default": False,
            "description": "Whether letters may be replaced by similar ones of the GSM alphabet.",
        }
    ),
    "max_segments": nullable(
        {"type": "integer", "minimum": 1, "maximum": fields.SEGMENTS_MAX, "default": fields.SEGMENTS_DEFAULT}
    ),
    "tlvs": nullable(
        {
            "type": "object",
            "maxProperties": fields.TLVS_MAX,
            "description": "Optional parameters of the carrier that the policy allows.",
            "additionalProperties": {
                "anyOf": [_STRING | {"maxLength": fields.TLV_VALUE_MAX}, {"type": "integer", "minimum": 0}]
            },
        }
    ),
}

_DELIVERY: Final[Schema] = {
    "type": "object",
    "description": "The carrier's word.",
    "properties": {
        "state": {
            "type": "string",
            "enum": [
                "enroute",
                "accepted",
                "delivered",
                "undeliverable",
                "expired",
                "deleted",
                "rejected",
                "unknown",
                "skipped",
            ],
        },
        "provider": _STRING,
        "error_code": nullable(_STRING),
        "done_at": nullable(_INSTANT),
        "received_at": _INSTANT,
        "conflict": {"type": "boolean"},
    },
}
_MESSAGE_FIELDS: Final[Schema] = {
    "id": {"type": "string", "pattern": "^msg_[0-9a-f]{32}$"},
    "status": {"type": "string", "enum": sorted(states.ALL)},
    "final": {"type": "boolean"},
    "origin": {"type": "string", "enum": ["gateway", "carrier"], "description": "Whose word the status is."},
    "class": _CLASS,
    "to": _STRING,
    "from": _STRING,
    "segments": {"type": "integer", "minimum": 1, "maximum": 255},
    "encoding": _STRING,
    "created_at": _INSTANT,
    "submit_by": _INSTANT | {"description": "The first submit begins by then or never."},
    "expires_at": _INSTANT | {"description": "No submit begins after it."},
    "not_before": nullable(_INSTANT),
    "route": _STRING,
    "predicted_wait_ms": _WHOLE,
    "application": nullable(_STRING),
    "client_ref": nullable(_STRING),
    "metadata": {"type": "object", "additionalProperties": _STRING},
    "policy_version": _WHOLE,
    "delivery": nullable(reference("Delivery")),
    "expiry": nullable(
        {
            "type": "object",
            "properties": {
                "at": _INSTANT,
                "cause": {"type": "string", "enum": ["wait_budget", "ttl", "send_window"]},
                "stage": {"type": "string", "enum": ["queued", "retry", "scheduled"]},
            },
        }
    ),
    "error": nullable(
        {
            "type": "object",
            "properties": {"code": _STRING, "permanent": {"type": "boolean"}, "carrier_status": nullable(_STRING)},
        }
    ),
    "possible_duplicate": {"type": "boolean"},
}
_EVENT: Final[Schema] = {
    "type": "object",
    "properties": {
        "seq": {"type": "integer", "minimum": 1},
        "at": _INSTANT,
        "type": {
            "type": "string",
            "enum": [
                "accepted",
                "deferred",
                "released",
                "claimed",
                "submitted",
                "refused",
                "unconfirmed",
                "resent",
                "receipt",
                "corrected",
                "expired",
                "canceled",
                "suppressed",
                "failed",
            ],
        },
        "cause": nullable(_STRING),
    },
}
_PART: Final[Schema] = {
    "type": "object",
    "properties": {
        "part": {"type": "integer", "minimum": 1},
        "status": {"type": "string", "enum": ["waiting", "unconfirmed", "sent", "delivered", "undelivered"]},
        "delivery": nullable(reference("Delivery")),
    },
}

SCHEMAS: Final[dict[str, Schema]] = {
    "MessageRequest": {
        "type": "object",
        "additionalProperties": False,
        "required": ["to", "text"],
        "properties": _FIELDS,
    },
    "BatchRequest": {
        "type": "object",
        "additionalProperties": False,
        "required": ["messages"],
        "properties": {
            "defaults": nullable(
                {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": _FIELDS,
                    "description": "Fields for every message that does not give them itself.",
                }
            ),
            "messages": {
                "type": "array",
                "minItems": 1,
                "maxItems": batch.MESSAGES_MAX,
                "items": {"type": "object", "additionalProperties": False, "properties": _FIELDS},
            },
        },
    },
    "Delivery": _DELIVERY,
    "Message": {"type": "object", "required": list(_MESSAGE_FIELDS), "properties": _MESSAGE_FIELDS},
    "MessageWithHistory": {
        "allOf": [
            reference("Message"),
            {
                "type": "object",
                "required": ["parts", "events"],
                "properties": {
                    "parts": {"type": "array", "items": _PART, "description": "Empty where the message is not parted."},
                    "events": {"type": "array", "items": _EVENT, "description": "What happened, oldest first."},
                },
            },
        ]
    },
    "MessagePage": {
        "type": "object",
        "required": ["data", "next_cursor"],
        "properties": {"data": {"type": "array", "items": reference("Message")}, "next_cursor": nullable(_STRING)},
    },
    "BatchAnswer": {
        "type": "object",
        "required": ["results"],
        "properties": {
            "results": {
                "type": "array",
                "description": "One result per message, in the order of the call.",
                "items": {
                    "type": "object",
                    "required": ["status"],
                    "properties": {
                        "status": {"type": "integer"},
                        "message": reference("Message"),
                        "problem": reference("Problem"),
                    },
                },
            }
        },
    },
    "DryRun": {
        "type": "object",
        "required": ["verdict", "segments", "encoding", "route", "predicted_wait_ms"],
        "properties": {
            "verdict": {"type": "string", "enum": ["accept", "defer", "refuse", "slow_down"]},
            "status": nullable({"type": "string", "enum": [states.QUEUED, states.SCHEDULED]}),
            "class": _CLASS,
            "to": _STRING,
            "from": _STRING,
            "segments": _WHOLE,
            "encoding": _STRING,
            "national_shift": {"type": "string", "enum": list(NATIONAL_SHIFTS)},
            "parts": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["number", "text", "units"],
                    "properties": {"number": _WHOLE, "text": _STRING, "units": _WHOLE},
                },
            },
            "route": _STRING,
            "predicted_wait_ms": _WHOLE,
            "queue_age_ms": _WHOLE,
            "not_before": nullable(_INSTANT),
            "submit_by": _INSTANT,
            "expires_at": _INSTANT,
            "problem": reference("Problem"),
        },
    },
    "Problem": {
        "type": "object",
        "description": "RFC 9457. `code` is stable; capacity and quota problems carry further members.",
        "required": ["type", "title", "status", "code"],
        "properties": {
            "type": _STRING,
            "title": _STRING,
            "status": {"type": "integer"},
            "detail": _STRING,
            "code": {"type": "string", "enum": sorted(CODES)},
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["pointer", "message"],
                    "properties": {
                        "pointer": _STRING | {"description": "JSON Pointer (RFC 6901)."},
                        "message": _STRING,
                    },
                },
            },
            "retry_after_s": _WHOLE,
            "class": _STRING,
            "scope": {"type": "object", "properties": {"kind": _STRING, "name": _STRING}},
            "cause": {"type": "string", "enum": ["wait", "age", "paused"]},
            "queue_age_ms": _WHOLE,
            "predicted_wait_ms": _WHOLE,
            "wait_budget_ms": _WHOLE,
            "door_limit_ms": _WHOLE,
            "results": {"type": "array", "items": {"type": "object"}},
        },
    },
}
