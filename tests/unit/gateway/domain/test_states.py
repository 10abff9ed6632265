"""The transition table: every pair of state and event, and everybody who changes a status (I1, I2, I3)."""

from __future__ import annotations

from itertools import product

import pytest

from gateway.domain import outcomes, states
from gateway.domain.folding import OUTCOME_UNKNOWN, UNTOUCHED, NetworkWord, settle
from gateway.domain.outcomes import Ending, Refusal, Rules, Standing
from gateway.policy.rules.snapshot import Retries, TrafficClass

# The whole matrix by hand: a line per state, its events in the order of the columns, `.` for nothing.
_NAMES = """release postpone claim cancel suppress expire requeue resend accept refuse exhaust leave_incomplete give_up
doubt doubt_fails deliver undeliver cut_off retract"""
COLUMNS = _NAMES.split()
ABBREVIATIONS = {
    ".": None,
    "que": states.QUEUED,
    "sch": states.SCHEDULED,
    "sdg": states.SENDING,
    "snt": states.SENT,
    "unc": states.UNCONFIRMED,
    "del": states.DELIVERED,
    "und": states.UNDELIVERED,
    "unk": states.UNKNOWN,
    "exp": states.EXPIRED,
    "rej": states.REJECTED,
    "fai": states.FAILED,
    "can": states.CANCELED,
    "sup": states.SUPPRESSED,
}
#                rel pos cla can sup exp req res acc ref exh inc giv dou dfl del und cut ret
MATRIX = """
scheduled        que .   .   can sup exp .   .   .   .   .   .   .   .   .   .   .   .   .
queued           .   sch sdg can sup exp .   .   snt .   .   fai .   unc .   .   .   .   .
sending          .   .   .   .   .   exp que que snt rej fai fai fai unc fai .   .   .   .
unconfirmed      .   .   .   .   .   exp que .   snt rej fai fai .   .   fai del und .   .
sent             .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   del und unk .
delivered        .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   und .   snt
undelivered      .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   del .   .   snt
expired          .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
rejected         .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
failed           .   .   .   .   .   .   .   .   snt .   .   .   .   .   .   del und .   .
suppressed       .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
canceled         .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
unknown          .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   del und .   .
"""
WANTED = {
    (line.split()[0], event): ABBREVIATIONS[cell]
    for line in MATRIX.strip().splitlines()
    for event, cell in zip(COLUMNS, line.split()[1:], strict=True)
}


def test_the_matrix_names_every_state_and_event() -> None:
    assert {state for state, _ in WANTED} == states.ALL
    assert set(COLUMNS) == set(states.EVENTS) == {row.event for row in states.TABLE}
    assert len(states.TRANSITIONS) == len(states.TABLE), "two rows for one pair"


@pytest.mark.parametrize("state", sorted(states.ALL))
def test_every_state_under_every_event(state: str) -> None:
    told = {event: states.transition(state, event) for event in states.EVENTS}
    assert told == {event: WANTED[state, event] for event in states.EVENTS}


def test_an_unknown_event_changes_nothing() -> None:
    assert {states.transition(state, "explode") for state in states.ALL} == {None}


def test_ours_are_closed_for_good() -> None:
    """I3: expired, canceled, suppressed and rejected are never the result of a receipt, nor undone by one."""
    assert not [pair for pair in states.TRANSITIONS if pair[0] in UNTOUCHED]
    for (before, event), after in states.TRANSITIONS.items():
        if event in ("deliver", "undeliver", "cut_off", "retract"):
            assert after not in UNTOUCHED, (before, event)


def test_final_states_leave_only_by_late_evidence() -> None:
    """I2."""
    leaving = {event for before, event in states.TRANSITIONS if states.is_final(before)}
    assert leaving == {"accept", "deliver", "undeliver", "retract"}


def test_every_message_can_reach_an_end() -> None:
    """I10: from every open state some row leads on, and at last to a final state."""
    ends = set(states.FINAL)
    while True:
        more = {before for (before, _), after in states.TRANSITIONS.items() if after in ends} - ends
        if not more:
            break
        ends |= more
    assert ends == states.ALL


def test_origins_are_the_contract_s() -> None:
    carriers = {status for status in states.ALL if states.origin_of(status) == "carrier"}
    assert carriers == {"sent", "delivered", "undelivered", "rejected"}


NOW = 1_000_000
OUTCOMES = ("accepted", "throttled", "later", "never", "hold", "given_back", "unconfirmed", "closed", "unsendable")
# What each function of the outcomes may do to a status, as pairs of the table; a claimed slot's message is `sending`.
_AFTER = {
    before: {after for (b, _), after in states.TRANSITIONS.items() if b == before}
    for before in (states.SENDING, states.QUEUED, states.UNCONFIRMED, states.FAILED)
}


def _rules(choice: str) -> Rules:
    traffic = TrafficClass("transactional", 10_000, 0.5, 60_000, 60_000, 1, 1, "refuse", choice, 3)
    return Rules(traffic, Retries(base_ms=1_000, max_ms=8_000), 50_000)


def _standings() -> list[Standing]:
    return [
        Standing(status, 2, spent, begun, flagged, NOW + min(left, 5_000), NOW + left, error)
        for status, flagged, begun, spent, left, error in product(
            sorted(states.ALL - {states.SENDING}),
            (False, True),
            (False, True),
            (0, 3),
            (-1, 1, 60_000),
            (None, {"code": OUTCOME_UNKNOWN}, {"code": "attempts_exhausted"}),
        )
    ]


def _endings() -> list[Ending]:
    refusal = Refusal("ESME_RMSGQFUL", 0x14)
    return [
        Ending(2, outcome, 2 if outcome == "accepted" else taken, parts_total=2, refusal=refusal)
        for outcome in OUTCOMES
        for taken in (0, 1)
    ]


@pytest.mark.parametrize("choice", ["hold", "fail", "resend_once"])
def test_whatever_ends_a_submit_moves_along_the_table(choice: str) -> None:
    """Exhaustive over statuses, flags, deadlines and outcomes: each change of status is a row of the table."""
    seen: set[tuple[str, str]] = set()
    rules = _rules(choice)
    for standing in _standings():
        ours = outcomes.expire(standing, 0, NOW), outcomes.expire(standing, 1, NOW)
        seen |= {(standing.status, change.status) for change in ours if change is not None}
        for ending in _endings():
            closed = outcomes.close(standing, ending, rules, NOW, 0.5)
            if closed is not None:
                seen.add((states.SENDING, closed.status))
            for late in (
                outcomes.adopt(standing, ending, rules, NOW),
                outcomes.refuse_late(standing, ending, rules, NOW, 0.5),
            ):
                if late is not None:
                    seen.add((standing.status, late.status))
    assert not {(before, after) for before, after in seen if after not in _AFTER.get(before, set())}
    assert {before for before, _ in seen} == {states.SENDING, states.QUEUED, states.UNCONFIRMED, states.FAILED}


def test_whatever_receipts_say_moves_along_the_table() -> None:
    words = [None, *(NetworkWord(word, True, False, "c", None, 1, 2) for word in ("delivered", "expired"))]
    for status, error, word, cut_off in product(
        sorted(states.ALL), (None, OUTCOME_UNKNOWN, "parts_incomplete"), words, (False, True)
    ):
        settled = settle(status, error, word, cut_off=cut_off)
        if settled is not None:
            rows = {after for (before, _), after in states.TRANSITIONS.items() if before == status}
            assert settled.status in rows
            assert status not in UNTOUCHED and settled.corrected is states.is_final(status)
