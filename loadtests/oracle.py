"""One judge for every fault run: client journal x ledger x the carrier's journal (design section 5).

Pure: it takes what each side wrote down and names every broken promise.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

FINAL = frozenset({"delivered", "undelivered", "expired", "rejected", "failed", "suppressed", "canceled", "unknown"})
# What a claim or an answer may lag behind the moment that the ledger writes for it.
CLAIM_SLACK_MS = 1_500


@dataclass(frozen=True, slots=True)
class LedgerMessage:
    """What the ledger says of one message at the end of the run."""

    id: str
    client_ref: str
    status: str
    error_code: str | None
    possible_duplicate: bool
    expires_at: int


@dataclass(frozen=True, slots=True)
class LedgerAttempt:
    """One claimed submit of the ledger; instants are UTC ms."""

    id: str
    claimed_at: int
    outcome: str | None
    outcome_at: int | None


@dataclass(frozen=True, slots=True)
class CarrierSubmit:
    """One submit_sm that the carrier saw."""

    client_ref: str
    at: int
    status: int


@dataclass(frozen=True, slots=True)
class Kill:
    """One fault: what was hit and when (UTC ms)."""

    target: str
    at: int


@dataclass(slots=True)
class Findings:
    """Counts for the table and every violation by name."""

    accepted: int = 0
    delivered: int = 0
    doubles: int = 0
    flagged: int = 0
    in_doubt: int = 0
    expired: int = 0
    in_flight_at_kills: int = 0
    not_final: int = 0
    violations: list[str] = field(default_factory=list)


def in_flight(attempts: Iterable[LedgerAttempt], kill: Kill) -> set[str]:
    """Messages that were claimed or unanswered when the fault struck."""
    return {
        a.id
        for a in attempts
        if a.claimed_at <= kill.at + CLAIM_SLACK_MS and (a.outcome_at is None or a.outcome_at >= kill.at - CLAIM_SLACK_MS)
    }


def judge(
    accepted: Mapping[str, str],
    messages: Iterable[LedgerMessage],
    attempts: Iterable[LedgerAttempt],
    submits: Iterable[CarrierSubmit],
    kills: Iterable[Kill],
) -> Findings:
    """Compare the journals; `accepted` maps client_ref to the id of every 202."""
    found = Findings(accepted=len(accepted))
    rows = list(messages)
    by_id = {m.id: m for m in rows}
    attempts = list(attempts)
    _check_ledger(found, accepted, rows, by_id)
    _check_carrier(found, rows, submits)
    touched: set[str] = set()
    for kill in kills:
        touched |= in_flight(attempts, kill)
    found.in_flight_at_kills = len(touched)
    blamed = {
        m.id
        for m in rows
        if m.possible_duplicate
        or m.error_code == "outcome_unknown"
        or m.status in ("unconfirmed", "expired")
    }
    strangers = blamed - touched
    if strangers:
        sample = ", ".join(f"{i} ({by_id[i].status})" for i in sorted(strangers)[:3])
        found.violations.append(f"{len(strangers)} flagged, in doubt or expired without having been in flight: {sample}")
    return found


def _check_ledger(
    found: Findings, accepted: Mapping[str, str], rows: list[LedgerMessage], by_id: Mapping[str, LedgerMessage]
) -> None:
    lost = [i for i in accepted.values() if i not in by_id]
    if lost:
        found.violations.append(f"{len(lost)} accepted messages lost, first {lost[0]}")
    per_ref = Counter(m.client_ref for m in rows)
    twice = [ref for ref, n in per_ref.items() if n > 1]
    if twice:
        found.violations.append(f"{len(twice)} idempotency keys made more than one message, first {twice[0]}")
    for m in rows:
        found.delivered += m.status == "delivered"
        found.flagged += m.possible_duplicate
        found.in_doubt += m.status == "unconfirmed" or m.error_code == "outcome_unknown"
        found.expired += m.status == "expired"
    open_rows = [m for m in rows if m.status not in FINAL and m.status != "unconfirmed"]
    found.not_final = len(open_rows)
    if open_rows:
        words = Counter(m.status for m in open_rows)
        found.violations.append(f"{len(open_rows)} messages without an end: {dict(words)}, first {open_rows[0].id}")


def _check_carrier(found: Findings, rows: list[LedgerMessage], submits: Iterable[CarrierSubmit]) -> None:
    seen: dict[str, list[CarrierSubmit]] = defaultdict(list)
    for submit in submits:
        if submit.status == 0:
            seen[submit.client_ref].append(submit)
    by_ref = {m.client_ref: m for m in rows}
    for ref, all_of_it in seen.items():
        message = by_ref.get(ref)
        if message is None:
            found.violations.append(f"the carrier has {ref}, the ledger has not")
            continue
        if len(all_of_it) > 1:
            found.doubles += 1
            if not message.possible_duplicate:
                found.violations.append(f"unflagged double at the carrier: {message.id} ({len(all_of_it)} submits)")
        late = max(s.at for s in all_of_it)
        if late > message.expires_at + 250:
            found.violations.append(f"{message.id} submitted {late - message.expires_at} ms after it expired")
    silent = [m for m in rows if m.status in ("sent", "delivered") and m.client_ref not in seen]
    if silent:
        found.violations.append(f"{len(silent)} messages called sent that the carrier never had, first {silent[0].id}")
