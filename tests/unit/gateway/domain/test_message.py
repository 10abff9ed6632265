"""The message object, its timeline and its parts."""

from __future__ import annotations

from typing import Any

from gateway.domain import ids
from gateway.domain.message import History, message_object, parts, timeline

AT = 1_764_500_000_000


def row(**change: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "id": ids.uuid7(AT, bytes(10)),
        "status": "queued",
        "class": "otp",
        "recipient": "+447700900123",
        "sender": "ACME",
        "segments": 1,
        "encoding": "gsm7",
        "created_at": AT,
        "submit_by": AT + 10_000,
        "expires_at": AT + 120_000,
        "not_before": None,
        "route": "main",
        "predicted_wait_ms": 5,
        "application": None,
        "client_ref": None,
        "extras": None,
        "policy_version": 1,
        "delivery": None,
        "expiry": None,
        "error": None,
        "possible_duplicate": False,
        "final_at": None,
    }
    return base | change


def attempt(**change: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "slot": 0,
        "kind": "submit",
        "provider": "carrier",
        "session": "a1",
        "claimed_at": AT + 1,
        "written_at": AT + 2,
        "outcome": None,
        "outcome_at": None,
        "command_status": None,
        "parts": None,
    }
    return base | change


def types(row_: dict[str, Any], history: History) -> list[tuple[str, str | None]]:
    return [(event["type"], event["cause"]) for event in timeline(row_, history)]


def test_sending_is_shown_and_not_stored() -> None:
    assert message_object(row(), sending=True)["status"] == "sending"
    assert message_object(row(status="sent"), sending=True)["status"] == "sent"
    shown = message_object(
        row(status="delivered", delivery={"state": "delivered", "provider": "c", "done_at": AT, "received_at": AT})
    )
    assert (shown["final"], shown["origin"]) == (True, "carrier")
    assert shown["delivery"]["done_at"] == ids.rfc3339(AT)
    assert shown["delivery"]["conflict"] is False


def test_an_expiry_names_its_moment() -> None:
    shown = message_object(row(status="expired", expiry={"at": AT, "cause": "ttl", "stage": "queued"}))
    assert shown["expiry"] == {"at": ids.rfc3339(AT), "cause": "ttl", "stage": "queued"}


def test_a_refused_and_resent_message_tells_its_life_in_order() -> None:
    history = History(
        attempts=[
            attempt(outcome="throttled", outcome_at=AT + 3, command_status=0x58),
            attempt(slot=1, claimed_at=AT + 10, written_at=AT + 11, outcome="unconfirmed", outcome_at=AT + 12),
            attempt(slot=2, claimed_at=AT + 20, written_at=None, outcome="given_back", outcome_at=AT + 21),
            attempt(slot=3, kind="expire", claimed_at=AT + 30, outcome="closed", outcome_at=AT + 30),
        ],
        events=[{"at": AT + 15, "type": "resent", "cause": None}],
        receipts=[{"received_at": AT + 16, "state": "enroute"}],
    )
    expired = row(status="expired", expiry={"at": AT + 30, "cause": "ttl", "stage": "retry"})
    assert types(expired, history) == [
        ("accepted", None),
        ("claimed", "a1"),
        ("submitted", "carrier"),
        ("refused", "0x00000058"),
        ("claimed", "a1"),
        ("submitted", "carrier"),
        ("unconfirmed", "unconfirmed"),
        ("resent", None),
        ("receipt", "enroute"),
        ("claimed", "a1"),
        ("expired", "ttl"),
    ]


def test_what_nobody_saw_leave_is_not_told_as_submitted() -> None:
    taken_over = attempt(written_at=AT + 12, outcome="unconfirmed", outcome_at=AT + 12)
    assert types(row(status="unconfirmed"), History(attempts=[taken_over])) == [
        ("accepted", None),
        ("claimed", "a1"),
        ("unconfirmed", "unconfirmed"),
    ]


def test_a_failure_is_the_last_word() -> None:
    failed = row(status="failed", error={"code": "attempts_exhausted"}, final_at=AT + 9)
    assert types(failed, History()) == [("accepted", None), ("failed", "attempts_exhausted")]


def test_parts_of_a_long_message() -> None:
    receipt = {
        "part": 1,
        "state": "undeliverable",
        "provider": "c",
        "error_code": "8",
        "done_at": AT,
        "received_at": AT,
    }
    history = History(attempts=[attempt(parts={"accepted": [2], "doubt": [3]})], receipts=[receipt])
    shown = parts(row(segments=4), [1], history)
    assert [part["status"] for part in shown] == ["undelivered", "sent", "unconfirmed", "waiting"]
    assert shown[0]["delivery"]["error_code"] == "8"
    assert parts(row(), [1], history) == []
