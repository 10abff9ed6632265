"""The retry share where retries are all that waits: scripts and model, side by side.

The share is one of the first attempts. Where there are none for a time, what was known of them must not fade into what
the share itself let out: each round would allow less than the round before.
"""

from __future__ import annotations

import pytest

from scheduler.core.asks import Ask, LeaseAsk
from scheduler.core.records import Entry, Flow, Reference
from scheduler.core.tuning import ClassTuning, Tuning
from tests.property.scheduler.random_policies import START_AT
from tests.property.scheduler.side_by_side import SideBySide

STEP_MS = 100.0
HOUR_MS = 3_600_000
FLOW = Flow("p", "transactional", "shop", ("tenant:shop", "provider:p"), 0)
OTHER = Flow("p", "otp", "bank", ("tenant:bank", "provider:p"), 0)


class Carrier:
    """A carrier without a declared rate behind one session; what it is given is answered at once."""

    def __init__(self, both: SideBySide, share: float) -> None:
        self.both = both
        self.made = 0
        classes = {"otp": ClassTuning(60, 1, 60_000), "transactional": ClassTuning(25, 4, HOUR_MS)}
        both.ask("tune", Tuning(1, classes, retry_share=share))
        both.ask("finish_rebuild", both.ask("begin_rebuild"))
        both.ask("session_up", "p", "s1")

    def enqueue(self, flow: Flow, count: int, *, retry: bool = False) -> None:
        now = int(self.both.now)
        for at in range(0, count, 500):
            entries = []
            for _ in range(min(500, count - at)):
                self.made += 1
                reference = Reference(self.made.to_bytes(16, "big"), 0, 1, now + HOUR_MS, now)
                entries.append(Entry(flow, reference, retry=retry))
            self.both.ask("enqueue", b"batch-%d" % self.made, entries)

    def serve(self, seconds: float, per_step: int, *, arriving: int = 0) -> list[int]:
        """Messages of each second; `arriving` first attempts come in every step."""
        counts = []
        for step in range(round(seconds * 1000 / STEP_MS)):
            self.both.now += STEP_MS
            if arriving:
                self.enqueue(FLOW, arriving)
            leased = self.both.ask("lease", LeaseAsk("p", "s1", per_step))
            if step % 10 == 0:
                counts.append(0)
            if leased.items:
                self.both.ask("ack", leased.lease_id)
                counts[-1] += len(leased.items)
                self.both.ask("report_answers", "p", {"transactional": len(leased.items)})
        return counts


@pytest.mark.parametrize(("share", "backlogged"), [(0.1, True), (1.0, False)], ids=["measured", "never-backlogged"])
def test_retries_alone_keep_their_share(redis_url: str, share: float, backlogged: bool) -> None:
    with SideBySide.on(redis_url, START_AT) as both:
        carrier = Carrier(both, share)
        if backlogged:
            carrier.enqueue(FLOW, 1_000)
            firsts = carrier.serve(10, per_step=10)
        else:
            firsts = carrier.serve(30, per_step=20, arriving=10)
        assert firsts[-1] == 100
        carrier.enqueue(FLOW, 2_000, retry=True)
        counts = carrier.serve(30, per_step=20)
        allowed = 100 * share / (1 + share)
        assert 0.85 * allowed <= sum(counts[-10:]) / 10 <= 1.1 * allowed, counts
        # Nor does the door take the pace of the retries for what the carrier can do.
        verdict = both.ask("admit", [Ask((OTHER,), 1, 60_000, 30_000, 60_000, b"place")])[0]
        assert verdict.accepted and verdict.predicted_wait_ms < 1_000
        both.compare()


def test_a_carrier_that_became_slow_takes_the_share_with_it(redis_url: str) -> None:
    """Where the carrier binds and not the share, the share follows it down: a quarter of what is left."""
    with SideBySide.on(redis_url, START_AT) as both:
        carrier = Carrier(both, 0.25)
        carrier.enqueue(FLOW, 3_500)
        carrier.serve(10, per_step=20)
        carrier.enqueue(FLOW, 500, retry=True)
        carrier.serve(30, per_step=2)
        waiting = len(both.model.index.flows[FLOW.key].references)
        served = sum(carrier.serve(10, per_step=2))
        firsts = waiting - len(both.model.index.flows[FLOW.key].references)
        assert served == 200
        assert 0.75 * served <= firsts < served
        both.compare()
