"""From the scheduler's verdict to the door's answer, as data (contract section 2, the table of cases)."""

from __future__ import annotations

import math
from typing import Final

from gateway.admission.clocks import IDLE_MS, Clocks, defer
from gateway.admission.judgement import Allowed
from gateway.admission.problems import STORAGE, Problem
from gateway.admission.send_windows import closes_at, opens_at
from gateway.policy.rules.snapshot import TrafficClass
from scheduler.core.asks import Ask, Verdict
from scheduler.core.values import valueclass

# Kinds whose limit is the tenant's own: its backlog is its own business (429), anything else is shared capacity (503).
OWN_KINDS: Final = frozenset({"tenant", "application"})
DEFER_SHARE: Final = 0.8  # a deferred message keeps the rest of its time to live for the wait after that
RETRY_AFTER_MAX_S: Final = 86_400  # as far as a daily cap may be away; what never goes is asked for again then
NOT_OPEN: Final = "storage"  # the class is still being rebuilt in the index


@valueclass
class Thresholds:
    """What a message may wait, milliseconds."""

    wait_budget_ms: int
    left_ms: int
    door_limit_ms: int


def thresholds(traffic: TrafficClass, clocks: Clocks) -> Thresholds:
    """The door limit: `door_share` x min(wait budget, time left to `expires_at`)."""
    left_ms = clocks.expires_at - clocks.begins_at
    return Thresholds(traffic.wait_budget_ms, left_ms, int(traffic.door_share * min(traffic.wait_budget_ms, left_ms)))


def ask_of(allowed: Allowed, place: bytes, *, probe: bool = False) -> Ask:
    """The question to the scheduler; `place` stands for the request in the waiting line (eight octets)."""
    limit = thresholds(allowed.traffic, allowed.clocks)
    latest = 0
    if allowed.traffic.when_full == "defer":
        latest = min(allowed.clocks.begins_at + int(DEFER_SHARE * limit.left_ms), _last_opening(allowed))
    return Ask(
        flows=allowed.flows,
        segments=allowed.measure.segments,
        budget_ms=limit.wait_budget_ms,
        door_limit_ms=limit.door_limit_ms,
        left_ms=limit.left_ms,
        place=place,
        number=allowed.number,
        probe=probe,
        defer_until=latest,
    )


def _last_opening(allowed: Allowed) -> int:
    """Until when the message's send window lets it leave at all; never later than `expires_at`.

    Without this a deferral would be counted by the scheduler, then found to be out of any window.
    """
    clocks, window = allowed.clocks, allowed.window
    if window is None:
        return clocks.expires_at
    closing = closes_at(window, clocks.begins_at)
    return clocks.expires_at if clocks.expires_at - opens_at(window, closing) >= IDLE_MS else closing - 1


def deferred(allowed: Allowed, verdict: Verdict) -> Clocks | None:
    """New clocks for a message that the scheduler takes in for later; None: it must be refused."""
    if verdict.not_before is None:
        return None
    return defer(allowed.clocks, allowed.traffic, max(1, verdict.not_before - allowed.clocks.begins_at))


def refusal_of(allowed: Allowed, verdict: Verdict) -> Problem:
    """The problem of a refused message: 429 where its own limit binds, else 503; all members of the contract."""
    if verdict.cause == NOT_OPEN:
        return STORAGE
    limit = thresholds(allowed.traffic, allowed.clocks)
    kind, name = verdict.scope or ("class", allowed.traffic.name)
    shown = shown_name(kind, name)
    retry_after_s = min(RETRY_AFTER_MAX_S, max(1, math.ceil(verdict.retry_after_s)))
    code = "quota.backlog" if kind in OWN_KINDS else "capacity.class_budget_exceeded"
    return Problem(
        code,
        _sentence(kind, shown, allowed.traffic.name, verdict.cause),
        members={
            "class": allowed.traffic.name,
            "scope": {"kind": kind, "name": shown},
            "cause": verdict.cause or "wait",
            "queue_age_ms": verdict.queue_age_ms,
            "predicted_wait_ms": verdict.predicted_wait_ms,
            "wait_budget_ms": limit.wait_budget_ms,
            "door_limit_ms": limit.door_limit_ms,
            "retry_after_s": retry_after_s,
        },
        retry_after_s=retry_after_s,
    )


def _sentence(kind: str, name: str, class_name: str, cause: str | None) -> str:
    if cause != "paused":
        return f"The wait in {kind} {name} is over what the class {class_name} may promise."
    if kind in ("provider", "session"):  # the index does not tell these apart here: `sluicegate status` does
        why = f"{kind} {name} sends nothing now: it is paused, it has no session bound, or its carrier fails."
    elif kind == "class":
        why = "every route that could take the message is paused."
    else:
        why = f"{kind} {name} is paused."
    return f"{why[0].upper()}{why[1:]} The class {class_name} cannot wait for it; ask again after retry_after_s."


def shown_name(kind: str, name: str) -> str:
    """A scope's name as its tenant knows it."""
    # Inside a tenant scopes are named `tenant/name`: the tenant need not be told who it is.
    return name.partition("/")[2] or name if kind in ("application", "sender") else name
