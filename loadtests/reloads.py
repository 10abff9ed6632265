"""A thousand reloads under load, a third of them invalid (reliability P13): nothing lost, limits hold, nobody rebinds.

    python -m loadtests.reloads --reloads 1000 --seed 1

Starts a gateway of its own, sends at a steady rate, and enters one policy after the other, mostly through the
operators' port, in turn also by changing the file on disk, alone or with SIGHUP: rates and bursts change, a session, a
tenant and a route come and go, and every third policy cannot be used (unknown member, wrong value, no YAML, a secret
that no process has). Prints a table, writes results/reloads-DATE.json. Exit code 1 where something was lost, a limit
was exceeded, an invalid policy changed anything, a process took longer than 2 s to follow, or the session that never
changed was bound anew.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from loadtests.evidence import collect, settle
from loadtests.limits import JITTER_S, worst_excess
from loadtests.oracle import Evidence, judge
from loadtests.traffic import Traffic
from loadtests.world import LOAD, World

USED_WITHIN_S = 2.0
RATES, BURSTS = (40, 60, 90), (10, 30)
WAYS = ("port", "port", "port", "port", "port", "file", "hangup")
_MISSING = "SELECT count(*) FROM processes WHERE ended_at IS NULL AND role <> 'supervisor' AND policy_version < $1"
_IN_FORCE = "SELECT version FROM policy_active"
_REFUSED = "SELECT count(*) FROM audit WHERE action IN ('policy.invalid', 'policy.refused')"
_NOTICED_S = 30.0
# After SIGHUP the watch finds the same change a little later: nothing else is entered before that.
_WATCHED_S = 2.5
_AUDIT = "SELECT action, count(*) AS n FROM audit WHERE action LIKE 'policy.%' GROUP BY 1"

_POLICY = (
    "# policy {number}\n"
    + LOAD
    + """\
{tenant}providers:
  carrier:
    limits: {{rate_per_s: {rate}, burst: {burst}}}
    ramp: {{start: 1, double_every: 1s}}
    sessions:
      steady: {{host: 127.0.0.1, port: {port}, system_id: steady, password: secret, bind: transceiver, window: 50, limits: {{rate_per_s: {rate}, burst: {burst}}}, reconnect: {{base: 200ms, max: 2s}}}}
{session}routes:
  everything: {{match: {{}}, provider: carrier}}
{route}"""  # noqa: E501 - lines of YAML
)
_SESSION = (
    "      coming: {host: 127.0.0.1, port: %s, system_id: coming, password: secret, bind: transceiver, window: 20,"
    " reconnect: {base: 200ms, max: 2s}}\n"
)
_TENANT = "  guest: {classes: [transactional]}\n"
_ROUTE = '  side: {match: {prefixes: ["+4477000"]}, provider: carrier, preference: 1}\n'
_FAULTS = (
    ("rate_per_s: 5000", "rate_per_s: many"),
    ("requests:", "reqests:"),
    ("tenants:", "tenants: ["),
    ("password: secret", "password: env:NOBODY_HAS_THIS"),
    ("provider: carrier", "provider: nowhere"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """A policy that was put in force: seconds of the wall clock from which, and until when, processes took it up."""

    began_s: float
    used_s: float
    rate_per_s: int
    burst: int


@dataclass(slots=True)
class Outcome:
    """What a run came to."""

    reloads: int
    valid: int = 0
    invalid: int = 0
    accepted: int = 0
    submits: int = 0
    slowest_s: float = 0.0
    excess: float = 0.0
    answers: dict[str, int] = field(default_factory=dict)
    binds: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


def policy_of(number: int, port: int, dice: random.Random, whole: bool = False) -> tuple[str, int, int]:
    """A policy that can be used, its rate and its burst; a `whole` one surely has the second session."""
    rate, burst = dice.choice(RATES), dice.choice(BURSTS)
    text = _POLICY.format(
        number=number,
        otp_wait_budget_s=60,
        port=port,
        rate=rate,
        burst=burst,
        tenant=dice.choice(("", _TENANT)),
        session=_SESSION % port if whole else dice.choice(("", "", _SESSION % port)),
        route=dice.choice(("", _ROUTE)),
    )
    return text, rate, burst


def excess_over(steps: Sequence[Step], submits_s: Sequence[float]) -> float:
    """Submits above the integral of the rate in force plus the largest burst, in the worst window; at most 0 is good.

    While processes change over, the higher of both rates counts. Time is stretched by the rate, so that every window
    of every rate is looked at in one pass.
    """
    turns = sorted({edge for step in steps for edge in (step.began_s, step.used_s + JITTER_S)})
    stretched, last_s, total, place = [], steps[0].began_s, 0.0, 0
    for at_s in sorted(submits_s):
        while place < len(turns) and turns[place] <= at_s:
            total += _rate(steps, last_s) * max(0.0, turns[place] - last_s)
            last_s = max(last_s, turns[place])
            place += 1
        total += _rate(steps, last_s) * max(0.0, at_s - last_s)
        last_s = max(last_s, at_s)
        stretched.append(total)
    burst = max(step.burst for step in steps) + JITTER_S * max(step.rate_per_s for step in steps)
    return worst_excess(stretched, 1.0, burst)


def _rate(steps: Sequence[Step], at_s: float) -> float:
    """The highest rate that may be in force at an instant."""
    highest = 0.0
    for number, step in enumerate(steps):
        ends_s = steps[number + 1].used_s + JITTER_S if number + 1 < len(steps) else float("inf")
        if step.began_s <= at_s < ends_s:
            highest = max(highest, float(step.rate_per_s))
    return highest or float(max(RATES))


async def run(home: Path, reloads: int, seed: int, rate_per_s: float = 55.0) -> Outcome:
    """Plays and judges."""
    dice, outcome = random.Random(seed), Outcome(reloads)
    world = World(home, policy=_first(dice))
    await world.start()
    try:
        world.key = world.new_key("load")
        traffic = Traffic(world.url, world.key, rate_per_s, seed, f"r{seed}")
        sending = asyncio.create_task(traffic.run_until_stopped())
        steps = await _reload(world, dice, outcome)
        traffic.stop()
        await sending
        await settle(world, 120.0)
        evidence = await collect(world, traffic.journal, [])
        _judge(outcome, evidence, steps, _binds(world.journal_path))
        await _judge_audit(world, outcome)
    finally:
        code = await world.stop()
    if code != 0:
        outcome.violations.append(f"up ended with exit code {code}")
    return outcome


def _first(dice: random.Random) -> str:
    return policy_of(0, 0, dice)[0].replace("port: 0,", "port: {port},")


async def _reload(world: World, dice: random.Random, outcome: Outcome) -> list[Step]:
    run_file = json.loads((world.data_dir / "run.json").read_text())
    url = f"{run_file['operators_url']}/admin/policy"
    headers = {"Authorization": f"Bearer {run_file['operators_token']}", "Content-Type": "application/yaml"}
    steps = [Step(0.0, 0.0, max(RATES), max(BURSTS))]
    version = 1
    ledger = await world.ledger()
    try:
        async with aiohttp.ClientSession(headers=headers) as client:
            for number in range(1, outcome.reloads + 1):
                # The last policy has the second session: its account's late receipts come only once it is bound.
                last = number == outcome.reloads
                text, rate, burst = policy_of(number, world.bind_port, dice, last)
                bad = number % 3 == 0 and not last
                if bad:
                    text = text.replace(*dice.choice(_FAULTS), 1)
                began_s, began_mono = time.time(), time.monotonic()
                way = WAYS[number % len(WAYS)]
                if way == "port":
                    async with client.post(url, data=text.encode()) as answer:
                        told = await answer.json()
                    said, entered = f"{answer.status} {told.get('code', '')}".strip(), told.get("version")
                else:
                    entered = await _by_file(world, ledger, text, version, hang_up=way == "hangup")
                    said = f"{way} {'taken' if entered else 'refused'}"
                outcome.answers[said] = outcome.answers.get(said, 0) + 1
                if bad == bool(entered):
                    outcome.violations.append(f"policy {number} came to {said}")
                if not entered:
                    outcome.invalid += 1
                    await asyncio.sleep(_WATCHED_S if way != "port" else 0)
                    continue
                outcome.valid += 1
                if entered <= version:
                    outcome.violations.append(f"version {entered} after {version}")
                version = entered
                await _used(ledger, version, outcome, began_mono)
                steps.append(Step(began_s, time.time(), rate, burst))
                await asyncio.sleep(_WATCHED_S if way != "port" else 0)
    finally:
        await ledger.close()
    return steps


async def _by_file(world: World, ledger: Any, text: str, version: int, *, hang_up: bool) -> int | None:
    """Changes the file that the gateway was started with; the new version, None where it is refused."""
    refused = await ledger.fetchval(_REFUSED)
    changed = world.home / "policy.new"
    changed.write_text(text)
    changed.replace(world.home / "policy.yaml")
    if hang_up:
        world.hang_up()
    in_force, until_mono = version, time.monotonic() + _NOTICED_S
    while in_force == version and await ledger.fetchval(_REFUSED) == refused:
        if time.monotonic() > until_mono:
            raise TimeoutError(f"a changed file was not noticed within {_NOTICED_S:g} s")
        await asyncio.sleep(0.02)
        in_force = await ledger.fetchval(_IN_FORCE)
    return in_force if in_force != version else None


async def _used(ledger: Any, version: int, outcome: Outcome, began_mono: float) -> None:
    """Waits until every process uses the version."""
    answered_mono = time.monotonic()
    while await ledger.fetchval(_MISSING, version):
        if time.monotonic() - answered_mono > 30:
            outcome.violations.append(f"version {version} is not used everywhere after 30 s")
            return
        await asyncio.sleep(0.01)
    took_s = time.monotonic() - began_mono
    outcome.slowest_s = max(outcome.slowest_s, took_s)
    if time.monotonic() - answered_mono > USED_WITHIN_S:
        outcome.violations.append(f"version {version} was used everywhere only {took_s:.2f} s after it was entered")


def _binds(path: Path) -> dict[str, int]:
    """Binds that the carrier accepted, by account."""
    entries = (orjson.loads(line) for line in path.read_text().splitlines() if b'"bind"' in line.encode())
    return dict(Counter(e["system_id"] for e in entries if e["event"] == "bind" and e["status"] == 0))


def _judge(outcome: Outcome, evidence: Evidence, steps: Sequence[Step], binds: dict[str, int]) -> None:
    outcome.violations += judge(evidence).violations
    outcome.accepted, outcome.submits, outcome.binds = len(evidence.accepted), len(evidence.submits), binds
    outcome.excess = excess_over(steps, [submit.at / 1000 for submit in evidence.submits])
    if outcome.excess > 0:
        outcome.violations.append(f"{outcome.excess:.1f} submits above the limit in the worst window")
    if outcome.accepted == 0:
        outcome.violations.append("nothing was accepted: nothing was proven")
    if binds.get("steady") != 1:
        outcome.violations.append(f"the session that never changed was bound {binds.get('steady')} times")


async def _judge_audit(world: World, outcome: Outcome) -> None:
    ledger = await world.ledger()
    try:
        kept = {row["action"]: row["n"] for row in await ledger.fetch(_AUDIT)}
    finally:
        await ledger.close()
    refused = kept.get("policy.invalid", 0) + kept.get("policy.refused", 0)
    # A file that cannot be used may be looked at more than once: by the watch, and by roles that were told to.
    if kept.get("policy.applied", 0) != outcome.valid + 1 or refused < outcome.invalid:
        outcome.violations.append(f"the audit has {kept}, {outcome.valid} were applied and {outcome.invalid} refused")


def table(outcome: Outcome) -> str:
    """The run in words."""
    rows = [
        ("reloads", f"{outcome.valid} valid, {outcome.invalid} invalid"),
        ("slowest until used by all", f"{outcome.slowest_s:.2f} s from the call on"),
        ("messages accepted / submits", f"{outcome.accepted} / {outcome.submits}"),
        ("worst window", f"{-outcome.excess:.1f} submits below the limit"),
        ("binds", ", ".join(f"{name} {n}" for name, n in sorted(outcome.binds.items()))),
        ("answers", ", ".join(f"{n} x {name}" for name, n in sorted(outcome.answers.items()))),
        ("violations", "; ".join(outcome.violations[:5]) or "none"),
    ]
    return "\n".join(f"{name:<28} {value}" for name, value in rows)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reloads", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a new directory for logs, journal and ledger of the run, to read")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluicegate-reloads-") as home:
        outcome = asyncio.run(run(asked.keep or Path(home) / "run", asked.reloads, asked.seed))
    print(table(outcome))
    results = Path("results")
    results.mkdir(exist_ok=True)
    (results / f"reloads-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json").write_text(json.dumps(asdict(outcome)))
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
