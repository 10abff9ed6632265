"""What endings do to messages: every outcome against every standing, by table and by exhaustive product."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from gateway.domain import outcomes, states
from gateway.domain.outcomes import Change, Ending, Refusal, Rules, Standing, adopt, close, expire, refuse_late
from gateway.policy.rules.snapshot import Retries, TrafficClass

NOW = 1_000_000
CUTOFF = 50_000
WAITING = Standing(
    status=states.QUEUED,
    next_slot=2,
    attempts_spent=1,
    submit_begun=False,
    possible_duplicate=False,
    submit_by=NOW + 10_000,
    expires_at=NOW + 60_000,
)
THROTTLE = Refusal("ESME_RTHROTTLED", 0x58)
BUSY = Refusal("ESME_RMSGQFUL", 0x14)
INVALID = Refusal("ESME_RINVDSTADR", 0x0B)


def _rules(unconfirmed: str = "hold", max_attempts: int = 3, receipts: bool = True) -> Rules:
    traffic = TrafficClass("transactional", 10_000, 0.5, 60_000, 60_000, 1, 1, "refuse", unconfirmed, max_attempts)
    return Rules(traffic, Retries(base_ms=1_000, max_ms=8_000), CUTOFF, receipts)


def _close(ending: Ending, standing: Standing = WAITING, rules: Rules | None = None, jitter: float = 0.5) -> Change:
    change = close(standing, ending, rules or _rules(), NOW, jitter)
    assert change is not None
    return change


def test_accepted_is_sent_and_waits_for_receipts() -> None:
    change = _close(Ending(2, outcomes.ACCEPTED, accepted_parts=1))
    assert (change.status, change.next_slot, change.attempts_spent) == (states.SENT, 2, 2)
    assert (change.sweep_at, change.final_at, change.event) == (NOW + CUTOFF, None, "message.sent")


def test_sent_is_final_where_no_receipts_are_registered() -> None:
    change = _close(Ending(2, outcomes.ACCEPTED, accepted_parts=1), rules=_rules(receipts=False))
    assert (change.sweep_at, change.final_at) == (None, NOW)


@pytest.mark.parametrize("outcome", [outcomes.THROTTLED, outcomes.HOLD])
def test_throttled_and_held_keep_place_and_attempts(outcome: str) -> None:
    change = _close(Ending(2, outcome, refusal=THROTTLE))
    assert (change.status, change.next_slot, change.attempts_spent) == (states.QUEUED, 3, 1)
    assert (change.requeue, change.due_at, change.submit_begun) == (outcomes.FRONT, None, True)
    assert change.sweep_at == WAITING.expires_at


def test_given_back_leaves_submit_by_in_force() -> None:
    change = _close(Ending(2, outcomes.GIVEN_BACK, written=False))
    assert (change.status, change.next_slot, change.submit_begun) == (states.QUEUED, 3, False)
    assert (change.sweep_at, change.requeue) == (WAITING.submit_by, outcomes.FRONT)


def test_later_waits_with_full_jitter() -> None:
    change = _close(Ending(2, outcomes.LATER, refusal=BUSY), jitter=0.25)
    assert (change.requeue, change.due_at, change.attempts_spent) == (outcomes.DUE, NOW + 500, 2)
    assert change.error == {"code": "ESME_RMSGQFUL", "permanent": False, "carrier_status": "0x00000014"}


def test_later_with_a_delay_of_the_provider_waits_at_least_that() -> None:
    assert _close(Ending(2, outcomes.LATER, refusal=BUSY, delay_ms=30_000)).due_at == NOW + 30_000


def test_later_that_would_outlast_the_ttl_expires_at_once_with_the_last_refusal() -> None:
    change = _close(Ending(2, outcomes.LATER, refusal=BUSY, delay_ms=60_000))
    assert change.status == states.EXPIRED
    assert change.expiry == {"at": NOW, "cause": "ttl", "stage": "retry"}
    assert change.error is not None and change.error["carrier_status"] == "0x00000014"


def test_spent_attempts_fail() -> None:
    change = _close(Ending(2, outcomes.LATER, refusal=BUSY), replace(WAITING, attempts_spent=2))
    assert (change.status, change.event) == (states.FAILED, "message.failed")
    assert change.error == {"code": "attempts_exhausted", "permanent": True, "carrier_status": "0x00000014"}


def test_never_rejects() -> None:
    change = _close(Ending(2, outcomes.NEVER, refusal=INVALID))
    assert (change.status, change.final_at, change.sweep_at) == (states.REJECTED, NOW, None)
    assert change.error == {"code": "ESME_RINVDSTADR", "permanent": True, "carrier_status": "0x0000000b"}


def test_some_parts_accepted_and_the_rest_refused_for_good_is_incomplete() -> None:
    change = _close(Ending(2, outcomes.NEVER, accepted_parts=1, parts_total=3, refusal=INVALID))
    assert change.status == states.FAILED
    assert change.error == {"code": "parts_incomplete", "permanent": True, "carrier_status": "0x0000000b"}


def test_a_refused_part_is_sent_again_alone() -> None:
    change = _close(Ending(2, outcomes.LATER, accepted_parts=2, parts_total=3, refusal=BUSY))
    assert (change.status, change.requeue) == (states.QUEUED, outcomes.DUE)


def test_all_parts_accepted_over_several_slots_is_sent_whatever_the_word() -> None:
    assert _close(Ending(2, outcomes.LATER, accepted_parts=3, parts_total=3)).status == states.SENT


@pytest.mark.parametrize(
    ("choice", "duplicate", "status", "requeue"),
    [
        ("hold", False, states.UNCONFIRMED, None),
        ("resend_once", False, states.QUEUED, outcomes.FRONT),
        ("resend_once", True, states.UNCONFIRMED, None),
        ("fail", False, states.FAILED, None),
        ("fail", True, states.FAILED, None),
    ],
)
def test_a_lost_answer_follows_the_class(choice: str, duplicate: bool, status: str, requeue: str | None) -> None:
    standing = replace(WAITING, possible_duplicate=duplicate)
    change = _close(Ending(2, outcomes.UNCONFIRMED), standing, _rules(choice))
    assert (change.status, change.requeue, change.next_slot) == (status, requeue, 3)
    if status == states.UNCONFIRMED:
        assert change.sweep_at == WAITING.expires_at + 600_000
    if status == states.FAILED:
        assert change.error == {"code": "outcome_unknown", "permanent": False}
    if requeue is not None:
        assert change.possible_duplicate is True


def test_no_resend_without_time_or_attempts() -> None:
    late = replace(WAITING, submit_begun=True, expires_at=NOW)
    assert _close(Ending(2, outcomes.UNCONFIRMED), late, _rules("resend_once")).status == states.UNCONFIRMED
    spent = replace(WAITING, attempts_spent=2)
    assert _close(Ending(2, outcomes.UNCONFIRMED), spent, _rules("resend_once")).status == states.UNCONFIRMED


def test_what_cannot_be_put_on_the_wire_fails() -> None:
    change = _close(Ending(2, outcomes.UNSENDABLE, written=False, fault="unsendable"))
    assert (change.status, change.error) == (states.FAILED, {"code": "unsendable", "permanent": True})


def test_a_slot_or_status_that_moved_on_changes_nothing() -> None:
    assert close(WAITING, Ending(1, outcomes.ACCEPTED, 1), _rules(), NOW, 0.5) is None
    for status in states.ALL - {states.QUEUED}:
        assert close(replace(WAITING, status=status), Ending(2, outcomes.ACCEPTED, 1), _rules(), NOW, 0.5) is None


@pytest.mark.parametrize(
    ("begun", "submit_by", "cause", "stage"),
    [
        (False, NOW, "wait_budget", "queued"),
        (False, NOW + 1, None, None),
        (False, NOW - 5, "wait_budget", "queued"),
        (True, NOW - 5, None, None),
    ],
)
def test_expiry_by_the_clock_that_rules(begun: bool, submit_by: int, cause: str | None, stage: str | None) -> None:
    change = expire(replace(WAITING, submit_begun=begun, submit_by=submit_by), 0, NOW)
    if cause is None:
        assert change is None
    else:
        assert change is not None and change.expiry == {"at": NOW, "cause": cause, "stage": stage}


def test_expiry_by_ttl_names_it() -> None:
    standing = replace(WAITING, submit_by=NOW, expires_at=NOW)
    change = expire(standing, 0, NOW)
    assert change is not None and change.expiry == {"at": NOW, "cause": "ttl", "stage": "queued"}
    change = expire(replace(standing, submit_begun=True), 0, NOW)
    assert change is not None and change.expiry == {"at": NOW, "cause": "ttl", "stage": "retry"}


def test_expired_says_that_nothing_was_accepted_and_nothing_is_in_doubt() -> None:
    late = replace(WAITING, submit_begun=True, expires_at=NOW)
    incomplete = expire(late, 1, NOW)
    assert incomplete is not None and incomplete.error is not None
    assert (incomplete.status, incomplete.error["code"]) == (states.FAILED, "parts_incomplete")
    doubtful = expire(replace(late, possible_duplicate=True), 0, NOW)
    assert doubtful is not None and doubtful.status == states.UNCONFIRMED


@pytest.mark.parametrize(
    ("status", "duplicate", "error", "adopted", "event"),
    [
        (states.UNCONFIRMED, False, None, True, "message.sent"),
        (states.QUEUED, True, None, True, "message.sent"),
        (states.QUEUED, False, None, False, None),
        (states.FAILED, False, {"code": "outcome_unknown"}, True, "message.corrected"),
        (states.FAILED, False, {"code": "attempts_exhausted"}, False, None),
        (states.SENT, False, None, False, None),
        (states.CANCELED, False, None, False, None),
    ],
)
def test_late_acceptance_adopts_only_what_is_in_doubt(
    status: str, duplicate: bool, error: dict[str, Any] | None, adopted: bool, event: str | None
) -> None:
    standing = replace(WAITING, status=status, possible_duplicate=duplicate, error=error)
    change = adopt(standing, Ending(1, outcomes.ACCEPTED, 1), _rules(), NOW)
    assert (change is not None) is adopted
    if change is not None:
        assert (change.status, change.event, change.error) == (states.SENT, event, None)
        assert change.attempts_spent == standing.attempts_spent


def test_late_acceptance_of_one_part_is_not_enough() -> None:
    standing = replace(WAITING, status=states.UNCONFIRMED)
    assert adopt(standing, Ending(1, outcomes.ACCEPTED, 1, parts_total=2), _rules(), NOW) is None


def test_late_refusal_ends_the_doubt() -> None:
    held = replace(WAITING, status=states.UNCONFIRMED, submit_begun=True)
    rejected = refuse_late(held, Ending(1, outcomes.NEVER, refusal=INVALID), _rules(), NOW, 0.5)
    assert rejected is not None and rejected.status == states.REJECTED
    again = refuse_late(held, Ending(1, outcomes.THROTTLED, refusal=THROTTLE), _rules(), NOW, 0.5)
    assert again is not None and (again.status, again.requeue) == (states.QUEUED, outcomes.FRONT)
    doubled = replace(held, possible_duplicate=True)
    assert refuse_late(doubled, Ending(1, outcomes.NEVER, refusal=INVALID), _rules(), NOW, 0.5) is None
    assert refuse_late(WAITING, Ending(1, outcomes.NEVER, refusal=INVALID), _rules(), NOW, 0.5) is None


@pytest.mark.parametrize(("spent", "ceiling"), [(1, 1_000), (2, 2_000), (3, 4_000), (4, 8_000), (40, 8_000)])
def test_back_off_is_full_jitter_below_its_ceiling(spent: int, ceiling: int) -> None:
    retries = Retries(base_ms=1_000, max_ms=8_000)
    assert outcomes.back_off_ms(retries, spent, 0.0) == 0
    assert outcomes.back_off_ms(retries, spent, 0.999_999) == ceiling - 1


_OUTCOMES = (
    outcomes.ACCEPTED,
    outcomes.THROTTLED,
    outcomes.LATER,
    outcomes.NEVER,
    outcomes.HOLD,
    outcomes.GIVEN_BACK,
    outcomes.UNCONFIRMED,
    outcomes.UNSENDABLE,
    outcomes.CLOSED,
)
_CHOICES = ("hold", "resend_once", "fail")
_FLAGS = (False, True)


@pytest.mark.parametrize(("outcome", "choice"), list(product(_OUTCOMES, _CHOICES)))
def test_every_ending_keeps_the_invariants(outcome: str, choice: str) -> None:
    """I1, I10, I14, I15: one legal step, a next look or an end, no silent second submit, no retry beyond its time."""
    for duplicate, begun, spent, accepted, left in product(_FLAGS, _FLAGS, (0, 2, 8), (0, 1, 2), (-1, 0, 1, 30_000)):
        standing = replace(
            WAITING,
            possible_duplicate=duplicate,
            submit_begun=begun,
            attempts_spent=spent,
            submit_by=NOW + min(left, 5_000),
            expires_at=NOW + left,
        )
        taken = 2 if outcome == outcomes.ACCEPTED else accepted
        ending = Ending(2, outcome, taken, parts_total=2, refusal=BUSY)
        change = close(standing, ending, _rules(choice), NOW, 0.99)
        assert change is not None
        legal = {after for (before, _), after in states.TRANSITIONS.items() if before == states.SENDING}
        assert change.status in legal
        final = states.is_final(change.status)
        assert (change.final_at is not None) is final
        assert (change.sweep_at is None) is final
        assert (change.requeue is not None) is (change.status == states.QUEUED)
        assert change.next_slot == 2 + (change.outcome != outcomes.ACCEPTED)
        if change.status == states.QUEUED:
            assert standing.expires_at > NOW
            assert change.due_at is None or NOW <= change.due_at < standing.expires_at
        if change.possible_duplicate and not duplicate:
            assert (choice, change.outcome) == ("resend_once", outcomes.UNCONFIRMED)
        if change.status == states.EXPIRED:
            assert taken == 0 and not duplicate and change.expiry is not None
        if change.status == states.REJECTED:
            assert not duplicate and taken == 0
