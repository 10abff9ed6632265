"""The ring behind the charts: counters spread over the time between two heartbeats, restarts, gaps, its bound."""

from __future__ import annotations

from typing import Any

import pytest

from gateway import figures
from gateway.console.history import STEP_MS, STEPS, History, Told
from gateway.telemetry import metrics

T0 = 1_900_000_000_000


def told(at: int, sums: dict[str, float], *, process: int = 1, started_at: int = 0, **now: float) -> Told:
    return Told(process, started_at, {"at": at, "sums": sums, "now": now})


def test_a_steady_rate_is_drawn_flat_whatever_the_phase_of_the_heartbeats() -> None:
    history = History()
    for second in range(0, 61, 2):  # 10 per s, told every 2 s: steps of 5 s cut the heartbeats
        history.take([told(T0 + second * 1000, {"sent/otp": 10.0 * second})], T0 + second * 1000 + 300)
    drawn = history.series(["otp"])["classes"]["otp"]["sent"]
    assert drawn == [10.0] * len(drawn)
    assert len(drawn) == 11
    assert history.rate_per_s("sent/otp") == pytest.approx(10.0)
    assert history.rate_per_s("sent/marketing") == 0.0


def test_what_was_before_the_first_look_is_not_counted() -> None:
    history = History()
    assert history.rate_per_s("sent/otp") is None
    for second in range(0, 21, 2):
        history.take([told(T0 + second * 1000, {"sent/otp": 1_000_000.0})], T0 + second * 1000)
    assert history.rate_per_s("sent/otp") == 0.0
    assert history.total("sent") == {}


def test_a_process_that_begins_while_we_look_counts_from_its_start() -> None:
    history = History()
    history.take([told(T0, {})], T0)
    later = T0 + 10_000
    new = told(later, {"refused/otp/quota.rate": 8.0}, process=2, started_at=T0 + 6_000)
    history.take([told(later, {}), new], later)
    assert history.total("refused/otp") == {"quota.rate": pytest.approx(8.0)}


def test_a_restart_is_no_fall_and_a_long_silence_is_put_nowhere() -> None:
    history = History()
    history.take([told(T0, {"sent/otp": 100.0})], T0)
    history.take([], T0 + 2_000)
    history.take([told(T0 + 4_000, {"sent/otp": 5.0}, process=9, started_at=1)], T0 + 4_000)
    assert history.total("sent") == {}, "nobody knows when it counted these five"
    history.take([told(T0 + 200_000, {"sent/otp": 905.0}, process=9, started_at=1)], T0 + 200_000)
    assert history.total("sent") == {}


def test_ages_are_carried_between_looks_and_the_ring_is_bounded() -> None:
    history = History()
    for step in range(STEPS + 50):
        at = T0 + step * STEP_MS
        now: dict[str, Any] = {"age_s/otp": 3.0} if step % 2 == 0 else {}
        history.take([told(at, {"sent/otp": float(step)}, **now)], at)
    drawn = history.series(["otp"])
    assert len(drawn["at"]) == STEPS
    assert drawn["classes"]["otp"]["age_s"][1:] == [3.0] * (STEPS - 1)
    assert len(history._steps) <= STEPS + 1


def test_figures_are_read_from_the_metrics() -> None:
    before = figures.read(T0, "api")["sums"]
    metrics.admissions_total.labels("otp", "refuse", "quota.test").inc(3)
    metrics.admissions_total.labels("otp", "accept", "ok").inc(2)
    metrics.admissions_total.labels("otp", "replay", "replay").inc(7)
    metrics.submits_total.labels("c", "s-test", "throttle", "first").inc(4)
    metrics.submit_response_seconds.labels("c-test").observe(0.5)
    after = figures.read(T0, "api")
    grown = {key: value - before.get(key, 0.0) for key, value in after["sums"].items()}
    assert {key: value for key, value in grown.items() if value} == {
        "refused/otp/quota.test": 3.0,
        "accepted/otp": 2.0,
        "answers/s-test/throttle": 4.0,
        "round_trip_s/c-test": 0.5,
        "round_trips/c-test": 1.0,
    }
    assert after["at"] == T0


def test_only_who_keeps_a_gauge_tells_it() -> None:
    metrics.queue_age_seconds.labels("otp", "a", "1").set(4.0)
    metrics.queue_age_seconds.labels("otp", "b", "1").set(9.0)
    metrics.queue_age_seconds.labels("otp", "b", "0.5").set(99.0)
    assert figures.read(T0, "delivery")["now"]["age_s/otp"] == 9.0
    assert "age_s/otp" not in figures.read(T0, "api")["now"]
    metrics.queue_age_seconds.clear()


def test_what_a_process_does_not_know_is_left_out() -> None:
    metrics.retry_share_ratio.labels("c-unknown").set(float("nan"))
    assert "retry_share/c-unknown" not in figures.read(T0, "egress")["now"]
    metrics.retry_share_ratio.remove("c-unknown")
