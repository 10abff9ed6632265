"""What the end of a submit does to its message: a pure function (design section 4, reliability 3.2 and 3.3).

A slot of `attempts` ends once. Its ending, the message as locked and the rules of its class give one `Change`: the new
values of the row, whether it goes back into the queue, and which event a tenant may be told. Nothing here knows SQL,
a clock or chance: `now_at` (UTC ms on the queue's clock) and `jitter` (0 <= jitter < 1) come in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.domain import states
from gateway.policy.rules.snapshot import Retries, TrafficClass
from scheduler.core.values import valueclass

# How long a doubt is held after the last useful moment before it counts as unknown for good (contract, `failed`).
DOUBT_MS: Final = 600_000

# Words of attempts.outcome. `closed` ends a slot without a submit: its time was over when its turn came.
ACCEPTED: Final = "accepted"
THROTTLED: Final = "throttled"
LATER: Final = "later"
NEVER: Final = "never"
HOLD: Final = "hold"
GIVEN_BACK: Final = "given_back"
UNCONFIRMED: Final = "unconfirmed"
CLOSED: Final = "closed"
UNSENDABLE: Final = "unsendable"

OUTCOME_UNKNOWN: Final = "outcome_unknown"
ATTEMPTS_EXHAUSTED: Final = "attempts_exhausted"
PARTS_INCOMPLETE: Final = "parts_incomplete"

# Where a message goes that may be sent again.
FRONT: Final = "front"
DUE: Final = "due"

EVENTS: Final[Mapping[str, str]] = {
    states.SENT: "message.sent",
    states.EXPIRED: "message.expired",
    states.REJECTED: "message.rejected",
    states.FAILED: "message.failed",
}
CORRECTED: Final = "message.corrected"


@valueclass
class Standing:
    """A message row as locked. `error` is the last refusal, or what it failed with."""

    status: str
    next_slot: int
    attempts_spent: int
    submit_begun: bool
    possible_duplicate: bool
    submit_by: int
    expires_at: int
    error: Mapping[str, Any] | None = None

    @property
    def deadline_at(self) -> int:
        """Until when the next submit may begin."""
        return self.expires_at if self.submit_begun else self.submit_by


@valueclass
class Refusal:
    """What the carrier said: `code` is the status's name, `command_status` its number."""

    code: str
    command_status: int


@valueclass
class Ending:
    """How one slot ended.

    `accepted_parts` of `parts_total` submit_sm counts over all slots of the message, this one included.
    """

    slot: int
    outcome: str
    accepted_parts: int = 0
    parts_total: int = 1
    written: bool = True
    refusal: Refusal | None = None
    delay_ms: int | None = None
    fault: str | None = None  # why the message cannot be put on the wire at all


@valueclass
class Rules:
    """The policy as far as it concerns one message; `receipts_expected` is false where the dialect registers none."""

    traffic: TrafficClass
    retries: Retries
    cutoff_ms: int
    receipts_expected: bool = True


@valueclass
class Change:
    """The message row after the ending; `version` always rises by one with it."""

    outcome: str
    status: str
    next_slot: int
    attempts_spent: int
    submit_begun: bool
    possible_duplicate: bool
    error: Mapping[str, Any] | None
    expiry: Mapping[str, Any] | None
    sweep_at: int | None
    final_at: int | None
    requeue: str | None = None  # front | due
    due_at: int | None = None
    event: str | None = None
    sent_at: int | None = None  # where a carrier has all of it now


@valueclass
class _Spent:
    """The counters once the ending is booked: the base of every change."""

    outcome: str
    next_slot: int
    attempts_spent: int
    submit_begun: bool
    accepted_parts: int
    error: Mapping[str, Any] | None


def back_off_ms(retries: Retries, spent: int, jitter: float) -> int:
    """Full jitter: somewhere between 0 and min(max, base x 2^(spent-1))."""
    ceiling = min(retries.max_ms, retries.base_ms << min(max(spent - 1, 0), 30))
    return int(ceiling * jitter)


def close(standing: Standing, ending: Ending, rules: Rules, now_at: int, jitter: float) -> Change | None:
    """The change that the ending of an open slot brings.

    None where the message has moved on (its status is not `queued` or its slot is not open any more): the slot's own
    row is then closed without touching the message.
    """
    if standing.status != states.QUEUED or standing.next_slot != ending.slot:
        return None
    spent = _book(standing, ending)
    if spent.outcome == ACCEPTED:
        return _sent(standing, spent, rules, now_at)
    if spent.outcome == UNCONFIRMED:
        return _in_doubt(standing, spent, rules, now_at)
    if spent.outcome == NEVER:
        return _give_up(standing, spent, states.REJECTED, spent.error, now_at)
    if spent.outcome == UNSENDABLE:
        error = {"code": ending.fault or UNSENDABLE, "permanent": True}
        return _give_up(standing, spent, states.FAILED, error, now_at)
    if spent.outcome == LATER:
        return _later(standing, spent, ending, rules, now_at, jitter)
    if spent.outcome == CLOSED:
        return _out_of_time(standing, spent, now_at)
    return _again(standing, spent, now_at)


