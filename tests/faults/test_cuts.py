"""The link to the carrier is cut under load at each of eight places: nothing lost, no unflagged double, soon back."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from loadtests.cuts import BACK_WITHIN_S, NOTICED_WITHIN_S, Plan, run
from loadtests.tcp_proxy import ENDS_LINK, POINTS

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

SLACK = 3  # a busy machine may be slow; what is late every time is late


async def test_a_cut_at_any_place_loses_nothing_and_the_session_comes_back() -> None:
    with tempfile.TemporaryDirectory(prefix="sluicegate-cuts-") as scratch:
        outcome = await run(Plan(rounds=1, seed=4), Path(scratch))
    assert outcome.violations == [], outcome.findings
    assert sorted(outcome.cuts) == sorted(POINTS)
    assert {point for point, _ in outcome.back_s} == ENDS_LINK
    away_s = sorted(seconds for _, seconds in outcome.back_s)
    assert away_s[len(away_s) // 2] <= BACK_WITHIN_S and away_s[-1] <= SLACK * BACK_WITHIN_S, outcome.back_s
    assert max(outcome.noticed_s) <= SLACK * NOTICED_WITHIN_S
    assert sum(outcome.findings.doubts) >= len(POINTS) - 2, "the cuts met nothing on the wire"
