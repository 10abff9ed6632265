"""Why a message waits now, or why it ended, in words that programs and people can act on (pure; contract section 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.domain import ids, states
from scheduler.core.asks import Explanation
from scheduler.core.values import valueclass

# Scopes beside the kinds of limits: what a message can wait for that is no limit.
NOT_BEFORE: Final = "not_before"
RETRY: Final = "retry"
DEFERRAL: Final = "deferral"
PAUSED: Final = "paused"
ANSWER: Final = "answer"
CONFIRMATION: Final = "confirmation"
RECEIPT: Final = "receipt"
FAIRNESS: Final = "fairness"
_INSIDE_TENANT: Final = frozenset({"application", "sender"})
_REASONS: Final = {
    states.DELIVERED: "The network says that the handset has it.",
    states.UNDELIVERED: "The network says that it will not arrive.",
    states.REJECTED: "The carrier refused it for good.",
    states.EXPIRED: "Our own deadline passed before a carrier took it; nothing of it was sent.",
    states.CANCELED: "The tenant canceled it before it was sent.",
    states.SUPPRESSED: "Its recipient may not be written to; it was stopped at the last check.",
    states.UNKNOWN: "It was sent, and no final receipt came until the cut-off. A later one corrects this.",
    states.FAILED: "It could not be sent, or nobody can say whether it was; the code says which.",
}


@valueclass
class Wait:
    """What the ledger says of a message that waits: a due row, a pause it met, an attempt without an answer.

    `paused_kind` and `paused_name` are the pause by hand that its route or provider is under now.
    """

    due_at: int | None = None
    due_kind: str | None = None
    held_kind: str | None = None
    held_name: str | None = None
    claimed_at: int | None = None
    written_at: int | None = None
    session: str | None = None
    paused_kind: str | None = None
    paused_name: str | None = None


def explain(row: Mapping[str, Any], wait: Wait, index: Explanation | None, now_at: int) -> dict[str, Any]:
    """The explanation of a `messages` row; `index` is the queue's word, None where it has none (being rebuilt)."""
    status = states.SENDING if row["status"] == states.QUEUED and wait.claimed_at is not None else row["status"]
    told: dict[str, Any] = {
        "id": ids.show(row["id"]),
        "status": status,
        "final": states.is_final(status),
        "waiting_for": None,
        "position": None,
        "predicted_start": None,
        "submit_by": ids.rfc3339(row["submit_by"]),
        "expires_at": ids.rfc3339(row["expires_at"]),
        "ended": _ended(row) if states.is_final(status) else None,
    }
    if not told["final"]:
        if status == states.SCHEDULED and row["not_before"] is not None and row["not_before"] <= now_at:
            # What falls due together is released paced.
            told["waiting_for"] = {"scope": FAIRNESS, "name": "release", "tokens_missing": None}
        else:
            _say_wait(told, row, wait, index)
    return told


def _say_wait(told: dict[str, Any], row: Mapping[str, Any], wait: Wait, index: Explanation | None) -> None:
    status = told["status"]
    if status == states.SCHEDULED and wait.due_kind == DEFERRAL and wait.paused_kind is not None:
        told["waiting_for"] = _paused(wait.paused_kind, wait.paused_name)
        told["looked_at_again"] = _instant(row["not_before"])
    elif status == states.SCHEDULED:
        told["waiting_for"] = {"scope": NOT_BEFORE, "name": wait.due_kind or "send_at", "tokens_missing": None}
        told["predicted_start"] = _instant(row["not_before"])
    elif status == states.SENDING:
        told["waiting_for"] = {"scope": ANSWER, "name": wait.session, "tokens_missing": None}
        told["since"] = _instant(wait.written_at or wait.claimed_at)
    elif status == states.UNCONFIRMED:
        told["waiting_for"] = {"scope": CONFIRMATION, "name": row["provider"], "tokens_missing": None}
    elif status == states.SENT:
        told["waiting_for"] = {"scope": RECEIPT, "name": row["provider"], "tokens_missing": None}
        told["since"] = _instant(row["sent_at"])
        told["until"] = _instant(row["sweep_at"])
    elif wait.held_kind is not None:
        told["waiting_for"] = _paused(wait.held_kind, wait.held_name)
    elif wait.due_at is not None:
        refused = (row["error"] or {}).get("carrier_status")
        scope = RETRY if wait.due_kind == RETRY else NOT_BEFORE
        told["waiting_for"] = {"scope": scope, "name": refused or wait.due_kind, "tokens_missing": None}
        told["predicted_start"] = _instant(wait.due_at)
    elif index is None:
        told["waiting_for"] = _paused("index", "rebuild")
    else:
        _say_index(told, row, index)


def _say_index(told: dict[str, Any], row: Mapping[str, Any], index: Explanation) -> None:
    kind, name = index.scope
    if kind == PAUSED:
        told["waiting_for"] = _paused(*name.partition(":")[::2])
    else:
        told["waiting_for"] = {"scope": kind, "name": _inside(kind, name), "tokens_missing": index.tokens_missing}
    told["position"] = index.position
    told["predicted_start"] = _instant(index.predicted_start)
    if index.predicted_start is not None and index.predicted_start > row["submit_by"]:
        told["will_expire"] = True  # before its turn comes, as things stand


def _paused(kind: str, name: str | None) -> dict[str, Any]:
    return {"scope": PAUSED, "kind": kind, "name": _inside(kind, name or ""), "tokens_missing": None}


def _inside(kind: str, name: str) -> str:
    # Inside a tenant scopes are named `tenant/name`: the tenant need not be told who it is.
    return name.partition("/")[2] or name if kind in _INSIDE_TENANT else name


def _ended(row: Mapping[str, Any]) -> dict[str, Any]:
    status = row["status"]
    code = (row["error"] or {}).get("code") or (row["expiry"] or {}).get("cause")
    if code is None and row["delivery"] is not None:
        code = row["delivery"].get("state")
    return {
        "at": _instant(row["final_at"]),
        "origin": states.origin_of(status),
        "code": code,
        "reason": _REASONS[status],
    }


def _instant(at: int | None) -> str | None:
    return None if at is None else ids.rfc3339(at)
