"""The two clocks, what is deferred, and what a refusal tells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.admission.clocks import IDLE_MS, Clocks, defer, set_clocks
from gateway.admission.decisions import decide, rehearsal
from gateway.admission.fields import MessageRequest
from gateway.admission.judgement import Allowed
from gateway.admission.problems import STORAGE, Problem
from gateway.admission.rows import Admitted, Identity, keep_answer_until, new_row
from gateway.admission.verdicts import ask_of, refusal_of
from gateway.domain import ids
from gateway.policy.rules.snapshot import Route, SendWindow, TrafficClass
from scheduler.core.asks import Verdict
from scheduler.core.records import Flow
from smpp.text import Measure

NOW = 1_764_500_000_000
OTP = TrafficClass("otp", 10_000, 0.5, 120_000, 600_000, 60, 1, "refuse", "resend_once", 3)
BULK = replace(OTP, name="marketing", when_full="defer", wait_budget_ms=60_000)


def clocks(request: MessageRequest, traffic: TrafficClass = OTP, carrying_ms: int = 0) -> Clocks | Problem:
    return set_clocks(request, traffic, NOW, carrying_ms)


def test_the_clocks_of_a_message_that_may_leave_at_once() -> None:
    assert clocks(MessageRequest()) == Clocks(NOW, None, NOW + 10_000, NOW + 120_000)
    assert clocks(MessageRequest(ttl_ms=5_000)) == Clocks(NOW, None, NOW + 5_000, NOW + 5_000)
    assert clocks(MessageRequest(expires_at=NOW + 30_000)) == Clocks(NOW, None, NOW + 10_000, NOW + 30_000)
    assert clocks(MessageRequest(send_at=NOW - 1)) == Clocks(NOW, None, NOW + 10_000, NOW + 120_000)


def test_send_at_moves_both_clocks() -> None:
    at = NOW + 3_600_000
    assert clocks(MessageRequest(send_at=at)) == Clocks(NOW, at, at + 10_000, at + 120_000, "send_at")
    assert clocks(MessageRequest(send_at=at, expires_at=at + 60_000)) == Clocks(
        NOW, at, at + 10_000, at + 60_000, "send_at"
    )


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (MessageRequest(ttl_ms=600_001), "policy.ttl"),
        (MessageRequest(expires_at=NOW + 600_001), "policy.ttl"),
        (MessageRequest(expires_at=NOW), "capacity.infeasible_deadline"),
        (MessageRequest(expires_at=NOW + IDLE_MS - 1), "capacity.infeasible_deadline"),
        (MessageRequest(expires_at=NOW + 5_000, send_at=NOW + 6_000), "capacity.infeasible_deadline"),
    ],
)
def test_deadlines_that_no_waiting_cures(request_: MessageRequest, code: str) -> None:
    problem = clocks(request_)
    assert isinstance(problem, Problem)
    assert (problem.status, problem.code, problem.retry_after_s) == (422, code, None)


def test_a_long_message_needs_the_time_of_its_last_segment() -> None:
    assert isinstance(clocks(MessageRequest(ttl_ms=9_000), carrying_ms=9_000), Problem)
    assert isinstance(clocks(MessageRequest(ttl_ms=9_000), carrying_ms=8_800), Clocks)


def test_deferral_moves_submit_by_and_never_expires_at() -> None:
    kept = Clocks(NOW, None, NOW + 60_000, NOW + 120_000)
    assert defer(kept, BULK, 30_000) == Clocks(NOW, NOW + 30_000, NOW + 90_000, NOW + 120_000, "deferral")
    assert defer(kept, BULK, 100_000) == Clocks(NOW, NOW + 100_000, NOW + 120_000, NOW + 120_000, "deferral")
    assert defer(kept, BULK, 120_000) is None


def allowed(traffic: TrafficClass = OTP) -> Allowed:
    route = Route("main", "carrier", (), None, None, None, None, 1, 1)
    made = clocks(MessageRequest(), traffic)
    assert isinstance(made, Clocks)
    flow = Flow("carrier", traffic.name, "acme", ("tenant:acme",), 6)
    request = MessageRequest("+447700900123", "hi")
    measured = Measure("gsm7", 1)
    return Allowed(request, "hi", traffic, "+447700900123", "ACME", measured, (route,), (flow,), bytes(8), made)


def verdict(**change: Any) -> Verdict:
    base = Verdict(False, 0, 7_000, 6_000, ("route", "main"), "age", 3)
    return replace(base, **change)


def test_the_ask_carries_the_door_limit() -> None:
    ask = ask_of(allowed(), b"12345678")
    assert (ask.budget_ms, ask.door_limit_ms, ask.left_ms, ask.defer_until) == (10_000, 5_000, 120_000, 0)


def test_the_ask_tells_how_late_a_deferred_message_may_begin() -> None:
    assert ask_of(allowed(BULK), b"12345678").defer_until == NOW + 96_000


@pytest.mark.parametrize(
    ("closes_in_min", "opens_in_min", "until_ms"),
    [
        (1, 60, 60_000 - 1),  # it would be over before the window opens again
        (1, 1 + 1, 96_000),  # the next opening is in time still
        (30, 60, 96_000),
    ],
)
def test_what_no_window_would_let_out_is_not_deferred(closes_in_min: int, opens_in_min: int, until_ms: int) -> None:
    minute = NOW // 60_000
    start = minute * 60_000
    here = replace(clocks_of(BULK), created_at=start, expires_at=start + 120_000 + IDLE_MS)
    wall = minute % 1_440
    window = SendWindow(frozenset({BULK.name}), (wall + opens_in_min) % 1_440, (wall + closes_in_min) % 1_440, "UTC")
    ask = ask_of(replace(allowed(BULK), clocks=here, window=window), b"12345678")
    assert ask.defer_until == start + (until_ms if until_ms < 96_000 else int(0.8 * (120_000 + IDLE_MS)))


def clocks_of(traffic: TrafficClass) -> Clocks:
    made = clocks(MessageRequest(), traffic)
    assert isinstance(made, Clocks)
    return made


def test_retry_after_is_never_longer_than_a_day() -> None:
    problem = refusal_of(allowed(), verdict(retry_after_s=999_999_995))
    assert problem.retry_after_s == problem.members["retry_after_s"] == 86_400


def test_a_shared_scope_refuses_with_503_and_its_members() -> None:
    problem = refusal_of(allowed(), verdict())
    assert (problem.status, problem.code, problem.retry_after_s) == (503, "capacity.class_budget_exceeded", 3)
    assert dict(problem.members) == {
        "class": "otp", "scope": {"kind": "route", "name": "main"}, "cause": "age", "queue_age_ms": 6_000,
        "predicted_wait_ms": 7_000, "wait_budget_ms": 10_000, "door_limit_ms": 5_000, "retry_after_s": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("scope", "says"),
    [
        (("route", "main"), "Route main is paused."),
        (("provider", "carrier"), "Provider carrier sends nothing now: it is paused, it has no session bound,"),
        (None, "Every route that could take the message is paused."),
    ],
)
def test_a_pause_is_called_one(scope: tuple[str, str] | None, says: str) -> None:
    problem = refusal_of(allowed(), verdict(cause="paused", scope=scope, retry_after_s=31))
    assert problem.detail.startswith(says) and problem.retry_after_s == 31


@pytest.mark.parametrize("scope", [("tenant", "acme"), ("application", "acme/spring/sale")])
def test_an_own_scope_refuses_with_429(scope: tuple[str, str]) -> None:
    problem = refusal_of(allowed(), verdict(scope=scope, retry_after_s=0))
    assert (problem.status, problem.code, problem.retry_after_s) == (429, "quota.backlog", 1)
    assert problem.members["scope"]["name"] in ("acme", "spring/sale")


def test_decisions() -> None:
    accepted = decide(allowed(), verdict(accepted=True, predicted_wait_ms=12))
    assert isinstance(accepted, Admitted)
    assert (accepted.due_kind, accepted.predicted_wait_ms) == (None, 12)
    assert isinstance(decide(allowed(), verdict()), Problem)
    held = decide(allowed(BULK), verdict(predicted_wait_ms=70_000, not_before=NOW + 40_000))
    assert isinstance(held, Admitted)
    assert held.due_kind == "deferral"
    assert held.clocks.not_before == NOW + 40_000  # as the scheduler decided
    assert isinstance(decide(allowed(BULK), verdict(predicted_wait_ms=70_000)), Problem)
    assert decide(allowed(BULK), verdict(cause="storage")) is STORAGE


def test_a_rehearsal_tells_what_would_happen() -> None:
    shown = rehearsal(allowed(), decide(allowed(), verdict()), verdict())
    assert (shown["verdict"], shown["problem"]["code"]) == ("refuse", "capacity.class_budget_exceeded")
    own = verdict(scope=("tenant", "acme"))
    assert rehearsal(allowed(), decide(allowed(), own), own)["verdict"] == "slow_down"


def test_new_rows() -> None:
    decision = decide(allowed(BULK), verdict(predicted_wait_ms=70_000, not_before=NOW + 40_000))
    assert isinstance(decision, Admitted)
    row = new_row(allowed(BULK), decision, Identity(ids.uuid7(NOW, bytes(10)), 3, 7))
    assert (row["status"], row["due_kind"], row["not_before"]) == ("scheduled", "deferral", NOW + 40_000)
    assert (row["extras"], row["tenant_id"], row["policy_version"]) == (None, 3, 7)
    assert keep_answer_until(row, 0) == NOW + 86_400_000
    assert keep_answer_until(row, 259_200_000) == NOW + 120_000 + 600_000 + 259_200_000
