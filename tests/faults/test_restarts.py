"""Graceful restarts under load at CI size: all of it once, and each role that holds work once."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from loadtests.restarts import run

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


async def test_three_restarts_lose_and_double_nothing() -> None:
    with tempfile.TemporaryDirectory(prefix="sluicegate-restarts-") as directory:
        outcome = await run(3, Path(directory), rate_per_s=80.0)
    assert outcome.findings.violations == [], outcome
    assert outcome.restarts == ["all", "egress", "api"]
    assert outcome.findings.accepted > 100
    assert outcome.findings.delivered >= outcome.findings.accepted, "an answer that was lost may still have been kept"
