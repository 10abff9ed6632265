"""kill -9 of delivery, egress and PostgreSQL while receipts pour in, at CI size (20 runs: loadtests.storms)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtests.storms import TARGETS, Storm, play

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory that the servers' account can enter."""
    with tempfile.TemporaryDirectory(prefix="sluicegate-storm-") as directory:
        yield Path(directory)


async def test_no_receipt_and_no_callback_is_lost_in_a_storm(scratch: Path) -> None:
    """Every target is struck once, in seeded order, while at least 150 receipts a second are answered."""
    outcome = await play(Storm(3, rate_per_s=100.0, pouring_per_s=150), scratch)
    assert outcome.findings.violations == [], outcome
    assert sorted(outcome.strikes) == sorted(TARGETS)
    assert outcome.findings.decided > 100 and outcome.findings.callbacks >= outcome.findings.decided
