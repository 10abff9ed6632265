"""One judge for every fault run: client journal x ledger x the carrier's journal (design section 5).

Pure: it takes what each side wrote down and names every broken promise.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

FINAL = frozenset({"delivered", "undelivered", "expired", "rejected", "failed", "suppressed", "canceled", "unknown"})
# Faults that end the process which holds claimed work, or keep its answers from the ledger: only they may leave doubt.
# A cut is of the link to the carrier: what was on it is in doubt.
TOUCHES_FLIGHTS = frozenset(
    {"egress", "stray", "postgres", "stores", "pause-egress", "pause-postgres", "cut", "cut-postgres"}
)
# What the carrier of a fault run answers to a submit over the agreed window; it says so for no other reason.
OVER_THE_WINDOW = 0x58
# The ledger's instants are the queue's clock (the index's, as each process last measured it); a fault's are ours.
CLOCK_SLACK_MS = 150
# The carrier notes a submit when it reads it: what was written in time may be read this much later, where both share
# two cores with everything else.
READ_SLACK_MS = 1_000
# The first submit and the one resend that a class may allow.
SUBMITS_MAX = 2
# Faults that leave leased work without its owner, and how soon another process must have taken codes over.
# (A supervisor sees a process die. Where none does, its heartbeat must be ten seconds old first.)
ORPHANS = frozenset({"egress"})
RECOVERED_WITHIN_MS = 5_000


@dataclass(frozen=True, slots=True)
class LedgerMessage:
    """What the ledger says of one message at the end of the run."""

    id: str
    client_ref: str
    status: str
    error_code: str | None
    possible_duplicate: bool
    expires_at: int
    sweep_at: int | None = None
    traffic_class: str = ""
    created_at: int = 0


@dataclass(frozen=True, slots=True)
class LedgerAttempt:
    """One claimed submit of the ledger; instants are UTC ms."""

    id: str
    claimed_at: int
    outcome: str | None
    outcome_at: int | None
    pid: int = 0  # of the process that claimed it


@dataclass(frozen=True, slots=True)
class CarrierSubmit:
    """One submit_sm that the carrier saw; `status` is null where it never answered."""

    client_ref: str
    at: int
    status: int | None


@dataclass(frozen=True, slots=True)
class Kill:
    """One fault: what was hit, and the moments just before and just after it (UTC ms)."""

    target: str
    began_at: int
    done_at: int
    repeated: bool = False  # struck again while it started anew: nothing need be in flight
    outbox_rows: int = 0  # batches that waited for the index just before
    pids: tuple[int, ...] = ()  # who was hit


@dataclass(frozen=True, slots=True)
class Evidence:
    """What every side wrote down. `accepted` maps client_ref to the id of its 202."""

    accepted: Mapping[str, str]
    messages: Sequence[LedgerMessage]
    attempts: Sequence[LedgerAttempt]
    submits: Sequence[CarrierSubmit]
    kills: Sequence[Kill] = ()
    refused: frozenset[str] = frozenset()  # client_refs that got nothing but refusals
    window_guarded: bool = False  # the carrier answers OVER_THE_WINDOW where a session has too many unanswered
    contradicted: Sequence[str] = ()  # client_refs whose key was answered with two different messages
    called: frozenset[str] | None = None  # ids of which the endpoint was told the end; None: there is no endpoint
    hurried: frozenset[str] = frozenset()  # client_refs with seconds to live: they may expire wherever they wait
    has_heirs: bool = False  # more than one egress process: leased work of a killed one is taken over while it starts


@dataclass(slots=True)
class Findings:
    """Counts for the table and every violation by name; the lists have one number per kill."""

    accepted: int = 0
    delivered: int = 0
    doubles: int = 0
    flagged: int = 0
    in_doubt: int = 0
    expired: int = 0
    not_final: int = 0
    in_flight: list[int] = field(default_factory=list)
    doubts: list[int] = field(default_factory=list)
    recovered_ms: list[int] = field(default_factory=list)  # codes of a killed egress process, until somebody had them
    violations: list[str] = field(default_factory=list)

    def say(self, culprits: Sequence[str], what: str) -> None:
        """One violation with how many and the first three."""
        if culprits:
            self.violations.append(f"{len(culprits)} {what}: {', '.join(culprits[:3])}")


def in_flight(attempts: Iterable[LedgerAttempt], kill: Kill) -> list[LedgerAttempt]:
    """Claims that were open when the fault struck, as tight as the instants allow."""
    return [
        a
        for a in attempts
        if a.claimed_at <= kill.done_at + CLOCK_SLACK_MS
        and (a.outcome_at is None or a.outcome_at >= kill.began_at - CLOCK_SLACK_MS)
    ]


def judge(evidence: Evidence) -> Findings:
    """Compare the journals and name every promise that was broken."""
    found = Findings(accepted=len(evidence.accepted))
    for check in (_check_door, _check_ends, _check_carrier, _check_blame, _check_recovery):
        check(found, evidence)
    return found


def _check_door(found: Findings, evidence: Evidence) -> None:
    """Accepted is kept, once; refused is not kept at all."""
    by_id = {m.id: m for m in evidence.messages}
    accepted = evidence.accepted
    found.say([i for i in accepted.values() if i not in by_id], "accepted messages lost")
    strange = [r for r, i in accepted.items() if i in by_id and by_id[i].client_ref != r]
    found.say(strange, "answers that name another client's message")
    found.say([str(r) for r in evidence.contradicted], "keys answered with two different messages")
    per_ref = Counter(m.client_ref for m in evidence.messages)
    found.say([ref for ref, n in per_ref.items() if n > 1], "idempotency keys that made more than one message")
    found.say([ref for ref in per_ref if ref in evidence.refused], "refused messages that were kept")


def _check_ends(found: Findings, evidence: Evidence) -> None:
    """Every message has its end, or is held in doubt with a date for its end."""
    messages = evidence.messages
    found.delivered = sum(m.status == "delivered" for m in messages)
    found.flagged = sum(m.possible_duplicate for m in messages)
    found.in_doubt = sum(_is_doubtful(m) for m in messages)
    found.expired = sum(m.status == "expired" for m in messages)
    endless = [m for m in messages if m.status not in FINAL and m.status != "unconfirmed"]
    found.not_final = len(endless)
    words = dict(Counter(m.status for m in endless))
    found.say([m.id for m in endless], f"messages without an end {words}")
    dateless = [m.id for m in messages if m.status == "unconfirmed" and m.sweep_at is None]
    found.say(dateless, "messages held in doubt for ever")
    if evidence.called is not None:
        untold = [m.id for m in messages if m.status in FINAL and m.id not in evidence.called]
        found.say(untold, "ends that no callback told")
    open_ids = {a.id for a in evidence.attempts if a.outcome is None}
    found.say(sorted(open_ids), "claims that were never closed")


def _check_carrier(found: Findings, evidence: Evidence) -> None:
    """What the carrier saw against what the ledger knows."""
    seen: dict[str, list[CarrierSubmit]] = defaultdict(list)
    for submit in evidence.submits:
        seen[submit.client_ref].append(submit)
    claims = Counter(a.id for a in evidence.attempts)
    by_ref = {m.client_ref: m for m in evidence.messages}
    found.say([ref for ref in seen if ref not in by_ref], "submits that the ledger knows nothing of")
    over = [s.client_ref for s in evidence.submits if evidence.window_guarded and s.status == OVER_THE_WINDOW]
    found.say(over, "submits over the window of their session")
    known = [(by_ref[ref], submits) for ref, submits in seen.items() if ref in by_ref]
    found.say([m.id for m, submits in known if len(submits) > claims[m.id]], "submits without a claim before them")
    taken = [(m, [s for s in submits if s.status in (0, None)]) for m, submits in known]
    doubles = [(m, submits) for m, submits in taken if len(submits) > 1]
    found.doubles = len(doubles)
    found.say([m.id for m, _ in doubles if not m.possible_duplicate], "unflagged doubles at the carrier")
    found.say([m.id for m, submits in doubles if len(submits) > SUBMITS_MAX], "messages sent more than twice")
    late = [m.id for m, submits in known if max(s.at for s in submits) > m.expires_at + READ_SLACK_MS]
    found.say(late, "messages submitted after they expired")
    # The carrier has sent a receipt for it, and each message of a run has a number of its own: no two could be meant.
    found.say(
        [m.id for m, submits in taken if submits and _is_doubtful(m)], "doubts that a receipt should have resolved"
    )
    silent = [m.id for m in evidence.messages if m.status in ("sent", "delivered") and m.client_ref not in seen]
    found.say(silent, "messages called sent that the carrier never had")


def _check_blame(found: Findings, evidence: Evidence) -> None:
    """A fault may put in doubt, flag or expire only what was claimed or in flight at that moment."""
    allowed: set[str] = set()
    for number, kill in enumerate(evidence.kills, 1):
        flying = {a.id for a in in_flight(evidence.attempts, kill)}
        doubts = {a.id for a in in_flight(evidence.attempts, kill) if a.outcome == "unconfirmed"}
        found.in_flight.append(len(flying))
        found.doubts.append(len(doubts))
        if not flying and not kill.repeated:
            found.violations.append(f"nothing was in flight at fault {number} ({kill.target}): it proves nothing")
        if kill.target in TOUCHES_FLIGHTS:
            allowed |= flying
    _blame(found, evidence.messages, allowed, lambda m: m.possible_duplicate, "flagged")
    _blame(found, evidence.messages, allowed, _is_doubtful, "in doubt")
    patient = [m for m in evidence.messages if m.client_ref not in evidence.hurried]
    _blame(found, patient, allowed, lambda m: m.status == "expired", "expired")
    doubted = {a.id for a in evidence.attempts if a.outcome == "unconfirmed"}
    found.say(sorted(doubted - allowed), "claims put in doubt without having been in flight")


def _check_recovery(found: Findings, evidence: Evidence) -> None:
    """Codes that were claimed or waited when an egress process was killed: decided or claimed anew soon after.

    Where the next fault came before that time was over nothing is said: it may be to blame. Judged where another
    process can take over; else the figures tell how long a restart takes.
    """
    codes = {m.id: m for m in evidence.messages if m.traffic_class == "otp"}
    claims: dict[str, list[LedgerAttempt]] = defaultdict(list)
    for attempt in evidence.attempts:
        if attempt.id in codes:
            claims[attempt.id].append(attempt)
    late = []
    for number, kill in enumerate(evidence.kills, 1):
        if kill.target not in ORPHANS:
            continue
        end_at = kill.done_at + RECOVERED_WITHIN_MS
        is_followed = any(kill.done_at < other.began_at <= end_at for other in evidence.kills)
        for code in codes.values():
            orphan = _orphan(claims[code.id], kill)
            at = orphan.outcome_at if orphan else _first_claim(claims[code.id])
            if not orphan and not _waits(code, at, kill):
                continue
            if is_followed and (at is None or at > end_at):
                continue
            if orphan and at is not None:
                found.recovered_ms.append(max(0, at - kill.done_at))
            if evidence.has_heirs and (at is None or at > end_at):
                waited = "never" if at is None else f"{(at - kill.done_at) / 1000:.1f} s"
                late.append(f"{code.id} (fault {number}: {waited})")
    found.say(late, "codes recovered later than 5 s after their process was killed")


def _orphan(claims: Sequence[LedgerAttempt], kill: Kill) -> LedgerAttempt | None:
    """The claim that a killed process left open."""
    left = (a for a in claims if a.pid in kill.pids and a.claimed_at <= kill.done_at)
    return next((a for a in left if a.outcome_at is None or a.outcome_at > kill.done_at), None)


def _first_claim(claims: Sequence[LedgerAttempt]) -> int | None:
    return min((a.claimed_at for a in claims), default=None)


def _waits(code: LedgerMessage, claimed_at: int | None, kill: Kill) -> bool:
    """Whether it was committed before a fault and nobody had claimed it: the killed process may have leased it."""
    if claimed_at is None:
        return code.created_at < kill.began_at and code.status not in FINAL  # how it ended others judge
    return code.created_at < kill.began_at and claimed_at > kill.done_at


def _blame(
    found: Findings,
    messages: Iterable[LedgerMessage],
    allowed: set[str],
    is_touched: Callable[[LedgerMessage], bool],
    word: str,
) -> None:
    strangers = [f"{m.id} ({m.status})" for m in messages if is_touched(m) and m.id not in allowed]
    found.say(strangers, f"messages {word} without having been in flight")


def _is_doubtful(message: LedgerMessage) -> bool:
    return message.status == "unconfirmed" or message.error_code == "outcome_unknown"
