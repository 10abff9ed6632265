"""Every state of a message has a reason that names what to look at."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from gateway.domain import states
from gateway.domain.explanation import Wait, explain
from scheduler.core.asks import Explanation

NOW = 1_800_000_000_000
INDEX = Explanation(("route", "it-main"), 2.5, 7, NOW + 5_000)


def row(status: str, **values: Any) -> dict[str, Any]:
    return {
        "id": UUID(int=1), "status": status, "submit_by": NOW + 60_000, "expires_at": NOW + 120_000, "not_before": None,
        "provider": "carrier-a", "error": None, "expiry": None, "delivery": None, "final_at": None, "sent_at": None,
        "sweep_at": None,
    } | values  # fmt: skip


@pytest.mark.parametrize("status", sorted(states.ALL - {states.SENDING}))
def test_no_state_is_without_a_reason(status: str) -> None:
    told = explain(row(status, final_at=NOW), Wait(), INDEX, NOW)
    assert (told["waiting_for"] is None) == told["final"]
    assert (told["ended"] is not None) == told["final"]
    if told["final"]:
        assert told["ended"]["reason"].endswith(".") and told["ended"]["origin"] == states.origin_of(status)
    else:
        assert told["waiting_for"]["scope"]


@pytest.mark.parametrize(
    ("status", "wait", "values", "scope", "name"),
    [
        ("scheduled", Wait(NOW + 9, "send_window"), {"not_before": NOW + 9}, "not_before", "send_window"),
        ("scheduled", Wait(NOW + 9, "deferral"), {"not_before": NOW + 9}, "not_before", "deferral"),
        (
            "scheduled",
            Wait(NOW + 9, "deferral", paused_kind="route", paused_name="main"),
            {"not_before": NOW + 9},
            "paused",
            "main",
        ),
        ("scheduled", Wait(NOW - 9, "send_at"), {"not_before": NOW - 9}, "fairness", "release"),
        ("queued", Wait(NOW + 9, "retry"), {"error": {"carrier_status": "0x00000014"}}, "retry", "0x00000014"),
        ("queued", Wait(NOW + 9, "send_window"), {}, "not_before", "send_window"),
        ("queued", Wait(held_kind="application", held_name="acme/sale"), {}, "paused", "sale"),
        ("queued", Wait(claimed_at=NOW, session="a1"), {}, "answer", "a1"),
        ("queued", Wait(), {}, "route", "it-main"),
        ("unconfirmed", Wait(), {}, "confirmation", "carrier-a"),
        ("sent", Wait(), {}, "receipt", "carrier-a"),
    ],
)
def test_what_it_waits_for(status: str, wait: Wait, values: dict[str, Any], scope: str, name: str) -> None:
    told = explain(row(status, **values), wait, INDEX, NOW)
    assert (told["waiting_for"]["scope"], told["waiting_for"]["name"]) == (scope, name)
    assert told["status"] == ("sending" if wait.claimed_at else status)


def test_the_queue_s_word_is_passed_on() -> None:
    told = explain(row("queued"), Wait(), INDEX, NOW)
    assert told["waiting_for"] == {"scope": "route", "name": "it-main", "tokens_missing": 2.5}
    assert told["position"] == 7 and told["predicted_start"].endswith("Z")
    paused = explain(row("queued"), Wait(), Explanation(("paused", "application:acme/sale")), NOW)
    assert paused["waiting_for"] == {"scope": "paused", "kind": "application", "name": "sale", "tokens_missing": None}
    lost = explain(row("queued"), Wait(), None, NOW)
    assert (lost["waiting_for"]["scope"], lost["waiting_for"]["kind"]) == ("paused", "index")


def test_a_start_that_comes_too_late_is_no_promise() -> None:
    late = explain(row("queued"), Wait(), Explanation(("session_down", "p"), None, 1, NOW + 60_001), NOW)
    assert late["will_expire"] is True
    assert "will_expire" not in explain(row("queued"), Wait(), INDEX, NOW)


def test_a_deferral_for_a_pause_says_when_it_is_looked_at_again() -> None:
    wait = Wait(NOW + 9, "deferral", paused_kind="route", paused_name="main")
    told = explain(row("scheduled", not_before=NOW + 60_000), wait, None, NOW)
    assert told["waiting_for"] == {"scope": "paused", "kind": "route", "name": "main", "tokens_missing": None}
    assert told["predicted_start"] is None and told["looked_at_again"].endswith("Z")


def test_an_end_names_its_code() -> None:
    expired = explain(row("expired", expiry={"at": NOW, "cause": "wait_budget", "stage": "queued"}), Wait(), None, NOW)
    assert expired["ended"]["code"] == "wait_budget"
    failed = explain(row("failed", error={"code": "outcome_unknown", "permanent": False}), Wait(), None, NOW)
    assert failed["ended"]["code"] == "outcome_unknown"
    undelivered = explain(row("undelivered", delivery={"state": "rejected"}), Wait(), None, NOW)
    assert undelivered["ended"] == {
        "at": None, "origin": "carrier", "code": "rejected", "reason": "The network says that it will not arrive."
    }  # fmt: skip
