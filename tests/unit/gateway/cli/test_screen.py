"""The screen of `top`: what it shows, at which widths, and how rates come about."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from gateway.cli.screen import bar, screen
from gateway.cli.sight import Counters, Sight, rates_between, read_page, sight_of

PAGE = """
# HELP sluicegate_admissions_total Decisions of the door.
# TYPE sluicegate_admissions_total counter
sluicegate_admissions_total{role="api",worker="api-1",class="otp",verdict="accept",reason=""} %d.0
sluicegate_admissions_total{role="api",worker="api-2",class="otp",verdict="accept",reason=""} 10.0
sluicegate_admissions_total{role="api",worker="api-1",class="otp",verdict="refuse",reason="a } b"} %d.0
sluicegate_segments_submitted_total{role="egress",worker="egress-1",class="otp"} %d.0
sluicegate_expired_total{role="delivery",worker="d",class="otp",cause="ttl",stage="queued"} %d.0
sluicegate_submits_total{role="egress",worker="e",provider="carrier-a",session="a1",outcome="throttled",attempt="first"} %d.0
sluicegate_callback_backlog{role="delivery",worker="d"} 12.0
sluicegate_receipt_coverage_ratio{role="delivery",worker="d",provider="carrier-a"} 0.985
sluicegate_queue_depth{role="delivery",worker="d",class="otp",provider="carrier-a"} 5.0
"""  # noqa: E501


def a_class(depth: int | None, age_ms: int | None, budget_ms: int) -> dict[str, Any]:
    return {
        "weight": 1, "wait_budget_ms": budget_ms, "door_limit_ms": budget_ms // 2,
        "queue_depth": depth, "queue_age_ms": age_ms, "drain_per_s": 1.0,
    }  # fmt: skip


REFUSES = {
    "verdict": "refuse", "predicted_wait_ms": 7_100, "tenant": "acme", "route": "it-main", "cause": "wait",
    "scope": {"kind": "route", "name": "it-main"},
}  # fmt: skip


def a_status(**changes: Any) -> dict[str, Any]:
    session = {"provider": "carrier-a", "address": "smsc.example:2775", "window": 50, "rate_per_s": 80.0, "worker": "e"}
    return {
        "at": "2026-11-30T16:14:08.123Z",
        "policy_version": 7,
        "processes": [
            {"role": "api", "worker": "api-1", "pid": 1, "healthy": True, "policy_version": 7, "policy_error": None}
        ],
        "classes": {
            "otp": a_class(3, 40, 10_000),
            "transactional": a_class(1_204, 71_000, 120_000),
            "marketing": a_class(1_048_211, 13_900_000, 14_400_000),
            "non_priority": a_class(None, None, 43_200_000),
        },
        "providers": {
            "carrier-a": {
                "rate_per_s": 150.0, "sessions": ["a1", "a2"], "state": "up",
                "queue_depth": 900, "queue_age_ms": 71_000, "drain_per_s": 148.2,
            }
        },
        "sessions": {
            "a1": session | {"state": "bound", "used": 31, "rate": 79.5, "limit": 80.0, "last_error": None},
            "a2": session | {"state": "bound", "used": 2, "rate": 3.5, "limit": 40.0, "last_error": "ESME_RTHROTTLED"},
        },
        "routes": {},
        "scopes": [
            {"kind": "tenant", "name": "acme", "waiting": 840, "tokens": 0.31, "held_ms": 2_300, "paused": False},
            {"kind": "route", "name": "it-main", "waiting": 60, "tokens": 0.0, "held_ms": 60_000, "paused": True},
        ],
        "tenants": {"acme": 840, "globex": 60, "idle": 0},
        "blockers": [
            {"class": "marketing", "scope": {"kind": "tenant", "name": "acme"}, "waiting": 840, "since_ms": 2_300}
        ],
        "paused": [],
    } | changes  # fmt: skip


def drawn(sight: Sight, width: int = 80, height: int = 60) -> list[str]:
    console = Console(width=width, height=height, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(screen(sight, width, height))
    return console.export_text().splitlines()


def test_rates_are_summed_over_processes_and_a_restart_counts_from_zero() -> None:
    before, after = read_page(PAGE % (100, 5, 90, 0, 4), 10.0), read_page(PAGE % (120, 9, 30, 1, 5), 12.0)
    rates = rates_between(before, after)
    assert rates.classes["otp"] == {"admitted": 10.0, "refused": 2.0, "sent": 15.0, "expired": 0.5}
    assert rates.providers["carrier-a"] == {"throttled": 0.5}
    sight = sight_of(a_status(), before, after)
    assert sight.gauges == {"callback_backlog": 12.0}
    assert sight.coverage == {"carrier-a": 0.985}
    assert sight.as_json()["rates"]["classes"]["otp"]["sent"] == 15.0
    assert sight_of(a_status(), None, after).as_json()["rates"] is None
    assert not read_page('sluicegate_receipt_inbox_depth{role="delivery"} NaN', 0.0).families
    assert not read_page("sluicegate_callback_backlog{} 1.0", 0.0).whole


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_screen_fits_its_width_and_tells_what_matters(width: int) -> None:
    before, after = read_page(PAGE % (100, 5, 90, 0, 4), 10.0), read_page(PAGE % (120, 9, 30, 1, 5), 12.0)
    lines = drawn(sight_of(a_status(), before, after), width)
    assert max(len(line) for line in lines) <= width
    text = "\n".join(lines)
    for told in (
        "policy 7", "otp", "transactional", "1 048 211", "3.86 h", "12 h", "carrier-a", "2/2 bound", "31/50", "a2",
        "acme", "it-main", "840", "held back by", "callbacks to send 12", "q quits",
    ):  # fmt: skip
        assert told in text, told
    assert "…" not in lines[3], "numbers are whole"
    assert lines[2].split()[-4:] == ["in/s", "no/s", "out/s", "exp/s"]
    assert lines[3].split()[-4:] == ["10", "2.0", "15", "0.5"]
    assert ("ESME_RTHROTTLED" in text) is (width >= 80)


@pytest.mark.parametrize("height", [8, 12, 24, 40])
def test_the_screen_fits_its_height_and_classes_come_first(height: int) -> None:
    many = {f"s{n}": a_status()["sessions"]["a1"] for n in range(40)}
    lines = drawn(Sight(a_status(sessions=many | a_status()["sessions"])), 80, height)
    assert len(lines) <= height
    assert any("non_priority" in line for line in lines)
    if height == 40:
        assert any("more" in line for line in lines)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, "all 1 processes healthy"),
        ({"paused": [{"kind": "route", "name": "x", "tenant": None, "mode": "pause"}]}, "1 paused by hand"),
        ({"sessions": {"a1": a_status()["sessions"]["a1"] | {"state": "closed"},
                       "a2": a_status()["sessions"]["a2"]}}, "1 of 2 sessions not bound"),
        ({"processes": [a_status()["processes"][0] | {"healthy": False}]}, "api-1 not healthy"),
        ({"classes": {"otp": a_class(3, 40, 10_000) | {"door": REFUSES}}}, "the door refuses otp"),
        ({"classes": {"otp": a_class(3, 40, 10_000) | {"door": REFUSES | {"verdict": "accept"}}}}, "all 1 processes"),
    ],
)  # fmt: skip
def test_the_headline_tells_the_worst(change: dict[str, Any], told: str) -> None:
    assert told in drawn(Sight(a_status(**change)))[0]


def test_the_predicted_wait_is_shown_beside_the_age() -> None:
    line = drawn(Sight(a_status(classes={"otp": a_class(3, 40, 10_000) | {"door": REFUSES}})), 120)[3]
    assert line.split()[:6] == ["otp", "3", "40", "ms", "7.1", "s"]
    assert "receipts to merge -" in drawn(Sight(a_status()))[-1]


def test_one_look_has_no_columns_of_rates_and_two_fall_to_zero() -> None:
    alone = "\n".join(drawn(Sight(a_status()), 160))
    assert "no/s" not in alone
    assert "drain/s" in alone
    page = read_page(PAGE % (100, 5, 90, 0, 4), 10.0)
    lines = drawn(sight_of(a_status(), page, read_page(PAGE % (100, 5, 90, 0, 4), 12.0)), 160)
    carrier = next(line for line in lines if line.startswith("carrier-a"))
    assert carrier.split()[1:8] == ["up", "2/2", "bound", "900", "1.18", "min", "0"], (
        "nothing was answered between them"
    )


def test_bars() -> None:
    assert bar(0.5, 10).plain == "█████─────"
    assert bar(0.0, 10, 0.5).plain == "─────┊────"
    assert bar(0.001, 10).plain[0] == "▏", "a little is not nothing"
    assert bar(7.0, 4).plain == "████"
    assert bar(None, 4).plain == "····"
    assert [str(bar(share, 8, 0.5).spans[0].style) for share in (0.4, 0.6, 0.95)] == ["green", "yellow", "bold red"]


def test_a_page_of_garbage_is_nothing() -> None:
    assert read_page('\x00\n{}\nsluicegate_x{a=} 1\nsluicegate_expired_total{class="otp"} 1', 0.0) == Counters(
        0.0, {"expired_total": {frozenset({("class", "otp")}): 1.0}}, False
    )
