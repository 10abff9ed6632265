"""The locust users against a whole gateway, headless: every class gets through, refusals can be used, keys hold."""

from __future__ import annotations

import asyncio
import csv
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtests.world import ROOT, Shape, World, free_port

LOCUST = Path(sys.executable).with_name("locust")
RUN_S = 12
pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory that the servers' account can enter."""
    with tempfile.TemporaryDirectory(prefix="sluicegate-locust-") as directory:
        yield Path(directory)


async def test_tenants_of_every_size_are_served_and_the_hostile_one_is_refused(scratch: Path) -> None:
    sink = str(free_port())
    policy = (ROOT / "loadtests/locust.policy.yaml").read_text().replace("port: 2775", "port: {port}")
    world = World(scratch, Shape(answer_delay_ms=5), policy.replace(":8099/", f":{sink}/"))
    await world.start()
    try:
        words = (
            *("-f", str(ROOT / "loadtests/locustfile.py"), "--data-dir", str(world.data_dir), "--callback-port", sink),
            *("--headless", "-u", "13", "-r", "13", "-t", f"{RUN_S}s", "--csv", str(scratch / "run"), "--only-summary"),
        )
        locust = await asyncio.create_subprocess_exec(
            str(LOCUST), *words, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        told, _ = await asyncio.wait_for(locust.communicate(), 120)
    finally:
        await world.stop()
    counts = _counts(scratch / "run_stats.csv")
    assert locust.returncode == 0, told.decode()
    for name in ("otp 202", "transactional 202", "marketing batch 202", "hostile 202", "hostile 429"):
        assert counts[name] > 0, (name, counts)
    assert counts["hostile rubbish 422"] > 0 and counts["hostile rubbish 202"] == 0
    assert counts["hostile 429"] > counts["hostile 202"]
    assert counts["message.delivered"] > 0, counts


def _counts(path: Path) -> Counter[str]:
    with path.open() as table:
        return Counter({row["Name"]: int(row["Request Count"]) for row in csv.DictReader(table)})
