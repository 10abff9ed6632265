"""The model by itself, without a server: shares, limits and promises as the policy says."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.asks import Ask, LeaseAsk
from scheduler.core.records import Entry, Flow, Reference
from scheduler.core.tuning import ClassTuning, Tuning
from scheduler.core.unavailable import IndexUnavailable
from scheduler.model import Model

START_AT = 1_800_000_000_000.0
CLASSES = {"otp": ClassTuning(60, 1, 10_000), "marketing": ClassTuning(10, 32, 14_400_000)}


def ready(limits: dict[str, tuple[float, int]], weights: dict[str, float] | None = None) -> Model:
    """A model whose epoch began long ago."""
    model = Model()
    model.tune(Tuning(1, CLASSES, limits=limits, tenant_weights=weights or {}), START_AT - 600_000)
    epoch = model.begin_rebuild(START_AT - 600_000)
    assert epoch is not None
    model.finish_rebuild(epoch, START_AT - 600_000)
    return model


def entries(tenant: str, count: int, *, segments: int = 1, class_name: str = "marketing") -> list[Entry]:
    """Messages of a tenant that have an hour."""
    flow = Flow("p", class_name, tenant, (f"tenant:{tenant}", "provider:p"), 1)
    at = int(START_AT)
    ids = (f"{tenant}{number}".encode().rjust(16, b"\0") for number in range(count))
    return [Entry(flow, Reference(id_, 0, segments, at + 3_600_000, at)) for id_ in ids]


def sent(model: Model, ticks: int) -> Counter[str]:
    """Segments by tenant that leave in so many steps of 20 ms."""
    found: Counter[str] = Counter()
    for tick in range(1, ticks + 1):
        now = START_AT + 20 * tick
        leased = model.lease(LeaseAsk("p", "s1", 100), now)
        for item in leased.items:
            found[Flow.parse(item.flow_key).tenant] += item.reference.segments
        model.ack(leased.lease_id, now)
    return found


def test_a_new_model_is_lost_until_rebuilt() -> None:
    model = Model()
    assert model.epoch_state(START_AT) == "lost"
    with pytest.raises(IndexUnavailable, match="lost"):
        model.lease(LeaseAsk("p", "s1", 1), START_AT)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([0.5, 1.0, 2.0, 5.0]), min_size=2, max_size=4), st.sampled_from([1, 3]))
def test_backlogged_tenants_share_by_weight(weights: list[float], segments: int) -> None:
    """|S_i/w_i - S_j/w_j| <= Q/w_i + Q/w_j, Q the segments of one visit (scheduling.md 3k.1)."""
    named = {f"t{number}": weight for number, weight in enumerate(weights)}
    model = ready({"provider:p": (1_000, 100)}, named)
    for tenant in named:
        model.enqueue(tenant.encode(), entries(tenant, 1_500, segments=segments), START_AT)
    shares = {tenant: count / named[tenant] for tenant, count in sent(model, 50).items()}
    most = 32 * segments
    assert all(abs(shares[a] - shares[b]) <= most / named[a] + most / named[b] for a in named for b in named)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([3.0, 40.0, 333.3]), st.integers(1, 30), st.sampled_from([1, 2, 7]))
def test_a_limit_holds_over_every_window(rate: float, burst: int, segments: int) -> None:
    model = ready({"tenant:a": (rate, burst)})
    model.enqueue(b"batch", entries("a", 1_000, segments=segments), START_AT)
    left: list[tuple[float, int]] = []
    for tick in range(60):
        now = START_AT + 37 * tick
        count = sum(item.reference.segments for item in model.lease(LeaseAsk("p", "s1", 100), now).items)
        left.append((now, count))
    for first in range(len(left)):
        for last in range(first, len(left)):
            window_s = (left[last][0] - left[first][0]) / 1000
            assert sum(count for _, count in left[first : last + 1]) <= rate * window_s + max(burst, segments) + 1e-6


def test_what_was_promised_counts_for_later_asks_of_a_call() -> None:
    model = ready({"tenant:a": (10, 1)})
    flow = entries("a", 1)[0].flow
    asks = [Ask((flow,), 1, 60_000, 2_000, 60_000, b"place-%d" % number) for number in range(40)]
    verdicts = model.admit(asks, START_AT)
    accepted = [verdict for verdict in verdicts if verdict.accepted]
    assert 15 <= len(accepted) <= 22  # two seconds of work
    refused = [verdict for verdict in verdicts if not verdict.accepted]
    assert {(one.scope, one.cause) for one in refused} == {(("tenant", "a"), "wait")}
    waits = [one.retry_after_s for one in refused]
    assert waits == sorted(waits) and waits[-1] > waits[0]  # each has a place in line
    assert model.capacity(asks[-1:], START_AT)[0].retry_after_s == waits[-1]  # who asks again has it still
