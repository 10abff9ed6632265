"""The door's decision on an allowed message, and how a dry run tells it (contract section 2; pure)."""

from __future__ import annotations

from typing import Any, Final

from gateway.admission.clocks import DEFERRAL, open_window
from gateway.admission.judgement import Allowed
from gateway.admission.problems import Problem
from gateway.admission.rows import Admitted
from gateway.admission.verdicts import deferred, refusal_of
from gateway.domain import states
from gateway.domain.ids import rfc3339
from scheduler.core.asks import Verdict
from smpp.text import preview

_PREDICTED_MAX_MS: Final = 2**31 - 1  # the ledger's column


def decide(allowed: Allowed, verdict: Verdict) -> Admitted | Problem:
    """What the scheduler's verdict comes to: queued, deferred where the class says so, or refused."""
    if verdict.accepted:
        return Admitted(verdict.candidate, allowed.clocks, min(verdict.predicted_wait_ms, _PREDICTED_MAX_MS))
    later = deferred(allowed, verdict)
    clocks = None if later is None else open_window(later, allowed.traffic, allowed.window)
    if clocks is None or isinstance(clocks, Problem):
        return refusal_of(allowed, verdict)
    wait_ms = min(clocks.begins_at - clocks.created_at, _PREDICTED_MAX_MS)
    return Admitted(verdict.candidate, clocks, wait_ms, clocks.held_by)


def rehearsal(allowed: Allowed, decision: Admitted | Problem, verdict: Verdict | None) -> dict[str, Any]:
    """The body of a dry run: what a real call would get now. `verdict` is None for a message with a `send_at`."""
    candidate = 0 if verdict is None else verdict.candidate
    measured = allowed.measure_at(candidate)
    shown: dict[str, Any] = {
        "verdict": "accept",
        "status": None,
        "class": allowed.traffic.name,
        "to": allowed.recipient,
        "from": allowed.sender,
        "segments": measured.segments,
        "encoding": measured.encoding,
        "national_shift": measured.shift,
        "parts": _parts(allowed, candidate),
        "route": allowed.routes[candidate].name,
        "predicted_wait_ms": 0 if verdict is None else verdict.predicted_wait_ms,
        "queue_age_ms": 0 if verdict is None else verdict.queue_age_ms,
    }
    if isinstance(decision, Problem):
        shown["verdict"] = "slow_down" if decision.status == 429 else "refuse"
        shown["problem"] = decision.as_object()
        return shown
    clocks = decision.clocks
    shown["verdict"] = "defer" if decision.due_kind == DEFERRAL else "accept"
    shown["status"] = states.QUEUED if decision.due_kind is None else states.SCHEDULED
    shown["not_before"] = None if clocks.not_before is None else rfc3339(clocks.not_before)
    shown["submit_by"] = rfc3339(clocks.submit_by)
    shown["expires_at"] = rfc3339(clocks.expires_at)
    return shown


def _parts(allowed: Allowed, candidate: int) -> list[dict[str, Any]]:
    """What the handset shows part by part; `units` are septets, octets or UTF-16 units without headers."""
    if not allowed.carried:
        return []
    parts = preview(allowed.text, allowed.request.encoding, allowed.carried[candidate].carriage)
    return [{"number": number, "text": part.text, "units": part.units} for number, part in enumerate(parts, 1)]
