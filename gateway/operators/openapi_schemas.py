"""The JSON schemas of `/admin/*`."""

from __future__ import annotations

from typing import Final

from gateway.api.schemas import Schema, nullable, reference
from gateway.ledger.keys import TENANT_SCOPES

_STRING: Final[Schema] = {"type": "string"}
_INSTANT: Final[Schema] = {"type": "string", "format": "date-time"}
_WHOLE: Final[Schema] = {"type": "integer", "minimum": 0}
_BOOLEAN: Final[Schema] = {"type": "boolean"}
_NAMES: Final[Schema] = {"type": "array", "items": _STRING}
_ANYTHING: Final[Schema] = {"type": "object"}


def _object(**properties: Schema) -> Schema:
    """An object with these members at least; a name that Python keeps to itself stands with an underscore."""
    named = {name.rstrip("_"): schema for name, schema in properties.items()}
    return {"type": "object", "required": list(named), "properties": named}


def _wish(required: tuple[str, ...], **properties: Schema) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


_SUBMIT: Final = _object(
    slot=_WHOLE,
    provider=nullable(_STRING),
    session=nullable(_STRING),
    claimed_at=_INSTANT,
    written_at=nullable(_INSTANT),
    outcome=nullable(_STRING),
    outcome_at=nullable(_INSTANT),
    carrier_status=nullable(_STRING),
    parts={"type": "array", "items": _object(part=_WHOLE, carrier_id=_STRING)},
)


def _list(of: Schema) -> Schema:
    return _object(data={"type": "array", "items": of})


_PROCESS: Final = _object(
    id=_WHOLE,
    role=_STRING,
    worker=_STRING,
    pid=_WHOLE,
    host=_STRING,
    healthy=_BOOLEAN,
    policy_version=nullable(_WHOLE),
    policy_error=nullable(_STRING),
    started_at=_INSTANT,
    silent_ms=_WHOLE,
    not_ready=nullable(_STRING),
)
_SCOPE: Final = _object(kind=_STRING, name=_STRING)
_FAULT: Final = _object(line=nullable(_WHOLE), path=_STRING, message=_STRING)
_VERSION: Final = {"version": _WHOLE, "applied_at": _INSTANT, "applied_by": _STRING, "note": _STRING}

ADMIN_SCHEMAS: Final[dict[str, Schema]] = {
    "Anything": _ANYTHING,
    "DataList": _list(_ANYTHING),
    "Named": _list(_object(name=_STRING)),
    "Status": _object(
        at=_INSTANT,
        policy_version=_WHOLE,
        processes={"type": "array", "items": _PROCESS},
        classes=_ANYTHING,
        providers=_ANYTHING,
        sessions=_ANYTHING,
        routes=_ANYTHING,
        scopes={"type": "array", "items": _SCOPE},
    ),
    "Tenant": _object(id=_WHOLE, name=_STRING),
    "TenantList": _list(_object(id=_WHOLE, name=_STRING, created_at=_INSTANT, keys=_WHOLE)),
    "TenantWish": _wish(("name",), name=_STRING),
    "KeyList": _list(
        _object(
            id=_STRING,
            tenant=nullable(_STRING),
            scopes=_NAMES,
            cidrs=_NAMES,
            created_at=_INSTANT,
            expires_at=nullable(_INSTANT),
            revoked_at=nullable(_INSTANT),
            last_used_at=nullable(_INSTANT),
        )
    ),
    "KeyWish": _wish(
        (),
        tenant=nullable(_STRING | {"description": "Whose key; null for an operators' key."}),
        scopes={"type": "array", "items": {"enum": sorted(TENANT_SCOPES)}},
        cidrs=_NAMES,
        expires_at=nullable({"type": "integer", "description": "UTC milliseconds."}),
    ),
    "NewKey": _object(key=_STRING),
    "MessageByHand": {
        "type": "object",
        "description": "The tenant's name, and the fields of a message.",
        "required": ["tenant", "to", "text"],
        "properties": {"tenant": _STRING, "to": _STRING, "text": _STRING},
    },
    "AnyMessage": {
        "allOf": [
            reference("Message"),
            _object(tenant=_STRING, events={"type": "array"}, submits={"type": "array", "items": _SUBMIT}),
        ]
    },
    "BlockerList": _list(_object(class_=_STRING, scope=_SCOPE, waiting=_WHOLE, since_ms=_WHOLE)),
    "NumberExport": _object(
        number=_STRING,
        messages={"type": "array", "items": _ANYTHING},
        inbound={"type": "array", "items": _ANYTHING},
        lists={"type": "array", "items": _ANYTHING},
        complete=_BOOLEAN,
    ),
    "NumberErasure": _object(erased=_object(messages=_WHOLE, inbound=_WHOLE), open=_WHOLE, kept=_NAMES),
    "ConsoleLink": _object(path=_STRING),
    "ReplayWish": {"type": "object", "required": ["since"], "properties": {"since": _INSTANT}},
    "Replayed": _object(tenant=_STRING, replayed=_WHOLE),
    "PauseList": _list(
        _object(
            kind=_STRING, name=_STRING, tenant=nullable(_STRING), mode=_STRING, since=_INSTANT, by=nullable(_STRING)
        )
    ),
    "PauseNow": _object(kind=_STRING, name=_STRING, mode=nullable(_STRING)),
    "ApplicationNow": _object(tenant=_STRING, name=_STRING, paused=_BOOLEAN, counts=_ANYTHING),
    "PolicyVersion": _object(**_VERSION, source=_STRING, active=_BOOLEAN),
    "PolicyHistory": _list(_object(**_VERSION, state={"enum": ["active", "earlier", "candidate", "refused"]})),
    "PolicyCheck": _object(valid=_BOOLEAN, warnings={"type": "array", "items": _FAULT}),
    "PolicyDiff": _object(changes=_NAMES),
    "Applied": _object(version=_WHOLE),
}
