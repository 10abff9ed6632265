"""What a flood came to: both clients' journals x the ledger x the carrier's journal, and what of it breaks a promise.

Pure: instants of clients and carrier are nanoseconds of one monotonic clock, those of the ledger UTC ms.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from loadtests.limits import worst_excess
from loadtests.obedient import Answer

NS_PER_MS: Final = 1_000_000
PREDICTED_FROM_MS: Final = 5_000  # shorter waits are not judged by ratio
NEAR: Final = 0.3
DEADLINE_SLACK_MS: Final = 400  # what was begun in time may be read by the carrier this much later


@dataclass(frozen=True, slots=True)
class Kept:
    """A message as the ledger has it at the end."""

    client_ref: str
    status: str
    created_at: int
    submit_by: int
    predicted_wait_ms: int
    expiry_cause: str | None = None


@dataclass(frozen=True, slots=True)
class Submit:
    """A submit_sm as the carrier noted it."""

    ref: str
    t_ns: int
    at: int
    status: int | None


@dataclass(frozen=True, slots=True)
class FloodCall:
    """One call of the flood: messages accepted by id, and of each refused one status and Retry-After."""

    began_ns: int
    status: int
    messages: int
    accepted: Sequence[str]
    refused: Sequence[tuple[int, int | None]]


@dataclass(frozen=True, slots=True)
class Sides:
    """What every side wrote down; `kept` by message id. `codes` and `obedient` are answers of their clients."""

    calls: Sequence[FloodCall]
    obedient: Sequence[Answer]
    codes: Sequence[Answer]
    kept: Mapping[str, Kept]
    submits: Sequence[Submit]
    rate_per_s: float
    burst: float


@dataclass(slots=True)
class Report:
    """Figures of one setting, and every broken promise by name."""

    figures: dict[str, Any] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def say(self, count: int, what: str) -> None:
        """Notes a broken promise when there is any."""
        if count:
            self.broken.append(f"{count} {what}")


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; nan of nothing."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else math.nan


def judge(sides: Sides) -> Report:
    """All figures, and what was broken whatever the machine."""
    report = Report()
    _codes(sides, report)
    _answers(sides, report)
    _obedience(sides, report)
    _ends(sides, report)
    excess = worst_excess([one.t_ns / 1e9 for one in sides.submits], sides.rate_per_s, sides.burst)
    report.figures["worst_window_excess"] = round(excess, 2)
    report.say(int(excess > 0), f"window of the carrier's journal over the limit, by {excess:.1f} submits")
    return report


def code_latencies(sides: Sides) -> list[tuple[int, float, float]]:
    """Per accepted code that left: when its request began (ns), ms from there to the carrier, ms from the 202 to it."""
    first = _first_submits(sides.submits)
    found = []
    for one in sides.codes:
        if one.status == 202 and one.ref in first:
            left_ns = first[one.ref].t_ns
            found.append((one.began_ns, (left_ns - one.began_ns) / NS_PER_MS, (left_ns - one.ended_ns) / NS_PER_MS))
    return found


def _first_submits(submits: Sequence[Submit]) -> dict[str, Submit]:
    first: dict[str, Submit] = {}
    for one in submits:
        first.setdefault(one.ref, one)
    return first


def _codes(sides: Sides, report: Report) -> None:
    latencies = code_latencies(sides)
    request = [ms for _, ms, _ in latencies]
    answer = [ms for _, _, ms in latencies]
    http = [(one.ended_ns - one.began_ns) / NS_PER_MS for one in sides.codes if one.status == 202]
    accepted = {one.ref for one in sides.codes if one.status == 202}
    report.figures["codes"] = {
        "offered": len({one.ref for one in sides.codes}),
        "accepted": len(accepted),
        "refusals": sum(1 for one in sides.codes if one.status != 202),
        "left": len(latencies),
        "request_to_carrier_ms": {name: round(percentile(request, share), 1) for name, share in _SHARES.items()},
        "answer_to_carrier_ms": {name: round(percentile(answer, share), 1) for name, share in _SHARES.items()},
        "http_ms": {name: round(percentile(http, share), 1) for name, share in _SHARES.items()},
    }
    report.say(len(accepted) - len(latencies), "accepted codes that the carrier never saw")


_SHARES: Final = {"p50": 0.5, "p99": 0.99, "max": 1.0}


def _answers(sides: Sides, report: Report) -> None:
    by_status: Counter[int] = Counter()
    unusable = 0
    for call in sides.calls:
        by_status[202] += len(call.accepted)
        for status, wait_s in call.refused or [(call.status, None)] * (call.messages if call.status != 202 else 0):
            by_status[status] += 1
            unusable += wait_s is None or wait_s < 1
    waits = sorted(wait_s for call in sides.calls for status, wait_s in call.refused if wait_s and status == 503)
    began = [call.began_ns for call in sides.calls]
    lasted_s = max(1e-9, (max(began) - min(began)) / 1e9) if began else math.nan
    offered = sum(call.messages for call in sides.calls)
    report.figures["flood"] = {
        "offered": offered,
        "offered_per_s": round(offered / lasted_s, 1),
        "offered_by_rate": round(offered / lasted_s / sides.rate_per_s, 2),
        "messages_by_answer": {str(status): count for status, count in sorted(by_status.items())},
        "retry_after_503_s": [waits[0], waits[len(waits) // 2], waits[-1]] if waits else [],
    }
    report.say(unusable, "refusals of the flood without a usable Retry-After")
    report.say(sum(n for status, n in by_status.items() if status not in (202, 429, 503)), "answers of another kind")


def _obedience(sides: Sides, report: Report) -> None:
    """What a Retry-After is worth: of those who came again at their time, how many were taken then."""
    by_ref: dict[str, list[Answer]] = {}
    for one in sides.obedient:
        by_ref.setdefault(one.ref, []).append(one)
    taken = [answers for answers in by_ref.values() if answers[-1].status == 202]
    capacity = [answers for answers in by_ref.values() if any(one.status == 503 for one in answers)]
    returned = [
        (former, later) for answers in capacity for former, later in itertools.pairwise(answers) if former.status == 503
    ]
    refused = [one for one in sides.obedient if one.status != 202]
    report.figures["obedient"] = {
        "messages": len(by_ref),
        "accepted": len(taken),
        "requests": len(sides.obedient),
        "requests_per_accepted": round(sum(map(len, taken)) / len(taken), 2) if taken else None,
        "came_again_after_503": len(returned),
        "taken_when_they_came": sum(1 for _, later in returned if later.status == 202),
        "told_to_come_after_the_end": len(by_ref) - len(taken),
    }
    unusable = sum(1 for one in refused if not (one.retry_after or "").isdecimal() or int(one.retry_after or 0) < 1)
    report.say(unusable, "refusals without a usable Retry-After")


def _ends(sides: Sides, report: Report) -> None:
    """Everything accepted was sent in time, or expired and never left; predicted waits against real ones."""
    accepted = {message for call in sides.calls for message in call.accepted}
    accepted |= {one.message_id for one in (*sides.obedient, *sides.codes) if one.status == 202}
    seen, first = Counter(one.ref for one in sides.submits if one.status == 0), _first_submits(sides.submits)
    statuses: Counter[str] = Counter()
    waits: list[tuple[int, int]] = []
    for message in accepted & sides.kept.keys():
        kept = sides.kept[message]
        statuses[kept.status] += 1
        submit = first.get(kept.client_ref)
        if submit is not None:
            waits.append((kept.predicted_wait_ms, submit.at - kept.created_at))
        report.say(int(kept.status in _SENT and submit is None), f"{kept.status} and never seen by the carrier")
        report.say(int(kept.status == "expired" and submit is not None), "expired and seen by the carrier")
        report.say(int(submit is not None and submit.at > kept.submit_by + DEADLINE_SLACK_MS), "sent after submit_by")
    report.say(len(accepted - sides.kept.keys()), "accepted and not in the ledger")
    report.say(sum(n for status, n in statuses.items() if status not in (*_SENT, "expired")), "without an end")
    report.say(sum(1 for count in seen.values() if count > 1), "taken twice by the carrier")
    report.say(len(seen.keys() - {kept.client_ref for kept in sides.kept.values()}), "sent, but unknown to the ledger")
    judged = [(told, real) for told, real in waits if told >= PREDICTED_FROM_MS]
    near = sum(1 for told, real in judged if abs(real - told) <= NEAR * told)
    report.figures["accepted"] = {
        "messages": len(accepted),
        "by_status": dict(statuses),
        "predicted_from_5_s": len(judged),
        "of_them_within_30_percent": round(near / len(judged), 3) if judged else None,
        "carrier_per_s": _service_rate(sides),
    }
    report.broken = _summed(report.broken)


_SENT: Final = ("sent", "delivered")


def _service_rate(sides: Sides) -> float:
    """Submits a second while the flood lasted."""
    if not sides.calls:
        return math.nan
    begin, end = min(one.began_ns for one in sides.calls), max(one.began_ns for one in sides.calls)
    return round(sum(1 for one in sides.submits if begin <= one.t_ns <= end) / max(1e-9, (end - begin) / 1e9), 1)


def _summed(broken: Sequence[str]) -> list[str]:
    counts: Counter[str] = Counter()
    for line in broken:
        count, _, what = line.partition(" ")
        counts[what] += int(count)
    return [f"{count} {what}" for what, count in counts.items()]
