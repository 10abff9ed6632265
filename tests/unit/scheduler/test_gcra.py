"""The arithmetic of one limit (I18, I19)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.gcra import charge, empty, full, give_back, ready_in_ms, rescale, tokens

steps = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 8), st.booleans()), max_size=60)


@given(st.sampled_from([1.0, 10.0, 33.3, 250.0]), st.integers(1, 10), steps)
def test_sent_stays_within_rate_and_burst_on_every_window(interval_ms: float, burst: int, trace: object) -> None:
    now, bucket = 1_000.0, full(0.0)
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


def _without(charges: list[tuple[float, int]], interval_ms: float) -> float:
    """The debt's end, had only these charges been made."""
    tat_at = 0.0
    for at, segments in charges:
        tat_at = max(tat_at, at) + segments * interval_ms
    return tat_at


long_steps = st.lists(
    st.tuples(st.sampled_from([0, 3, 40, 170, 900, 2_900, 3_100, 7_000]), st.integers(1, 4), st.integers(0, 5)),
    max_size=80,
)


@given(st.sampled_from([33.3, 250.0, 2_000.0]), st.integers(1, 6), long_steps)
def test_what_is_given_back_never_leaves_more_than_if_it_had_not_been_taken(
    interval_ms: float, burst: int, trace: list[tuple[int, int, int]]
) -> None:
    """0.5/s with a burst of 3 once let 5 through in 3.02 s: two charges came back that time had made good already."""
    now, bucket = 1_000.0, full(0.0)
    charges: list[tuple[float, int]] = []
    unused: list[tuple[float, int]] = []
    for pause, segments, action in trace:
        now += pause + 0.001
        unused = [one for one in unused if one[0] > now - 2_500]  # leases lapse; what lapsed stays charged
        if unused and action < 3:
            back = unused.pop(0 if action else -1)
            charges.remove(back)
            bucket = give_back(bucket, back[0], interval_ms, back[1])
            assert max(now, bucket.tat_at) >= max(now, _without(charges, interval_ms)) - 1e-6
        if ready_in_ms(bucket, now, interval_ms, burst, segments) <= 1e-9:
            bucket = charge(bucket, now, interval_ms, segments)
            charges.append((now, segments))
            if action % 2:
                unused.append(charges[-1])


@given(st.sampled_from([33.3, 250.0]), st.integers(1, 6), long_steps)
def test_all_comes_back_where_nothing_was_charged_since(
    interval_ms: float, burst: int, trace: list[tuple[int, int, int]]
) -> None:
    now, bucket = 1_000.0, full(0.0)
    for pause, segments, action in trace:
        now += pause + 0.001
        if ready_in_ms(bucket, now, interval_ms, burst, segments) <= 1e-9:
            charged = charge(bucket, now, interval_ms, segments)
            again = give_back(charged, now, interval_ms, segments)
            assert abs(again.tat_at - max(bucket.tat_at, now)) < 1e-6
            bucket = again if action == 0 else charged


def test_under_load_a_lease_is_given_back_whole() -> None:
    """Where each charge of the last slots met a debt of 30 and more, ten segments are still in the bucket."""
    interval_ms, now, bucket = 10.0, 1_000.0, full(0.0)
    for _ in range(40):
        bucket = charge(bucket, now, interval_ms, 1)
    for _ in range(700):  # seven seconds at the very rate
        now += 10
        bucket = charge(bucket, now, interval_ms, 1)
    lease_at = now
    bucket = charge(bucket, now, interval_ms, 10)
    for _ in range(20):
        now += 10
        bucket = charge(bucket, now, interval_ms, 1)
    assert bucket.tat_at - give_back(bucket, lease_at, interval_ms, 10).tat_at == 100.0


def test_of_two_charges_the_second_to_come_back_finds_what_the_first_left() -> None:
    """Debt 1 was met after both: one segment of the two is still there, whoever returns first."""
    bucket = charge(full(0.0), 1_000.0, 1_000.0, 1)
    bucket = charge(bucket, 1_000.5, 1_000.0, 1)
    bucket = charge(bucket, 2_000.25, 1_000.0, 1)  # meets 0.99975
    once = give_back(bucket, 1_000.5, 1_000.0, 1)
    twice = give_back(once, 1_000.0, 1_000.0, 1)
    assert bucket.tat_at - once.tat_at <= 1_000.0
    assert max(2_000.25, twice.tat_at) >= _without([(2_000.25, 1)], 1_000.0) - 1e-6


def test_an_unknown_bucket_lets_one_through_after_one_interval() -> None:
    bucket = empty(0.0, 100.0, 5)
    assert ready_in_ms(bucket, 0.0, 100.0, 5, 1) == 100.0
    assert tokens(bucket, 500.0, 100.0, 5) == 5


def test_a_long_message_needs_the_burst_and_leaves_a_debt() -> None:
    rested = full(0.0)
    assert ready_in_ms(rested, 0.0, 10.0, 3, 8) == 0.0
    spent = charge(rested, 0.0, 10.0, 8)
    assert tokens(spent, 0.0, 10.0, 3) == -5
    assert ready_in_ms(spent, 0.0, 10.0, 3, 1) == 60.0


def test_another_rate_keeps_the_fill() -> None:
    spent = charge(full(0.0), 1_000.0, 10.0, 4)
    slower = rescale(spent, 1_000.0, 10.0, 100.0)
    assert tokens(slower, 1_000.0, 100.0, 10) == tokens(spent, 1_000.0, 10.0, 10) == 6
    assert rescale(spent, 9_000.0, 10.0, 100.0) == spent
