"""From an allowed message to its new row in the ledger (pure); what the row lacks has the column's default there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from gateway.admission.clocks import Clocks
from gateway.admission.judgement import Allowed
from gateway.domain import states
from scheduler.core.values import valueclass

DAY_MS: Final = 86_400_000
# A message in doubt is decided ten minutes after its deadline (contract, `failed`).
_DOUBT_MS: Final = 600_000


@valueclass
class Admitted:
    """What the door decided: which candidate, when, how long it will wait; `due_kind` where it waits for a time."""

    candidate: int
    clocks: Clocks
    predicted_wait_ms: int
    due_kind: str | None = None


@valueclass
class Identity:
    """Whose message it is and under which policy version it was decided."""

    id: UUID
    tenant_id: int
    policy_version: int


def new_row(allowed: Allowed, accepted: Admitted, identity: Identity) -> dict[str, Any]:
    """The `messages` row of an accepted message, by column, with `due_kind` and `due_flow` besides."""
    request, clocks = allowed.request, accepted.clocks
    route, measured = allowed.routes[accepted.candidate], allowed.measure_at(accepted.candidate)
    return {
        "id": identity.id,
        "tenant_id": identity.tenant_id,
        "class": allowed.traffic.name,
        "status": states.QUEUED if accepted.due_kind is None else states.SCHEDULED,
        "next_slot": 0,
        "attempts_spent": 0,
        "submit_begun": False,
        "recipient": allowed.recipient,
        "sender": allowed.sender,
        "body": allowed.text,
        "encoding": measured.encoding,
        "segments": measured.segments,
        "application": request.application,
        "client_ref": request.client_ref,
        "extras": _extras(allowed),
        "route": route.name,
        "provider": route.provider,
        "created_at": clocks.created_at,
        "not_before": clocks.not_before,
        "submit_by": clocks.submit_by,
        "expires_at": clocks.expires_at,
        "predicted_wait_ms": accepted.predicted_wait_ms,
        "policy_version": identity.policy_version,
        "delivery": None,
        "expiry": None,
        "error": None,
        "possible_duplicate": False,
        "due_kind": accepted.due_kind,
        "due_flow": None if accepted.due_kind is None else allowed.flows[accepted.candidate].key,
    }


def keep_answer_until(row: Mapping[str, Any], receipts_cutoff_ms: int) -> int:
    """Until when the answer stays under its key: 24 h, and as long as the message can live, UTC ms."""
    return max(int(row["created_at"]) + DAY_MS, int(row["expires_at"]) + _DOUBT_MS + receipts_cutoff_ms)


def _extras(allowed: Allowed) -> dict[str, Any] | None:
    request = allowed.request
    extras: dict[str, Any] = {}
    if request.metadata:
        extras["metadata"] = request.metadata
    if request.callback_url is not None:
        extras["callback_url"] = request.callback_url
    if request.tlvs:
        extras["tlvs"] = request.tlvs
    if request.transliterate:
        extras["transliterate"] = True
    return extras or None
