"""`make faults`: kill -9 under load, judged by the oracle.

    python -m loadtests.faults --target egress --kills 3 --seed 1

Each run starts a gateway of its own, sends at least 200 messages a second, kills at seeded random moments, waits
until every accepted message has its end and compares client journal, ledger and carrier's journal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadtests.oracle import FINAL, CarrierSubmit, Findings, Kill, LedgerAttempt, LedgerMessage, judge
from loadtests.traffic import Traffic
from loadtests.world import Shape, World

TARGETS = ("api", "egress", "delivery", "postgres", "valkey")


@dataclass(frozen=True, slots=True)
class Plan:
    """One fault run."""

    target: str
    kills: int
    seed: int
    rate_per_s: float = 220.0
    between_s: tuple[float, float] = (2.5, 5.0)
    settle_s: float = 60.0
    shape: Shape = field(default_factory=Shape)


async def run(plan: Plan, home: Path) -> Findings:
    """Play one plan in `home` and judge it."""
    dice = random.Random(plan.seed)
    world = World(home, plan.shape)
    await world.start()
    kills: list[Kill] = []
    try:
        traffic = Traffic(world.url, world.key, plan.rate_per_s, plan.seed, f"{plan.target}{plan.seed}")
        sending = asyncio.create_task(traffic.run_until_stopped())
        await asyncio.sleep(3)
        for _ in range(plan.kills):
            await asyncio.sleep(dice.uniform(*plan.between_s))
            kills.append(Kill(plan.target, int(time.time() * 1000)))
            await asyncio.to_thread(world.kill, plan.target, dice.choice)
        await asyncio.sleep(4)
        traffic.stop()
        await sending
        messages, attempts = await settle(world, plan.settle_s)
        found = judge(traffic.journal.accepted, messages, attempts, read_journal(world.journal_path), kills)
        if len(traffic.journal.accepted) < plan.rate_per_s * 5:
            found.violations.append(f"too little traffic to judge: {dict(traffic.journal.answers)}")
    finally:
        code = await world.stop()
    if code != 0:
        found.violations.append(f"up ended with exit code {code}")
    return found


async def settle(world: World, timeout_s: float) -> tuple[list[LedgerMessage], list[LedgerAttempt]]:
    """Wait until every message has its end (or is held in doubt), then read the ledger."""
    end = time.monotonic() + timeout_s
    ledger = await world.ledger()
    try:
        done = sorted(FINAL | {"unconfirmed"})
        while time.monotonic() < end:
            if await ledger.fetchval("SELECT count(*) FROM messages WHERE status <> ALL($1::text[])", done) == 0:
                break
            await asyncio.sleep(0.25)
        rows = await ledger.fetch("SELECT id, client_ref, status, error, possible_duplicate, expires_at FROM messages")
        claimed = await ledger.fetch("SELECT id, claimed_at, outcome, outcome_at FROM attempts WHERE kind = 'submit'")
    finally:
        await ledger.close()
    messages = [
        LedgerMessage(
            id=f"msg_{r['id'].hex}",
            client_ref=r["client_ref"],
            status=r["status"],
            error_code=json.loads(r["error"])["code"] if r["error"] else None,
            possible_duplicate=r["possible_duplicate"],
            expires_at=r["expires_at"],
        )
        for r in rows
    ]
    attempts = [LedgerAttempt(f"msg_{r['id'].hex}", r["claimed_at"], r["outcome"], r["outcome_at"]) for r in claimed]
    return messages, attempts


def read_journal(path: Path) -> list[CarrierSubmit]:
    """The carrier's journal: every submit_sm it saw."""
    found = []
    for line in path.read_text().splitlines():
        entry: dict[str, Any] = json.loads(line)
        if entry.get("event") == "submit":
            found.append(CarrierSubmit(entry["body_prefix"].split(" ", 1)[0], entry["at"], entry["status"]))
    return found


def main() -> int:
    """Run the asked plans, print a table, write a dated JSON file; 1 when a promise broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", action="append", choices=TARGETS, help="default: all")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=220.0)
    parser.add_argument("--keep", type=Path, help="run here and keep the logs")
    parser.add_argument("--out", type=Path, default=Path("results"))
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for target in asked.target or TARGETS:
        plan = Plan(target, asked.kills, asked.seed, asked.rate)
        with tempfile.TemporaryDirectory(prefix=f"sluicegate-{target}-") as scratch:
            home = (asked.keep / f"{target}-{asked.seed}") if asked.keep else Path(scratch)
            found = asyncio.run(run(plan, home))
        rows.append({"target": target, "seed": asked.seed, "kills": asked.kills, **asdict(found)})
        print_row(rows[-1], header=len(rows) == 1)
    asked.out.mkdir(parents=True, exist_ok=True)
    out = asked.out / f"faults-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    out.write_text(json.dumps(rows, indent=1))
    sys.stdout.write(f"written to {out}\n")
    return 1 if any(row["violations"] for row in rows) else 0


def print_row(row: dict[str, Any], *, header: bool) -> None:
    """One line of the table; violations below it."""
    names = (
        "target",
        "kills",
        "seed",
        "accepted",
        "delivered",
        "in_flight_at_kills",
        "flagged",
        "doubles",
        "in_doubt",
        "expired",
    )
    if header:
        sys.stdout.write("  ".join(f"{n:>9}" for n in names) + "  violations\n")
    sys.stdout.write("  ".join(f"{row[n]!s:>{max(9, len(n))}}" for n in names) + f"  {len(row['violations'])}\n")
    for violation in row["violations"]:
        sys.stdout.write(f"    ! {violation}\n")


if __name__ == "__main__":
    sys.exit(main())