def expire(standing: Standing, accepted_parts: int, now_at: int) -> Change | None:
    """The change of a message whose deadline passed while it waited; None where it may still begin or is not waiting.

    The caller has won the message's next slot with a row of kind `expire`.
    """
    if standing.status != states.QUEUED or now_at < standing.deadline_at:
        return None
    spent = _Spent(
        outcome=CLOSED,
        next_slot=standing.next_slot,
        attempts_spent=standing.attempts_spent,
        submit_begun=standing.submit_begun,
        accepted_parts=accepted_parts,
        error=standing.error,
    )
    return _out_of_time(standing, spent, now_at)


def adopt(standing: Standing, ending: Ending, rules: Rules, now_at: int) -> Change | None:
    """The change of a message in doubt whose late answer accepts it (all parts counted in the ending).

    None where nothing is to be changed. A message waiting for its resend is adopted only by who wins its next slot.
    """
    if not is_in_doubt(standing) or ending.accepted_parts < ending.parts_total:
        return None
    spent = _Spent(
        outcome=ACCEPTED,
        next_slot=standing.next_slot,
        attempts_spent=standing.attempts_spent,
        submit_begun=True,
        accepted_parts=ending.accepted_parts,
        error=None,
    )
    return _sent(standing, spent, rules, now_at)


def refuse_late(standing: Standing, ending: Ending, rules: Rules, now_at: int, jitter: float) -> Change | None:
    """The change of an `unconfirmed` message whose late answer refuses it: the doubt is gone, the refusal counts.

    The attempt was spent when it became doubtful. None where the message is not held in doubt, or an earlier submit
    of it still is.
    """
    if standing.status != states.UNCONFIRMED or standing.possible_duplicate:
        return None
    spent = _Spent(
        outcome=ending.outcome,
        next_slot=standing.next_slot,
        attempts_spent=standing.attempts_spent,
        submit_begun=True,
        accepted_parts=ending.accepted_parts,
        error=_error_of(ending) or standing.error,
    )
    if ending.outcome == NEVER:
        return _give_up(standing, spent, states.REJECTED, spent.error, now_at)
    if ending.outcome == LATER:
        return _later(standing, spent, ending, rules, now_at, jitter)
    if ending.outcome in (THROTTLED, HOLD):
        return _again(standing, spent, now_at)
    return None


def is_in_doubt(standing: Standing) -> bool:
    """Whether a submit of the message may have left and nobody knows."""
    if standing.status == states.UNCONFIRMED:
        return True
    if standing.status == states.FAILED:
        return (standing.error or {}).get("code") == OUTCOME_UNKNOWN
    return standing.status == states.QUEUED and standing.possible_duplicate


def _book(standing: Standing, ending: Ending) -> _Spent:
    """Counts the ending. Throttled, held and given back work keeps its attempts; an accepted slot stays the last."""
    outcome = ending.outcome
    if ending.accepted_parts >= ending.parts_total:
        outcome = ACCEPTED
    costs = outcome in (ACCEPTED, LATER, NEVER, UNCONFIRMED, UNSENDABLE)
    return _Spent(
        outcome=outcome,
        next_slot=standing.next_slot + (outcome != ACCEPTED),
        attempts_spent=standing.attempts_spent + costs,
        submit_begun=standing.submit_begun or ending.written,
        accepted_parts=ending.accepted_parts,
        error=_error_of(ending) or standing.error,
    )


def _error_of(ending: Ending) -> dict[str, Any] | None:
    if ending.refusal is None:
        return None
    return {
        "code": ending.refusal.code,
        "permanent": ending.outcome == NEVER,
        "carrier_status": f"0x{ending.refusal.command_status:08x}",
    }


def _sent(standing: Standing, spent: _Spent, rules: Rules, now_at: int) -> Change:
    was_final = states.is_final(standing.status)
    return Change(
        outcome=ACCEPTED,
        status=states.SENT,
        next_slot=spent.next_slot,
        attempts_spent=spent.attempts_spent,
        submit_begun=True,
        possible_duplicate=standing.possible_duplicate,
        error=None,
        expiry=None,
        sweep_at=now_at + rules.cutoff_ms if rules.receipts_expected else None,
        final_at=None if rules.receipts_expected else now_at,
        event=CORRECTED if was_final else EVENTS[states.SENT],
        sent_at=now_at,
    )


