"""Send windows over time zones, midnight and changes of the clock (contract section 3)."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.admission.clocks import Clocks, open_window
from gateway.admission.problems import Problem
from gateway.admission.send_windows import (
    closed_windows,
    closes_at,
    is_open,
    longest_closed_ms,
    opens_at,
    window_for,
)
from gateway.policy.rules.parse import read_policy
from gateway.policy.rules.snapshot import SendWindow
from gateway.policy.rules.traffic import CLASSES

MARKETING = frozenset({"marketing"})
ZONES = ["Europe/Rome", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC", "Africa/Casablanca"]
POLICY = """
tenants: {acme: {}}
destinations:
  italy: {prefixes: ["+39"], send_window: {classes: [marketing], from: "09:00", to: "20:00", timezone: Europe/Rome}}
  rome: {prefixes: ["+3906"]}
providers: {a: {sessions: {a1: {host: h, port: 1, system_id: s, password: p, bind: transceiver, window: 1}}}}
routes: {all: {match: {}, provider: a}}
"""


def at(text: str, zone: str = "UTC", fold: int = 0) -> int:
    moment = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)
    return int(moment.timestamp() * 1000)


def window(start: str, end: str, zone: str = "Europe/Rome") -> SendWindow:
    def minutes(text: str) -> int:
        return int(text[:2]) * 60 + int(text[3:])

    return SendWindow(MARKETING, minutes(start), minutes(end), zone)


@pytest.mark.parametrize(
    ("local", "is_there", "opening"),
    [
        ("2026-07-01T08:59:59.999", False, "2026-07-01T09:00:00"),
        ("2026-07-01T09:00:00", True, "2026-07-01T09:00:00"),
        ("2026-07-01T19:59:59.999", True, "2026-07-01T19:59:59.999"),
        ("2026-07-01T20:00:00", False, "2026-07-02T09:00:00"),
        ("2026-03-28T20:00:00", False, "2026-03-29T09:00:00"),  # the night has 23 hours
        ("2026-10-24T20:00:00", False, "2026-10-25T09:00:00"),  # the night has 25
    ],
)
def test_a_day_window(local: str, is_there: bool, opening: str) -> None:
    hours = window("09:00", "20:00")
    assert is_open(hours, at(local, "Europe/Rome")) is is_there
    assert opens_at(hours, at(local, "Europe/Rome")) == at(opening, "Europe/Rome")


@pytest.mark.parametrize(
    ("local", "is_there", "opening"),
    [
        ("2026-07-01T21:59", False, "2026-07-01T22:00"),
        ("2026-07-01T23:30", True, "2026-07-01T23:30"),
        ("2026-07-02T05:59", True, "2026-07-02T05:59"),
        ("2026-07-02T06:00", False, "2026-07-02T22:00"),
    ],
)
def test_a_window_over_midnight(local: str, is_there: bool, opening: str) -> None:
    hours = window("22:00", "06:00")
    assert is_open(hours, at(local, "Europe/Rome")) is is_there
    assert opens_at(hours, at(local, "Europe/Rome")) == at(opening, "Europe/Rome")


def test_a_beginning_that_the_clock_skips_opens_as_it_jumps() -> None:
    """On 29 March 2026 Rome goes from 02:00 straight to 03:00."""
    hours = window("02:30", "05:00")
    assert opens_at(hours, at("2026-03-29T00:30", "Europe/Rome")) == at("2026-03-29T03:00", "Europe/Rome")


def test_a_window_that_lies_in_skipped_hours_opens_the_day_after() -> None:
    hours = window("02:10", "02:50")
    assert opens_at(hours, at("2026-03-29T00:30", "Europe/Rome")) == at("2026-03-30T02:10", "Europe/Rome")


def test_repeated_hours_count_each_time() -> None:
    """On 25 October 2026 Rome shows 02:00 to 03:00 twice."""
    hours = window("02:00", "02:30")
    first, second = (at("2026-10-25T02:10", "Europe/Rome", fold) for fold in (0, 1))
    assert second - first == 3_600_000
    assert is_open(hours, first) and is_open(hours, second)
    between = at("2026-10-25T02:45", "Europe/Rome", 0)
    assert not is_open(hours, between)
    assert opens_at(hours, between) == at("2026-10-25T02:00", "Europe/Rome", 1)


def test_a_zone_of_three_quarters_of_an_hour() -> None:
    assert opens_at(window("09:00", "20:00", "Asia/Kathmandu"), at("2026-01-01T00:00")) == at("2026-01-01T03:15")


@settings(max_examples=150, deadline=None)
@given(
    instant=st.integers(at("2026-01-01T00:00"), at("2027-12-31T00:00")),
    start=st.integers(0, 1439),
    length=st.integers(1, 1439),
    zone=st.sampled_from(ZONES),
)
def test_an_opening_is_open_and_nothing_before_it_is(instant: int, start: int, length: int, zone: str) -> None:
    hours = SendWindow(MARKETING, start, (start + length) % 1440, zone)
    opening = opens_at(hours, instant)
    assert is_open(hours, opening) and 0 <= opening - instant <= 49 * 3_600_000
    for tested in range(instant, opening, 60_000):
        assert not is_open(hours, tested)
    closing = closes_at(hours, opening)
    assert not is_open(hours, closing) and closes_at(hours, closing) == closing
    for tested in range(opening, closing, 60_000):
        assert is_open(hours, tested)


def test_which_window_a_message_must_keep() -> None:
    policy = read_policy(POLICY)
    assert window_for(policy, "marketing", "+39333") == policy.destinations["italy"].send_window
    assert window_for(policy, "otp", "+39333") is None
    assert window_for(policy, "marketing", "+390655") is None  # the longer prefix has none
    assert window_for(policy, "marketing", "+44777") is None
    assert closed_windows(policy, at("2026-07-01T12:00")) == (frozenset(), ())
    assert closed_windows(policy, at("2026-07-01T22:00")) == (MARKETING, ("+39",))
    assert longest_closed_ms(window("09:00", "20:00")) == 13 * 3_600_000


def test_the_window_moves_submit_by_and_never_expires_at() -> None:
    evening = at("2026-07-01T21:00", "Europe/Rome")
    traffic = CLASSES["marketing"]
    clocks = Clocks(evening, None, evening + traffic.wait_budget_ms, evening + 20 * 3_600_000)
    moved = open_window(clocks, traffic, window("09:00", "20:00"))
    opening = at("2026-07-02T09:00", "Europe/Rome")
    assert moved == Clocks(evening, opening, opening + traffic.wait_budget_ms, evening + 20 * 3_600_000, "send_window")
    assert open_window(clocks, traffic, None) is clocks
    assert open_window(clocks, traffic, window("20:00", "23:00")) is clocks


def test_a_message_that_is_over_before_its_window_opens_is_refused() -> None:
    evening = at("2026-07-01T21:00", "Europe/Rome")
    clocks = Clocks(evening, None, evening + 3_600_000, evening + 12 * 3_600_000 + 199)
    refused = open_window(clocks, CLASSES["marketing"], window("09:00", "20:00"))
    assert isinstance(refused, Problem) and refused.code == "capacity.infeasible_deadline"
    assert not isinstance(
        open_window(Clocks(*_a_ms_more(clocks)), CLASSES["marketing"], window("09:00", "20:00")), Problem
    )


def _a_ms_more(clocks: Clocks) -> tuple[int, int | None, int, int]:
    return clocks.created_at, clocks.not_before, clocks.submit_by, clocks.expires_at + 1


def test_utc_needs_no_database() -> None:
    assert datetime.fromtimestamp(opens_at(window("00:00", "00:01", "UTC"), 60_000) / 1000, UTC).hour == 0
