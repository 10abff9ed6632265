"""The oracle can fail: every promise broken by hand in a small journal is named, and only that one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loadtests.oracle import CarrierSubmit, Evidence, Findings, Kill, LedgerAttempt, LedgerMessage, in_flight, judge

KILL = Kill("egress", 10_000, 10_010)
SENT = LedgerMessage("msg_1", "r-1", "delivered", None, False, 60_000)
DOUBT = LedgerMessage("msg_2", "r-2", "unconfirmed", None, False, 60_000, sweep_at=660_000)
AGAIN = LedgerMessage("msg_3", "r-3", "delivered", None, True, 60_000)
GOOD = Evidence(
    accepted={"r-1": "msg_1", "r-2": "msg_2", "r-3": "msg_3"},
    messages=(SENT, DOUBT, AGAIN),
    attempts=(
        LedgerAttempt("msg_1", 1_000, "accepted", 1_100),
        LedgerAttempt("msg_2", 9_900, "unconfirmed", 12_000),
        LedgerAttempt("msg_3", 9_950, "unconfirmed", 12_000),
        LedgerAttempt("msg_3", 12_100, "accepted", 12_200),
    ),
    submits=(
        CarrierSubmit("r-1", 1_001, 0),
        CarrierSubmit("r-3", 9_951, 0),
        CarrierSubmit("r-3", 12_101, 0),
    ),
    kills=(KILL,),
)


def _attempts(*changed: LedgerAttempt, without: str = "") -> dict[str, Any]:
    return {"attempts": (*(a for a in GOOD.attempts if a.id != without), *changed)}


def _messages(**changes: Any) -> dict[str, Any]:
    return {"messages": (replace(SENT, **changes), DOUBT, AGAIN)}


def test_a_clean_run_has_no_violation() -> None:
    found = judge(GOOD)
    assert found.violations == []
    assert (found.accepted, found.delivered, found.flagged, found.in_doubt, found.doubles) == (3, 2, 1, 1, 1)
    assert (found.in_flight, found.doubts) == ([2], [2])


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "lost": ({"accepted": {**GOOD.accepted, "r-9": "msg_9"}}, "accepted messages lost: msg_9"),
    "another's message": (
        {"accepted": {**GOOD.accepted, "r-9": "msg_1"}},
        "answers that name another client's message: r-9",
    ),
    "two answers": ({"contradicted": ["r-1"]}, "keys answered with two different messages: r-1"),
    "made twice": (
        {"messages": (replace(SENT, id="msg_8"), *GOOD.messages)},
        "idempotency keys that made more than one message: r-1",
    ),
    "kept though refused": (
        {"accepted": {"r-2": "msg_2", "r-3": "msg_3"}, "refused": frozenset({"r-1"})},
        "refused messages that were kept: r-1",
    ),
    "no end": (_messages(status="sent"), "messages without an end {'sent': 1}: msg_1"),
    "doubt without a date": (
        {"messages": (SENT, replace(DOUBT, sweep_at=None), AGAIN)},
        "messages held in doubt for ever: msg_2",
    ),
    "not called": (
        {"called": frozenset({"msg_3"})},
        "ends that no callback told: msg_1",
    ),
    "open claim": (
        _attempts(LedgerAttempt("msg_1", 1_000, None, None), without="msg_1"),
        "claims that were never closed: msg_1",
    ),
    "unknown to the ledger": (
        {"submits": (*GOOD.submits, CarrierSubmit("r-7", 5_000, 0))},
        "submits that the ledger knows nothing of: r-7",
    ),
    "written before the claim": (
        {"submits": (*GOOD.submits, CarrierSubmit("r-1", 900, 0x58))},
        "submits without a claim before them: msg_1",
    ),
    "unflagged double": (
        {
            **_attempts(LedgerAttempt("msg_1", 1_200, "accepted", 1_300)),
            "submits": (*GOOD.submits, CarrierSubmit("r-1", 1_201, 0)),
        },
        "unflagged doubles at the carrier: msg_1",
    ),
    "unflagged double, one unanswered": (
        {
            **_attempts(LedgerAttempt("msg_1", 1_200, "accepted", 1_300)),
            "submits": (*GOOD.submits, CarrierSubmit("r-1", 1_201, None)),
        },
        "unflagged doubles at the carrier: msg_1",
    ),
    "three times": (
        {
            **_attempts(LedgerAttempt("msg_3", 13_000, "accepted", 13_100)),
            "submits": (*GOOD.submits, CarrierSubmit("r-3", 13_001, 0)),
        },
        "messages sent more than twice: msg_3",
    ),
    "after its end": (
        {"submits": (CarrierSubmit("r-1", 61_001, 0), *GOOD.submits[1:])},
        "messages submitted after they expired: msg_1",
    ),
    "never sent": ({"submits": GOOD.submits[1:]}, "messages called sent that the carrier never had: msg_1"),
    "flagged stranger": (
        _messages(possible_duplicate=True),
        "messages flagged without having been in flight: msg_1 (delivered)",
    ),
    "doubtful stranger": (
        {"messages": (*GOOD.messages, LedgerMessage("msg_4", "r-4", "failed", "outcome_unknown", False, 60_000))},
        "messages in doubt without having been in flight: msg_4 (failed)",
    ),
    "expired stranger": (
        _messages(status="expired"),
        "messages expired without having been in flight: msg_1 (expired)",
    ),
    "doubt though there was a receipt": (
        {"submits": (*GOOD.submits, CarrierSubmit("r-2", 9_901, 0))},
        "doubts that a receipt should have resolved: msg_2",
    ),
    "over the window": (
        {"window_guarded": True, "submits": (CarrierSubmit("r-1", 1_001, 0x58), *GOOD.submits[1:])},
        "submits over the window of their session: r-1",
    ),
    "claim doubted long before": (
        _attempts(LedgerAttempt("msg_1", 1_000, "unconfirmed", 1_100), without="msg_1"),
        "claims put in doubt without having been in flight: msg_1",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_promise_is_named(name: str) -> None:
    changes, said = BROKEN[name]
    assert judge(replace(GOOD, **changes)).violations == [f"1 {said}"]


@pytest.mark.parametrize("target", ["api", "delivery", "valkey", "flushall"])
def test_a_fault_that_leaves_egress_alone_excuses_no_doubt(target: str) -> None:
    violations = judge(replace(GOOD, kills=(replace(KILL, target=target),))).violations
    assert "1 messages flagged without having been in flight: msg_3 (delivered)" in violations
    assert "1 messages in doubt without having been in flight: msg_2 (unconfirmed)" in violations


def test_a_strike_at_an_idle_gateway_proves_nothing() -> None:
    idle = replace(KILL, began_at=30_000, done_at=30_001)
    expected = ["nothing was in flight at fault 2 (egress): it proves nothing"]
    assert judge(replace(GOOD, kills=(KILL, idle))).violations == expected
    assert judge(replace(GOOD, kills=(KILL, replace(idle, repeated=True)))).violations == []


@pytest.mark.parametrize(
    ("claimed_at", "outcome_at", "flies"),
    [
        (9_000, None, True),
        (9_000, 10_005, True),
        (9_000, 9_850, True),  # within the slack of the clocks
        (9_000, 9_849, False),  # answered before
        (10_160, 11_000, True),
        (10_161, 11_000, False),  # claimed after
    ],
)
def test_what_was_in_flight(claimed_at: int, outcome_at: int | None, flies: bool) -> None:
    attempt = LedgerAttempt("msg_1", claimed_at, "accepted", outcome_at)
    assert in_flight([attempt], KILL) == ([attempt] if flies else [])


CODE = replace(SENT, traffic_class="otp", created_at=9_000)
HIT = replace(KILL, pids=(77,))
LEFT = LedgerAttempt("msg_1", 9_900, "accepted", 15_010, pid=77)


def _recovered(attempt: LedgerAttempt | None, *, heirs: bool = True, kills: tuple[Kill, ...] = (HIT,)) -> Findings:
    attempts = _attempts(*([attempt] if attempt else []), without="msg_1")
    changes = {"messages": (CODE, DOUBT, AGAIN), "has_heirs": heirs, "kills": kills, **attempts}
    return judge(replace(GOOD, **changes))


def test_a_code_of_a_killed_process_is_recovered_within_five_seconds() -> None:
    found = _recovered(LEFT)
    assert (found.violations, found.recovered_ms) == ([], [5_000])
    late = _recovered(replace(LEFT, outcome_at=15_011)).violations
    assert late == ["1 codes recovered later than 5 s after their process was killed: msg_1 (fault 1: 5.0 s)"]
    waiting = LedgerAttempt("msg_1", 15_011, "accepted", 15_100, pid=78)
    assert _recovered(waiting).violations == late
    assert _recovered(replace(waiting, claimed_at=15_010)).violations == []


def test_recovery_is_judged_only_where_somebody_could_take_over_and_no_other_fault_came() -> None:
    slow = replace(LEFT, outcome_at=19_000)
    assert _recovered(slow, heirs=False).violations == []
    assert _recovered(slow, heirs=False).recovered_ms == [8_990]
    next_one = Kill("api", 14_000, 14_001)
    assert not any("recovered later" in one for one in _recovered(slow, kills=(HIT, next_one)).violations)
    assert not any("recovered later" in one for one in _recovered(slow, kills=(replace(HIT, target="api"),)).violations)


def test_only_what_has_seconds_to_live_may_expire_without_a_fault() -> None:
    found = judge(replace(GOOD, **_messages(status="expired"), hurried=frozenset({"r-1"})))
    assert (found.violations, found.expired) == ([], 1)
