"""kill -9 under load at CI size: every process and store three times in one run, judged by the oracle."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtests.faults import TARGETS, Outcome, Plan, run
from loadtests.world import Shape

# A busy machine may take longer to start a process than an OTP is good for; what counts here is not its speed.
PATIENT = Shape(otp_wait_budget_s=60)

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory that the servers' account can enter."""
    with tempfile.TemporaryDirectory(prefix="sluicegate-faults-") as directory:
        yield Path(directory)


async def test_nothing_is_lost_or_doubled_when_anything_is_killed(scratch: Path) -> None:
    outcome = await run(Plan(TARGETS, kills=3, seed=2, between_s=(0.2, 1.0), shape=PATIENT), scratch)
    assert outcome.violations == [], _told(outcome)
    assert Counter(kill.target for kill in outcome.kills) == dict.fromkeys(TARGETS, 3)
    assert min(outcome.rates) >= 200 and outcome.offered_per_s >= 200, _told(outcome)
    assert min(outcome.findings.in_flight) >= 1, _told(outcome)
    assert sum(outcome.findings.doubts) >= 1, "no kill of egress left anything in doubt: nothing was proven"


async def test_losing_the_index_or_both_stores_loses_nothing(scratch: Path) -> None:
    plan = Plan(("flushall", "stores"), kills=2, seed=3, between_s=(0.2, 1.0), again=0.5, shape=PATIENT)
    outcome = await run(plan, scratch)
    assert outcome.violations == [], _told(outcome)
    assert min(outcome.rates) >= 200 and outcome.offered_per_s >= 200, _told(outcome)


def _told(outcome: Outcome) -> str:
    return (
        f"strikes {[kill.target for kill in outcome.kills]} rates {outcome.rates}"
        f" in flight {outcome.findings.in_flight} doubts {outcome.findings.doubts} answers {outcome.answers}"
        f" silences {outcome.door_silence_s:.1f}/{outcome.carrier_silence_s:.1f} s: {outcome.violations}"
    )
