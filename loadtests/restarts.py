"""Graceful restarts under load: nothing is lost, nothing is sent twice, nothing is left in doubt (I34).

    python -m loadtests.restarts --restarts 20

Messages flow all the time. In turn the whole gateway and each of its roles is told to end (SIGTERM) and started again,
by us or by its supervisor. The oracle of the fault runs judges with no fault to blame: any double, any doubt, any
message that is missing is a broken promise.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from loadtests.evidence import collect, settle, submits_per_s
from loadtests.oracle import Findings, judge
from loadtests.traffic import Traffic
from loadtests.world import Shape, World, wait_for

TURNS = ("all", "egress", "api", "delivery")
_FLOW_S = 60.0
_START_S = 120.0


@dataclass(slots=True)
class Outcome:
    """What a run came to; `took_s` is from SIGTERM to messages flowing again."""

    restarts: list[str] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    answers: dict[int | str, int] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)


async def run(restarts: int, home: Path, *, rate_per_s: float = 150.0, seed: int = 1) -> Outcome:
    """Restarts so often under load and judges."""
    world, outcome = World(home, Shape(otp_wait_budget_s=60)), Outcome()
    await world.start()
    code = 0
    try:
        traffic = Traffic(world.url, world.key, rate_per_s, seed, f"restart{seed}")
        sending = asyncio.create_task(traffic.run_until_stopped())
        for number in range(restarts):
            await _flows(world)
            turn = TURNS[number % len(TURNS)]
            began_mono = time.monotonic()
            if turn == "all":
                await _restart_all(world, outcome)
            else:
                await _restart_role(world, turn)
            await _flows(world)
            outcome.restarts.append(turn)
            outcome.took_s.append(round(time.monotonic() - began_mono, 2))
        traffic.stop()
        await sending
        await settle(world, 90.0)
        outcome.findings = _with(outcome.findings.violations, judge(await collect(world, traffic.journal, ())))
        outcome.answers = dict(traffic.journal.answers)
    finally:
        code = await world.stop()
    if code != 0:
        outcome.findings.violations.append(f"up ended with exit code {code}")
    return outcome


def _with(violations: list[str], findings: Findings) -> Findings:
    findings.violations.extend(violations)
    return findings


async def _restart_all(world: World, outcome: Outcome) -> None:
    """Ends the whole gateway and starts it again."""
    code = await world.end_gateway()
    if code != 0:
        outcome.findings.violations.append(f"up ended with exit code {code}")
    world.start_gateway()
    await wait_for(world.ready, "the gateway is ready again", _START_S)


async def _restart_role(world: World, role: str) -> None:
    """Ends the processes of a role; the supervisor starts new ones."""
    before = set(world.pids(role))
    for pid in before:
        os.kill(pid, signal.SIGTERM)

    def others() -> bool:
        now = set(world.pids(role))
        return bool(now) and not now & before

    await wait_for(others, f"{role} is started again", _START_S)
    await wait_for(world.ready, "the gateway is ready again", _START_S)


async def _flows(world: World) -> None:
    """Waits until submits reach the carrier."""
    end_mono = time.monotonic() + _FLOW_S
    while submits_per_s(world.journal_path) < 20:
        if time.monotonic() > end_mono:
            raise TimeoutError(f"nothing flows: {world.told('up')}")
        await asyncio.sleep(0.2)


def main() -> int:
    """Runs, prints a table, writes a dated JSON file; 1 when a promise broke."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("--rate", type=float, default=150.0, help="messages per second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results"))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluicegate-restarts-") as scratch:
        outcome = asyncio.run(run(asked.restarts, Path(scratch), rate_per_s=asked.rate, seed=asked.seed))
    found = outcome.findings
    sys.stdout.write(
        f"restarts {len(outcome.restarts)}  accepted {found.accepted}  delivered {found.delivered}"
        f"  doubles {found.doubles}  flagged {found.flagged}  in doubt {found.in_doubt}  expired {found.expired}"
        f"  flowing again after {sorted(outcome.took_s)[len(outcome.took_s) // 2]:.1f} s (median)"
        f"  violations {len(found.violations)}\n"
    )
    for violation in found.violations:
        sys.stdout.write(f"    ! {violation}\n")
    asked.out.mkdir(parents=True, exist_ok=True)
    out = asked.out / f"restarts-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    out.write_text(json.dumps(asdict(outcome), indent=1))
    sys.stdout.write(f"written to {out}\n")
    return 1 if found.violations else 0


if __name__ == "__main__":
    sys.exit(main())
