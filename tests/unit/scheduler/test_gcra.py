"""The arithmetic of one limit (I18, I19)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.gcra import Bucket, charge, empty, give_back, ready_in_ms, rescale, tokens

steps = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 8), st.booleans()), max_size=60)


@given(st.sampled_from([1.0, 10.0, 33.3, 250.0]), st.integers(1, 10), steps)
def test_sent_stays_within_rate_and_burst_on_every_window(interval_ms: float, burst: int, trace: object) -> None:
    now, bucket = 1_000.0, Bucket(0.0)
    sent: list[tuple[float, int]] = []
    for pause, segments, _ in trace:  # type: ignore[attr-defined]
        now += pause
        if ready_in_ms(bucket, now, interval_ms, burst, segments) <= 1e-9:
            bucket = charge(bucket, now, interval_ms, segments)
            sent.append((now, segments))
    for first in range(len(sent)):
        for last in range(first, len(sent)):
            total = sum(segments for _, segments in sent[first : last + 1])
            allowed = (sent[last][0] - sent[first][0]) / interval_ms + max(burst, *(s for _, s in sent))
            assert total <= allowed + 1e-6


@given(st.sampled_from([10.0, 33.3]), st.integers(1, 6), steps)
def test_what_is_given_back_never_makes_more_than_the_burst(interval_ms: float, burst: int, trace: object) -> None:
    now, bucket = 1_000.0, Bucket(0.0)
    sent: list[tuple[float, int]] = []
    unused: list[float] = []
    for pause, _, keep in trace:  # type: ignore[attr-defined]
        now += pause
        if unused and keep:
            bucket = give_back(bucket, unused.pop(0), interval_ms, 1)
        if ready_in_ms(bucket, now, interval_ms, burst, 1) <= 1e-9:
            bucket = charge(bucket, now, interval_ms, 1)
            if keep:
                sent.append((now, 1))
            else:
                unused.append(now)
        assert tokens(bucket, now, interval_ms, burst) <= burst + 1e-6
    for first in range(len(sent)):
        for last in range(first, len(sent)):
            assert last - first + 1 <= (sent[last][0] - sent[first][0]) / interval_ms + burst + 1e-6


def test_an_unknown_bucket_lets_one_through_after_one_interval() -> None:
    bucket = empty(0.0, 100.0, 5)
    assert ready_in_ms(bucket, 0.0, 100.0, 5, 1) == 100.0
    assert tokens(bucket, 500.0, 100.0, 5) == 5


def test_a_long_message_needs_the_burst_and_leaves_a_debt() -> None:
    full = Bucket(0.0)
    assert ready_in_ms(full, 0.0, 10.0, 3, 8) == 0.0
    spent = charge(full, 0.0, 10.0, 8)
    assert tokens(spent, 0.0, 10.0, 3) == -5
    assert ready_in_ms(spent, 0.0, 10.0, 3, 1) == 60.0


def test_another_rate_keeps_the_fill() -> None:
    spent = charge(Bucket(0.0), 1_000.0, 10.0, 4)
    slower = rescale(spent, 1_000.0, 10.0, 100.0)
    assert tokens(slower, 1_000.0, 100.0, 10) == tokens(spent, 1_000.0, 10.0, 10) == 6
    assert rescale(spent, 9_000.0, 10.0, 100.0) == spent
