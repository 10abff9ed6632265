"""The message as tenants see it: the JSON object of contract section 2, composed from rows of the ledger (pure).

The API answers it, callbacks carry it (with `seq`). Number and sender belong to the tenant; the text is not part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from gateway.domain import ids, states
from gateway.domain.folding import Fact, fold
from scheduler.core.values import valueclass

# attempts.outcome -> type of the event at outcome_at; others (accepted, given_back, closed) tell nothing new.
_EVENT_OF_OUTCOME: Final[Mapping[str, str]] = {
    "throttled": "refused",
    "later": "refused",
    "never": "refused",
    "hold": "refused",
    "unsendable": "refused",
    "unconfirmed": "unconfirmed",
}
_EVENT_OF_KIND: Final[Mapping[str, str]] = {
    "cancel": "canceled",
    "expire": "expired",
    "suppress": "suppressed",
    "window": "deferred",
    "reroute": "released",
}
_CAUSE_OF_KIND: Final[Mapping[str, str]] = {"window": "send_window", "reroute": "rerouted"}
# The order of events that stand at the same millisecond: as they happen in the life of a message.
_ORDER: Final = {
    name: place
    for place, name in enumerate(
        (
            "accepted",
            "deferred",
            "released",
            "resent",
            "claimed",
            "submitted",
            "refused",
            "unconfirmed",
            "receipt",
            "corrected",
            "expired",
            "canceled",
            "suppressed",
            "failed",
        )
    )
}


@valueclass
class History:
    """What the ledger keeps of a message besides its row."""

    attempts: Sequence[Mapping[str, Any]] = ()
    receipts: Sequence[Mapping[str, Any]] = ()
    events: Sequence[Mapping[str, Any]] = ()


def message_object(row: Mapping[str, Any], *, sending: bool = False) -> dict[str, Any]:
    """The message object of a `messages` row; `sending`: an open attempt stands at its next slot."""
    stored = row["status"]
    status = states.SENDING if sending and stored == states.QUEUED else stored
    extras = row["extras"]
    not_before = row["not_before"]
    return {
        "id": ids.show(row["id"]),
        "status": status,
        "final": states.is_final(status),
        "origin": states.origin_of(status),
        "class": row["class"],
        "to": row["recipient"],
        "from": row["sender"],
        "segments": row["segments"],
        "encoding": row["encoding"],
        "created_at": ids.rfc3339(row["created_at"]),
        "submit_by": ids.rfc3339(row["submit_by"]),
        "expires_at": ids.rfc3339(row["expires_at"]),
        "not_before": None if not_before is None else ids.rfc3339(not_before),
        "route": row["route"],
        "predicted_wait_ms": row["predicted_wait_ms"],
        "application": row["application"],
        "client_ref": row["client_ref"],
        "metadata": (extras.get("metadata") or {}) if extras else {},
        "policy_version": row["policy_version"],
        "delivery": _delivery(row["delivery"]),
        "expiry": _expiry(row["expiry"]),
        "error": row["error"],
        "possible_duplicate": row["possible_duplicate"],
    }


def _delivery(kept: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if kept is None:
        return None
    return {
        "state": kept.get("state"),
        "provider": kept.get("provider"),
        "error_code": kept.get("error_code"),
        "done_at": _instant(kept.get("done_at")),
        "received_at": _instant(kept.get("received_at")),
        "conflict": bool(kept.get("conflict", False)),
    }


def _expiry(kept: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if kept is None:
        return None
    return {"at": _instant(kept.get("at")), "cause": kept.get("cause"), "stage": kept.get("stage")}


def _instant(at: Any) -> Any:
    return ids.rfc3339(at) if isinstance(at, int) else at


def timeline(row: Mapping[str, Any], history: History) -> list[dict[str, Any]]:
    """The `events[]` of a message, oldest first, numbered from 1."""
    happened: list[tuple[int, str, str | None]] = [(row["created_at"], "accepted", None)]
    happened += [(event["at"], event["type"], event["cause"]) for event in history.events]
    for attempt in history.attempts:
        happened += _events_of_attempt(attempt, row)
    happened += [(receipt["received_at"], "receipt", receipt["state"]) for receipt in history.receipts]
    if row["status"] == states.FAILED:
        happened.append((row["final_at"] or row["created_at"], "failed", (row["error"] or {}).get("code")))
    happened.sort(key=lambda event: (event[0], _ORDER.get(event[1], len(_ORDER))))
    return [
        {"seq": seq, "at": ids.rfc3339(at), "type": kind, "cause": cause}
        for seq, (at, kind, cause) in enumerate(happened, 1)
    ]


def parts(row: Mapping[str, Any], accepted: Iterable[int], history: History) -> list[dict[str, Any]]:
    """The `parts[]` of a message that is parted: what our side and the network say of each.

    `accepted` are the parts that a carrier accepted. A part's status is `waiting`, `unconfirmed`, `sent`, `delivered`
    or `undelivered`; a part in doubt stays so until an answer or a receipt resolves it.
    """
    if row["segments"] < 2:
        return []
    taken = set(accepted)
    doubted: set[int] = set()
    for attempt in history.attempts:
        kept = attempt["parts"] or {}
        taken.update(kept.get("accepted", ()))
        doubted.update(kept.get("doubt", ()))
    return [_part(number, number in taken, number in doubted, history) for number in range(1, row["segments"] + 1)]


def _part(number: int, accepted: bool, doubted: bool, history: History) -> dict[str, Any]:
    facts = [
        Fact(
            part=number,
            state=receipt["state"],
            provider=receipt["provider"],
            error_code=receipt["error_code"],
            done_at=receipt["done_at"],
            received_at=receipt["received_at"],
        )
        for receipt in history.receipts
        if receipt["part"] == number and receipt["state"] is not None
    ]
    word = fold(facts, 1, cut_off=False)
    status = states.SENT if accepted else states.UNCONFIRMED if doubted else "waiting"
    if word is not None and word.decided:
        status = states.DELIVERED if word.state == "delivered" else states.UNDELIVERED
    return {"part": number, "status": status, "delivery": None if word is None else _delivery(word.stored())}


def _events_of_attempt(attempt: Mapping[str, Any], row: Mapping[str, Any]) -> Iterable[tuple[int, str, str | None]]:
    if attempt["kind"] in _EVENT_OF_KIND:
        cause = _CAUSE_OF_KIND.get(attempt["kind"])
        if attempt["kind"] == "expire":
            cause = (row["expiry"] or {}).get("cause")
        elif attempt["kind"] == "window" and row["status"] == states.EXPIRED and attempt["slot"] == row["next_slot"]:
            yield attempt["outcome_at"], "expired", cause  # the window opens again too late
            return
        yield attempt["outcome_at"] or attempt["claimed_at"], _EVENT_OF_KIND[attempt["kind"]], cause
        return
    yield attempt["claimed_at"], "claimed", attempt["session"]
    # Where nobody knows whether it left (its process died, or a backup was restored), both stand at the takeover.
    unknown = attempt["outcome"] == "unconfirmed" and attempt["written_at"] == attempt["outcome_at"]
    if attempt["written_at"] is not None and not unknown:
        yield attempt["written_at"], "submitted", attempt["provider"]
    kind = _EVENT_OF_OUTCOME.get(attempt["outcome"] or "")
    if kind is not None:
        status = attempt["command_status"]
        cause = f"0x{status:08X}" if status is not None else attempt["outcome"]
        yield attempt["outcome_at"] or attempt["claimed_at"], kind, cause
