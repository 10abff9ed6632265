"""Cases of kind `queue` that are decided without a store."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from gateway.admission.clocks import Clocks, set_clocks
from gateway.admission.fields import MessageRequest
from gateway.clock import Clock
from gateway.domain import outcomes, states
from gateway.domain.outcomes import Ending, Refusal, Rules, Standing, close, expire
from gateway.egress.submissions import validity_period
from gateway.policy.rules.snapshot import Retries
from gateway.policy.rules.traffic import CLASSES

NOW = 1_707_302_731_000
WAITING = Standing(states.QUEUED, 0, 0, False, False, NOW + 60_000, NOW + 120_000)


def test_q10_a_host_whose_clock_is_off_counts_deadlines_on_the_queues_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A door whose wall clock is 40 s ahead: nothing expires early, and age from the future is none."""
    clock = Clock()
    asked = time.monotonic()
    clock.learn(float(NOW), asked, asked + 0.001)
    wall = time.time()
    monkeypatch.setattr(time, "time", lambda: wall + 40)
    clocks = set_clocks(MessageRequest(ttl_ms=30_000), CLASSES["otp"], clock.now_at())
    assert isinstance(clocks, Clocks)
    assert abs(clocks.created_at - NOW) < 5_000 and clocks.expires_at == clocks.created_at + 30_000
    standing = replace(WAITING, submit_by=clocks.submit_by, expires_at=clocks.expires_at)
    another_host = NOW - 1_000  # one whose measurement is a second behind
    assert expire(standing, 0, another_host) is None
    assert clocks.begins_at - another_host > 0  # "from the future": it may be sent at once all the same


def test_q11_the_carrier_gets_the_time_that_is_left() -> None:
    period = validity_period("relative", NOW + 40_000, NOW + 60_000)
    assert (period, len(period)) == ("000000000020000R", 16)


def test_q13_a_carrier_that_wants_no_validity_period() -> None:
    """The field is empty, and the gateway's own deadline holds."""
    assert validity_period("omit", NOW, NOW + 60_000) == ""
    assert expire(WAITING, 0, NOW + 60_000) is not None


def test_q14_absolute_time_in_a_zone_of_quarters() -> None:
    local = validity_period("absolute", NOW - 60_000, NOW, "Asia/Kathmandu")
    assert (local, validity_period("absolute", NOW - 60_000, NOW)) == ("240207163031023+", "240207104531000+")


def test_q23_waiting_for_tokens_is_no_attempt() -> None:
    """Fifty times told to slow down, five attempts allowed: still queued, none spent."""
    traffic = replace(CLASSES["transactional"], max_attempts=5)
    rules = Rules(traffic, Retries(), 1_000)
    standing = WAITING
    for slot in range(50):
        ending = Ending(slot, outcomes.THROTTLED, refusal=Refusal("ESME_RTHROTTLED", 0x58))
        change = close(standing, ending, rules, NOW, 0.5)
        assert change is not None
        standing = replace(
            standing,
            status=change.status,
            next_slot=change.next_slot,
            attempts_spent=change.attempts_spent,
            submit_begun=change.submit_begun,
        )
    assert (standing.status, standing.attempts_spent, standing.next_slot) == (states.QUEUED, 0, 50)
