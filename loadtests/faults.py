"""Strikes under load at processes and stores, judged by the oracle (`campaign` plays many of these).

    python -m loadtests.faults --target egress --kills 3 --seed 1

Each run starts a gateway of its own, sends at least 200 messages a second, strikes at seeded random moments while
they flow, waits until every accepted message has its end and compares client journal, ledger and carrier's journal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadtests.callback_sink import CallbackSink
from loadtests.courses import courses
from loadtests.evidence import CALLED_WITHIN_S, collect, longest_gap_s, settle, submits_per_s, told
from loadtests.hops import caught
from loadtests.oracle import Findings, Kill, judge
from loadtests.strikes import KILLED, KINDS, strike
from loadtests.traffic import Traffic
from loadtests.world import Shape, World

TARGETS = KILLED
_FLOWS_WITHIN_S = 60.0
_FORGET_S = 1.0  # what flowed before a strike says nothing of what flows after it
_FLOWING = 5 / 6  # of the offered rate: 200 of 240


@dataclass(frozen=True, slots=True)
class Plan:
    """One fault run: `kills` strikes at each target, in random order; `again` is the chance of a second strike each.

    A second strike hits the same target while it starts anew.
    """

    targets: tuple[str, ...]
    kills: int
    seed: int
    rate_per_s: float = 240.0
    between_s: tuple[float, float] = (0.5, 3.0)
    again: float = 0.0
    settle_s: float = 60.0
    hurried: float = 0.0  # share of the messages that are good for seconds only
    callbacks: bool = False  # to a sink of the run's own, so that the last hop is caught too
    shape: Shape = field(default_factory=Shape)


@dataclass(slots=True)
class Outcome:
    """What a run came to; rates are messages per second that flowed to the carrier just before each strike."""

    plan: Plan
    kills: list[Kill] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    offered_per_s: float = 0.0
    door_silence_s: float = 0.0
    carrier_silence_s: float = 0.0
    answers: dict[int | str, int] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)
    hops: dict[int, int] = field(default_factory=dict)

    @property
    def violations(self) -> list[str]:
        """Everything that was broken."""
        return self.findings.violations


async def run(plan: Plan, home: Path) -> Outcome:
    """Play one plan in `home` and judge it."""
    outcome = Outcome(plan)
    async with CallbackSink() as sink:
        world = World(home, replace(plan.shape, callbacks=sink.url) if plan.callbacks else plan.shape)
        await world.start()
        try:
            await _play(plan, world, sink, outcome)
        finally:
            code = await world.stop()
    if code != 0:
        outcome.violations.append(f"up ended with exit code {code}")
    return outcome


async def _play(plan: Plan, world: World, sink: CallbackSink, outcome: Outcome) -> None:
    dice = random.Random(plan.seed)
    traffic = Traffic(world.url, world.key, plan.rate_per_s, plan.seed, f"r{plan.seed}", hurried_ratio=plan.hurried)
    began_mono = time.monotonic()
    sending = asyncio.create_task(traffic.run_until_stopped())
    missing = []
    for target in _order(plan, dice):
        await asyncio.sleep(_FORGET_S + dice.uniform(*plan.between_s))
        outcome.rates.append(await _flows(world, traffic))
        if not outcome.rates[-1]:
            missing.append(f"no flow before the strike at {target}: {dict(traffic.journal.answers)}")
        outcome.kills.append(await strike(world, target, dice))
        if dice.random() < plan.again:
            await asyncio.sleep(dice.uniform(0.05, 1.5))
            outcome.kills.append(await strike(world, target, dice, repeated=True))
    await asyncio.sleep(_FORGET_S)
    await _flows(world, traffic)
    outcome.offered_per_s = traffic.journal.attempted / (time.monotonic() - began_mono)
    traffic.stop()
    await sending
    await settle(world, plan.settle_s)
    called = await told(world, sink, CALLED_WITHIN_S) if plan.callbacks else None
    evidence = await collect(world, traffic.journal, outcome.kills, called)
    outcome.findings = judge(evidence)
    struck = [kill for kill in outcome.kills if not kill.repeated]
    found = await courses(world, traffic.journal, sink.taken)
    outcome.hops = caught(found, [kill.began_at for kill in struck], [kill.outbox_rows for kill in struck])
    outcome.violations.extend(missing)
    outcome.door_silence_s = traffic.journal.longest_silence_s()
    outcome.carrier_silence_s = longest_gap_s(evidence.submits)
    outcome.answers = dict(traffic.journal.answers)


def _order(plan: Plan, dice: random.Random) -> list[str]:
    """Every target as often as asked, in rounds of random order."""
    return [target for _ in range(plan.kills) for target in dice.sample(plan.targets, len(plan.targets))]


async def _flows(world: World, traffic: Traffic) -> float:
    """Wait until messages are accepted, and arrive at the carrier, as offered; the lower rate, 0 where they do not."""
    end_mono, wanted = time.monotonic() + _FLOWS_WITHIN_S, _FLOWING * traffic.rate_per_s
    while True:
        rate_per_s = min(traffic.journal.rate_per_s(), submits_per_s(world.journal_path))
        if rate_per_s >= wanted:
            return rate_per_s
        if time.monotonic() > end_mono:
            return 0.0
        await asyncio.sleep(0.2)


def main() -> int:
    """Run the asked plans, print a table, write a dated JSON file; 1 when a promise broke."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", choices=KINDS, help="default: each of them in turn")
    parser.add_argument("--together", action="store_true", help="all targets in one run, in random order")
    parser.add_argument("--kills", type=int, default=3, help="strikes per target")
    parser.add_argument("--again", type=float, default=0.0, help="chance of a second strike during the restart")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=240.0, help="messages per second")
    parser.add_argument("--sessions", type=int, default=2)
    parser.add_argument("--egress", type=int, default=1, help="egress processes")
    parser.add_argument("--otp-wait-budget", type=int, default=10, metavar="S", help="longer where starts are slow")
    parser.add_argument("--keep", type=Path, help="run here and keep the logs")
    parser.add_argument("--out", type=Path, default=Path("results"))
    asked = parser.parse_args()
    targets = tuple(asked.target or KINDS)
    shape = Shape(sessions=asked.sessions, egress=asked.egress, otp_wait_budget_s=asked.otp_wait_budget)
    rows: list[dict[str, Any]] = []
    for group in [targets] if asked.together else [(target,) for target in targets]:
        plan = Plan(group, asked.kills, asked.seed, asked.rate, again=asked.again, shape=shape)
        with tempfile.TemporaryDirectory(prefix="sluicegate-faults-") as scratch:
            home = (asked.keep / f"{'-'.join(group)}-{asked.seed}") if asked.keep else Path(scratch)
            outcome = asyncio.run(run(plan, home))
        rows.append(asdict(outcome))
        print_row(outcome, header=len(rows) == 1)
    asked.out.mkdir(parents=True, exist_ok=True)
    out = asked.out / f"faults-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    out.write_text(json.dumps(rows, indent=1))
    sys.stdout.write(f"written to {out}\n")
    return 1 if any(row["findings"]["violations"] for row in rows) else 0


def print_row(outcome: Outcome, *, header: bool) -> None:
    """One line of the table; violations below it."""
    found = outcome.findings
    cells = {
        "target": "+".join(outcome.plan.targets),
        "seed": outcome.plan.seed,
        "kills": len(outcome.kills),
        "rate": f"{outcome.offered_per_s:.0f}",
        "accepted": found.accepted,
        "delivered": found.delivered,
        "in_flight": f"{min(found.in_flight, default=0)}-{max(found.in_flight, default=0)}",
        "doubts": sum(found.doubts),
        "flagged": found.flagged,
        "doubles": found.doubles,
        "in_doubt": found.in_doubt,
        "expired": found.expired,
        "silences_s": f"{outcome.door_silence_s:.1f}/{outcome.carrier_silence_s:.1f}",
        "violations": len(found.violations),
    }
    if header:
        sys.stdout.write("  ".join(f"{name:>9}" for name in cells) + "\n")
    sys.stdout.write("  ".join(f"{cell!s:>{max(9, len(name))}}" for name, cell in cells.items()) + "\n")
    for violation in found.violations:
        sys.stdout.write(f"    ! {violation}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
