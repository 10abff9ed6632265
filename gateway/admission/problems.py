"""Every refusal of the door as data: RFC 9457 problems with a stable dotted code (contract section 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final

import orjson

from gateway.admission.fields import FieldFault
from scheduler.core.values import valueclass

MEDIA_TYPE: Final = "application/problem+json"
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

# code -> (HTTP status, title). A code that is not here does not exist.
CODES: Final[dict[str, tuple[int, str]]] = {
    "request.malformed": (400, "The request is malformed"),
    "request.invalid": (422, "The request has invalid fields"),
    "request.too_large": (413, "The body is too large"),
    "request.encoding": (415, "Compressed bodies are not taken"),
    "request.timeout": (408, "The request took too long to arrive"),
    "auth.required": (401, "A valid API key is required"),
    "auth.scope": (403, "The API key does not allow this"),
    "not_found": (404, "There is no such object"),
    "method_not_allowed": (405, "This method does not exist here"),
    "idempotency.missing": (400, "Idempotency-Key is required"),
    "idempotency.malformed": (400, "Idempotency-Key is malformed"),
    "idempotency.conflict": (422, "The Idempotency-Key was used with another body"),
    "idempotency.in_progress": (409, "A request with this Idempotency-Key is still running"),
    "quota.rate": (429, "Too many messages per second"),
    "quota.daily": (429, "The daily cap is reached"),
    "quota.backlog": (429, "The tenant's own limit is fully booked"),
    "quota.imports": (429, "Too many lists are being worked through"),
    "capacity.class_budget_exceeded": (503, "The class cannot keep its promise now"),
    "capacity.storage": (503, "Storage is not available"),
    "capacity.overload": (503, "The process is overloaded"),
    "capacity.infeasible_deadline": (422, "The deadline cannot be met by waiting"),
    "route.none": (422, "No route takes this message"),
    "policy.max_segments": (422, "The text needs too many segments"),
    "policy.destination": (422, "The destination is not allowed"),
    "policy.sender": (422, "The sender is not allowed"),
    "policy.class": (422, "The class is not allowed"),
    "policy.content": (422, "The class does not allow this content"),
    "policy.ttl": (422, "The time to live is over the class's ceiling"),
    "policy.tlvs": (422, "A TLV is not allowed"),
    "policy.opted_out": (422, "The recipient opted out"),
    "policy.no_consent": (422, "The recipient gave no consent"),
    "message.not_cancelable": (409, "The message cannot be canceled any more"),
    "batch.refused": (422, "No message of the batch was accepted"),
    "internal": (500, "Something went wrong on our side"),
}


@valueclass
class Problem:
    """A refusal: `members` are extension members, `retry_after_s` whole seconds where repeating may help."""

    code: str
    detail: str = ""
    errors: tuple[FieldFault, ...] = ()
    members: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    retry_after_s: int | None = None
    status_override: int | None = None

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.status_override or CODES[self.code][0]

    def as_object(self) -> dict[str, Any]:
        """The problem as a JSON object (RFC 9457)."""
        shown: dict[str, Any] = {
            "type": f"urn:sluicegate:problem:{self.code}",
            "title": CODES[self.code][1],
            "status": self.status,
            "code": self.code,
        }
        if self.detail:
            shown["detail"] = self.detail
        if self.errors:
            shown["errors"] = [{"pointer": fault.pointer, "message": fault.message} for fault in self.errors]
        if self.retry_after_s is not None:
            shown["retry_after_s"] = self.retry_after_s
        shown.update(self.members)
        return shown

    def body(self) -> bytes:
        """The problem as JSON octets."""
        return orjson.dumps(self.as_object())


AUTH_REQUIRED: Final = Problem("auth.required", "Send Authorization: Bearer and an API key that is valid.")
NOT_FOUND: Final = Problem("not_found", "Nothing is here, or nothing that this key may see; /docs lists the calls.")
IDEMPOTENCY_MISSING: Final = Problem("idempotency.missing", "Send an Idempotency-Key: one of your own per message.")
IDEMPOTENCY_MALFORMED: Final = Problem(
    "idempotency.malformed",
    "An Idempotency-Key has 1 to 255 characters of A-Z a-z 0-9 _ : . - and may stand in quotes.",
)
IDEMPOTENCY_CONFLICT: Final = Problem("idempotency.conflict", "Use a new key for a new message.")
IDEMPOTENCY_IN_PROGRESS: Final = Problem(
    "idempotency.in_progress", "Repeat with the same key to get its answer.", retry_after_s=1
)
STORAGE: Final = Problem(
    "capacity.storage",
    "Repeat with the same Idempotency-Key: whether the message was kept can be unknown.",
    retry_after_s=1,
)
OVERLOAD: Final = Problem("capacity.overload", "Too many requests are being worked on here.", retry_after_s=1)
INTERNAL: Final = Problem("internal", "The error was recorded under the request id.")


def refused(code: str, fault: FieldFault, **members: Any) -> Problem:
    """The problem of a rule that one field goes against; `errors` names the field as it does for wrong ones."""
    return Problem(code, fault.message, (fault,), members)


def invalid(faults: list[FieldFault]) -> Problem:
    """The problem of wrong fields, all of them."""
    return Problem("request.invalid", "See errors for each field.", tuple(faults))
