"""The pace after throttling answers, on integers of a made-up clock."""

from __future__ import annotations

import pytest

from gateway.egress.pacing import Pacer


def _busy(pacer: Pacer, rate_per_s: int, seconds: float, start_mono: float = 100.0) -> float:
    now_mono = start_mono
    for _ in range(int(rate_per_s * seconds)):
        pacer.spend(now_mono)
        now_mono += 1 / rate_per_s
    return now_mono


def test_an_unthrottled_session_is_not_paced() -> None:
    pacer = Pacer(None)
    now_mono = _busy(pacer, 200, 2.0)
    assert pacer.rate_per_s(now_mono) is None
    assert pacer.wait_s(now_mono) == 0
    assert pacer.measured_per_s == pytest.approx(200, rel=0.1)


def test_throttling_takes_three_tenths_once_per_round_trip() -> None:
    pacer = Pacer(100.0)
    now_mono = _busy(pacer, 100, 2.0)
    pacer.slow(now_mono, 0.2)
    assert pacer.rate_per_s(now_mono) == pytest.approx(70, rel=0.1)
    pacer.slow(now_mono + 0.1, 0.2)
    assert pacer.rate_per_s(now_mono + 0.1) == pytest.approx(70, rel=0.1)
    pacer.slow(now_mono + 0.3, 0.2)
    assert pacer.rate_per_s(now_mono + 0.3) == pytest.approx(49, rel=0.15)


def test_the_pace_grows_five_percent_a_second_and_ends_at_the_configured_rate() -> None:
    pacer = Pacer(100.0)
    now_mono = _busy(pacer, 100, 2.0)
    pacer.slow(now_mono, 0.2)
    slowed = pacer.rate_per_s(now_mono)
    assert slowed is not None
    assert pacer.rate_per_s(now_mono + 1) == pytest.approx(slowed * 1.05, rel=0.01)
    assert pacer.rate_per_s(now_mono + 60) is None


def test_a_paced_session_leaves_gaps() -> None:
    pacer = Pacer(10.0)
    now_mono = _busy(pacer, 10, 2.0)
    pacer.slow(now_mono, 0.1)
    assert pacer.wait_s(now_mono) == 0
    pacer.spend(now_mono)
    assert pacer.wait_s(now_mono) == pytest.approx(1 / 7, rel=0.2)


def test_throttling_never_stops_a_session() -> None:
    pacer = Pacer(None)
    now_mono = 5.0
    for _ in range(50):
        pacer.spend(now_mono)
        pacer.slow(now_mono, 0.01)
        now_mono += 0.2
    rate = pacer.rate_per_s(now_mono)
    assert rate is not None and rate >= 1.0


def test_a_rest_doubles_until_something_is_accepted() -> None:
    pacer = Pacer(None)
    assert pacer.rest(100.0, 1.0, 0.0)
    assert pacer.wait_s(100.0) == pytest.approx(1.0)
    assert not pacer.rest(100.5, 1.0, 0.0), "the answers of one window are one rest"
    assert pacer.rest(101.0, 1.0, 0.0) and pacer.rest_s(101.0) == pytest.approx(2.0)
    assert pacer.rest(103.0, 1.0, 1.0) and pacer.rest_s(103.0) == pytest.approx(3.0), "jitter takes up to a quarter"
    pacer.accepted()
    assert pacer.rest(110.0, 1.0, 0.0) and pacer.rest_s(110.0) == pytest.approx(1.0)
    assert pacer.rest_s(111.0) == 0


def test_a_rest_is_never_longer_than_half_a_minute() -> None:
    pacer, now_mono = Pacer(None), 0.0
    for _ in range(12):
        assert pacer.rest(now_mono, 1.0, 0.0)
        now_mono += pacer.rest_s(now_mono)
    assert pacer.rest(now_mono, 1.0, 0.0) and pacer.rest_s(now_mono) == pytest.approx(30.0)


def test_what_the_scheduler_slowed_leaves_no_faster_here() -> None:
    pacer = Pacer(None)
    now_mono = _busy(pacer, 100, 2.0)
    pacer.follow(40.0, now_mono)
    assert pacer.rate_per_s(now_mono) == pytest.approx(40, rel=0.01)
    pacer.follow(90.0, now_mono)
    assert pacer.rate_per_s(now_mono) == pytest.approx(40, rel=0.01), "what is slower already stays so"
