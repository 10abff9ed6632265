"""The link to the carrier is cut under load at each of eight places, judged by the oracle.

    python -m loadtests.cuts --rounds 3 --seed 1

A gateway of its own, one session through `tcp_proxy`, a steady load. Each round cuts at every place once, in random
order, at a random submit_sm of those that follow; then nothing may be lost, no double may be unflagged, nothing in
doubt that was not on the wire, and the session must be back within its back-off and two seconds.
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

from loadtests.courses import courses
from loadtests.evidence import binds_since, collect, settle
from loadtests.hops import caught
from loadtests.oracle import Findings, Kill, judge
from loadtests.tcp_proxy import ANSWER_LATE, BLACK_HOLE, ENDS_LINK, POINTS, Cut, TcpProxy
from loadtests.traffic import Traffic
from loadtests.world import Shape, World

RESPONSE_TIMEOUT_MS = 800
BACK_OFF_S = 2.0  # the ceiling in the policy of these worlds
BACK_WITHIN_S = BACK_OFF_S + 2.0
# Silence is noticed by the response timer, then by the enquire_link that follows.
NOTICED_WITHIN_S = 2 * RESPONSE_TIMEOUT_MS / 1000 + 1.0
SHAPE = Shape(sessions=1, window=20, response_timeout_ms=RESPONSE_TIMEOUT_MS, otp_wait_budget_s=60, answer_delay_ms=60)
_STRIKES_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How often each place is cut, and the load meanwhile."""

    rounds: int = 1
    seed: int = 1
    rate_per_s: float = 120.0
    points: tuple[str, ...] = POINTS
    settle_s: float = 60.0
    shape: Shape = SHAPE


@dataclass(slots=True)
class Outcome:
    """What a run came to; `back_s` has how long the session was away after each cut that ended its link."""

    plan: Plan
    cuts: list[str] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    back_s: list[tuple[str, float]] = field(default_factory=list)
    noticed_s: list[float] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    hops: dict[int, int] = field(default_factory=dict)
    rate_per_s: float = 0.0  # accepted, from the first to the last

    @property
    def violations(self) -> list[str]:
        """Everything that was broken."""
        return self.findings.violations


async def run(plan: Plan, home: Path) -> Outcome:
    """Play one plan in `home` and judge it."""
    world, outcome = World(home, plan.shape), Outcome(plan)
    proxy = await TcpProxy(("127.0.0.1", world.carrier_port)).start()
    world.bind_port = proxy.port
    await world.start()
    try:
        await _play(plan, world, proxy, outcome)
    finally:
        code = await world.stop()
        await proxy.stop()
    if code != 0:
        outcome.violations.append(f"up ended with exit code {code}")
    return outcome


async def _play(plan: Plan, world: World, proxy: TcpProxy, outcome: Outcome) -> None:
    dice = random.Random(plan.seed)
    traffic = Traffic(world.url, world.key, plan.rate_per_s, plan.seed, f"c{plan.seed}")
    sending = asyncio.create_task(traffic.run_until_stopped())
    for _ in range(plan.rounds):
        for point in dice.sample(plan.points, len(plan.points)):
            cut = Cut(point, at=dice.randint(10, 40), inside=dice.randint(1, 60), late_s=RESPONSE_TIMEOUT_MS / 1000 + 1)
            await _cut(world, proxy, cut, outcome)
    await asyncio.sleep(RESPONSE_TIMEOUT_MS / 1000 + 1)
    traffic.stop()
    await sending
    await settle(world, plan.settle_s)
    outcome.findings = judge(await collect(world, traffic.journal, outcome.kills))
    found = await courses(world, traffic.journal, ())
    outcome.hops = caught(found, [kill.began_at for kill in outcome.kills], [])
    outcome.rate_per_s = traffic.journal.mean_per_s()


async def _cut(world: World, proxy: TcpProxy, cut: Cut, outcome: Outcome) -> None:
    """One cut, until the session works again."""
    strike = proxy.arm(cut)
    await asyncio.wait_for(strike.struck.wait(), _STRIKES_WITHIN_S)
    struck_mono = time.monotonic()
    outcome.cuts.append(cut.point)
    if cut.point in ENDS_LINK:
        await asyncio.wait_for(strike.over.wait(), _STRIKES_WITHIN_S)
        ended_mono = time.monotonic()
        if cut.point == BLACK_HOLE:
            outcome.noticed_s.append(ended_mono - struck_mono)
        while not binds_since(world.journal_path, strike.done_at):
            if time.monotonic() > ended_mono + _STRIKES_WITHIN_S:
                break
            await asyncio.sleep(0.02)
        outcome.back_s.append((cut.point, round(time.monotonic() - ended_mono, 3)))
    elif cut.point == ANSWER_LATE:
        await asyncio.sleep(cut.late_s)
    outcome.kills.append(Kill("cut", strike.began_at, strike.done_at))


def main() -> int:
    """Run the asked rounds, print a line, write a dated JSON file; 1 when a promise broke."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each place is cut")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=120.0, help="messages per second")
    parser.add_argument("--out", type=Path, default=Path("results"))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluicegate-cuts-") as scratch:
        outcome = asyncio.run(run(Plan(asked.rounds, asked.seed, asked.rate), Path(scratch)))
    found = outcome.findings
    slowest = max((seconds for _, seconds in outcome.back_s), default=0.0)
    late = [f"{point} {seconds:.1f} s" for point, seconds in outcome.back_s if seconds > BACK_WITHIN_S]
    late += [f"noticed after {seconds:.1f} s" for seconds in outcome.noticed_s if seconds > NOTICED_WITHIN_S]
    sys.stdout.write(
        f"cuts {len(outcome.cuts)}  accepted {found.accepted}  delivered {found.delivered}  flagged {found.flagged}"
        f"  doubles {found.doubles}  in doubt {found.in_doubt}  expired {found.expired}"
        f"  slowest return {slowest:.1f} s  violations {len(found.violations)}\n"
    )
    for violation in (*found.violations, *late):
        sys.stdout.write(f"    ! {violation}\n")
    asked.out.mkdir(parents=True, exist_ok=True)
    out = asked.out / f"cuts-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    out.write_text(json.dumps(asdict(outcome), indent=1))
    sys.stdout.write(f"written to {out}\n")
    return 1 if found.violations or late else 0


if __name__ == "__main__":
    sys.exit(main())