def _in_doubt(standing: Standing, spent: _Spent, rules: Rules, now_at: int) -> Change:
    """The class decides once: a second doubt of the same message is held (never a silent second resend)."""
    choice = rules.traffic.unconfirmed
    if choice == "fail":
        return _ended(standing, spent, states.FAILED, {"code": OUTCOME_UNKNOWN, "permanent": False}, now_at)
    may_resend = (
        choice == "resend_once"
        and not standing.possible_duplicate
        and spent.attempts_spent < rules.traffic.max_attempts
        and now_at < standing.expires_at
    )
    if may_resend:
        return _queued(standing, spent, requeue=FRONT, due_at=None, possible_duplicate=True)
    return _held(standing, spent)


def _later(standing: Standing, spent: _Spent, ending: Ending, rules: Rules, now_at: int, jitter: float) -> Change:
    """A delayed retry, only while attempts and the deadline permit; else the end comes at once."""
    if spent.attempts_spent >= rules.traffic.max_attempts:
        error = dict(spent.error or {})
        error.update(code=ATTEMPTS_EXHAUSTED, permanent=True)
        return _give_up(standing, spent, states.FAILED, error, now_at)
    delay_ms = back_off_ms(rules.retries, spent.attempts_spent, jitter)
    if ending.delay_ms is not None:
        delay_ms = max(ending.delay_ms, delay_ms)
    due_at = now_at + delay_ms
    if due_at >= standing.expires_at:
        return _out_of_time(standing, spent, now_at)
    return _queued(standing, spent, requeue=DUE, due_at=due_at, possible_duplicate=standing.possible_duplicate)


def _again(standing: Standing, spent: _Spent, now_at: int) -> Change:
    """Back to the same place in the line: throttled, held and given back work is not to blame."""
    deadline_at = standing.expires_at if spent.submit_begun else standing.submit_by
    if now_at >= deadline_at:
        return _out_of_time(standing, spent, now_at)
    return _queued(standing, spent, requeue=FRONT, due_at=None, possible_duplicate=standing.possible_duplicate)


def _out_of_time(standing: Standing, spent: _Spent, now_at: int) -> Change:
    """`expired` says that nothing was accepted and nothing is in doubt; otherwise the truth is another word."""
    if spent.accepted_parts > 0 or standing.possible_duplicate:
        return _give_up(standing, spent, states.EXPIRED, spent.error, now_at)
    in_budget = spent.submit_begun or now_at < standing.submit_by or standing.submit_by >= standing.expires_at
    cause = "ttl" if in_budget else "wait_budget"
    stage = "retry" if spent.submit_begun else "queued"
    expiry = {"at": now_at, "cause": cause, "stage": stage}
    return _ended(standing, spent, states.EXPIRED, spent.error, now_at, expiry)


def _give_up(standing: Standing, spent: _Spent, status: str, error: Mapping[str, Any] | None, now_at: int) -> Change:
    """No further submit follows. What an earlier submit left behind decides how that is told."""
    if standing.possible_duplicate:
        return _held(standing, spent)
    if spent.accepted_parts > 0:
        told = dict(error or {})
        told.update(code=PARTS_INCOMPLETE, permanent=True)
        return _ended(standing, spent, states.FAILED, told, now_at)
    return _ended(standing, spent, status, error, now_at)


def _held(standing: Standing, spent: _Spent) -> Change:
    return Change(
        outcome=spent.outcome,
        status=states.UNCONFIRMED,
        next_slot=spent.next_slot,
        attempts_spent=spent.attempts_spent,
        submit_begun=True,
        possible_duplicate=standing.possible_duplicate,
        error=spent.error,
        expiry=None,
        sweep_at=standing.expires_at + DOUBT_MS,
        final_at=None,
    )


def _queued(standing: Standing, spent: _Spent, *, requeue: str, due_at: int | None, possible_duplicate: bool) -> Change:
    return Change(
        outcome=spent.outcome,
        status=states.QUEUED,
        next_slot=spent.next_slot,
        attempts_spent=spent.attempts_spent,
        submit_begun=spent.submit_begun,
        possible_duplicate=possible_duplicate,
        error=spent.error,
        expiry=None,
        sweep_at=standing.expires_at if spent.submit_begun else standing.submit_by,
        final_at=None,
        requeue=requeue,
        due_at=due_at,
    )


def _ended(
    standing: Standing,
    spent: _Spent,
    status: str,
    error: Mapping[str, Any] | None,
    now_at: int,
    expiry: Mapping[str, Any] | None = None,
) -> Change:
    return Change(
        outcome=spent.outcome,
        status=status,
        next_slot=spent.next_slot,
        attempts_spent=spent.attempts_spent,
        submit_begun=spent.submit_begun,
        possible_duplicate=standing.possible_duplicate,
        error=error,
        expiry=expiry,
        sweep_at=None,
        final_at=now_at,
        event=EVENTS[status],
    )
