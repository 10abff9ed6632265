"""What is wrong now: each fault is found, each says what to do, and a healthy gateway has none."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.console.findings import BAD, WARN, find
from gateway.console.history import History, Told
from gateway.console.overview import shown_class
from gateway.ledger.pauses import Pause, Place


def healthy() -> dict[str, Any]:
    processes = [
        {"role": role, "worker": f"{role}-1", "healthy": True, "policy_error": None, "silent_ms": 100}
        for role in ("api", "egress", "delivery")
    ]
    return {
        "index_answers": True,
        "processes": processes,
        "classes": {"otp": {"queue_age_ms": 0, "door_limit_ms": 5_000, "wait_budget_ms": 10_000}},
        "sessions": {
            "a1": {
                "state": "bound",
                "worker": "egress-1",
                "address": "smsc:2775",
                "last_error": None,
                "link": {"state": "up", "rate_share": 1.0, "since_ms": 5, "probe_in_ms": 0},
            }
        },
    }


def test_a_healthy_gateway_has_no_findings() -> None:
    assert find(healthy(), {"coverage/a": 0.97, "inbox_age_s": 1.0, "partitions_ahead_days": 7.0}) == []


def set_in(status: dict[str, Any], path: str, value: Any) -> None:
    *steps, last = path.split(".")
    for step in steps:
        status = status[int(step)] if isinstance(status, list) else status[step]
    status[last] = value


@pytest.mark.parametrize(
    ("path", "value", "tone", "words"),
    [
        ("index_answers", False, BAD, "queue (Valkey) does not answer"),
        ("classes.otp.queue_age_ms", 6_000, WARN, "door is closed for otp"),
        ("classes.otp.queue_age_ms", 11_000, WARN, "otp: resends wait longer than its budget"),
        ("sessions.a1.state", "refused", BAD, "refuses session a1"),
        ("sessions.a1.state", "waiting", BAD, "not bound"),
        ("sessions.a1.link.state", "open", BAD, "breaker of session a1"),
        ("sessions.a1.link.rate_share", 0.25, WARN, "slowed down"),
    ],
)
def test_each_fault_is_found(path: str, value: Any, tone: str, words: str) -> None:
    status = healthy()
    set_in(status, path, value)
    (found,) = find(status, {})
    assert found.tone == tone
    assert words in found.title
    assert found.advice


@pytest.mark.parametrize("age_ms", [0, 9_000, 11_000])
def test_accepted_messages_that_expire_unsent_break_the_promise(age_ms: int) -> None:
    status = healthy()
    status["classes"]["otp"]["queue_age_ms"] = age_ms
    (found,) = find(status, {}, expiring={"otp"})
    assert (found.tone, found.title) == (BAD, "otp expires unsent")
    assert "10 s" in found.advice


def test_a_door_that_refuses_is_found_by_its_predicted_wait_and_an_outage_is_no_good_news() -> None:
    status = healthy()
    scope = {"kind": "provider", "name": "a"}
    door = {"verdict": "refuse", "predicted_wait_ms": 7_100, "cause": "wait", "tenant": "acme", "scope": scope}
    status["classes"]["otp"]["door"] = door
    (found,) = find(status, {})
    assert (found.tone, found.title) == (
        WARN, "The door refuses otp: predicted wait 7.1 s, door limit 5 s, held by provider a"
    )  # fmt: skip
    assert "still goes out in time" in found.advice
    status["blockers"] = [{"class": "otp", "scope": scope, "waiting": 3, "since_ms": 900}]
    status["providers"] = {"a": {"state": "up"}}
    assert "still goes out in time" in find(status, {})[0].advice, "a limit lets some pass"
    status["providers"] = {"a": {"state": "down"}}
    assert "does not go out either" in find(status, {})[0].advice


def test_a_session_without_holder_and_a_dead_role() -> None:
    status = healthy()
    status["sessions"]["a1"] |= {"state": "closed", "worker": None}
    status["processes"] = [one for one in status["processes"] if one["role"] != "egress"]
    assert {one.title for one in find(status, {})} == {"No healthy egress process", "Session a1 is held by nobody"}


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({"coverage/a": 0.4}, "40"),
        ({"retry_share/a": 0.8}, "retries"),
        ({"inbox_age_s": 90.0}, "Receipts wait"),
        ({"callbacks_age_s": 900.0}, "callback waits"),
        ({"clock_doubtful": 1.0}, "Clocks"),
        ({"partitions_ahead_days": 0.0}, "partitions"),
    ],
)
def test_gauges_that_are_wrong(now: dict[str, float], words: str) -> None:
    (found,) = find(healthy(), now)
    assert words in found.title


def test_pauses_by_hand_are_told_after_what_is_bad() -> None:
    status = healthy()
    status["index_answers"] = False
    paused = [
        Pause(Place("session", "a1"), "drain", 1, "key 7"),
        Pause(Place("application", "x", 1, "acme"), "pause", 1, "t"),
    ]
    titles = [one.title for one in find(status, {}, paused)]
    assert titles[1:] == ["Session a1 is draining by hand", "Application acme/x is paused by hand"]


@pytest.mark.parametrize(
    ("age_ms", "expired", "verdict", "tone"),
    [
        (0, 0, "in time", "good"),
        (6_000, 0, "door closed", "warn"),
        (11_000, 0, "resends wait", "warn"),
        (11_000, 3, "expires unsent", "bad"),
        (0, 3, "expires unsent", "bad"),
    ],
)
def test_a_class_is_red_when_its_promise_is_broken(age_ms: int, expired: int, verdict: str, tone: str) -> None:
    history = History()
    for step in range(4):
        sums = {"expired/otp/wait_budget": float(expired * step), "expired/otp/ttl": float(step)}
        figures = {"at": 1_000_000 + step * 5_000, "sums": sums, "now": {}}
        history.take([Told(1, 900_000, figures)], 1_000_000 + step * 5_000)
    one = {"queue_age_ms": age_ms, "door_limit_ms": 5_000, "wait_budget_ms": 10_000, "door": None}
    shown = shown_class("otp", one, history)
    assert (shown["verdict"], shown["tone"]) == (verdict, tone)
