"""`make faults`: every kind of fault, many seeds, one line per run in a file; goes on where it stopped.

    python -m loadtests.campaign                       # 60 strikes of each kind, 25 seeds of each cut: hours
    python -m loadtests.campaign --strikes 10 --cuts 1 --kind egress --kind clock
    python -m loadtests.campaign --replay egress-3     # one run again, as it was

Each run is a gateway of its own under at least 200 messages a second, judged by one oracle. A strike hits a process or
a store of it (every second run with two egress processes), a cut one of its links. Prints what docs/promises.md shows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from loadtests import cuts, faults, store_cuts
from loadtests.oracle import Findings, Kill
from loadtests.pages import put
from loadtests.promises import missing_hops, read_rows, table
from loadtests.strikes import KINDS
from loadtests.world import ROOT, Shape

CUTS: Final = ("cut-carrier", *(f"cut-{link}" for link in store_cuts.LINKS))
ALL_KINDS: Final = (*KINDS, *CUTS)
STRIKES_PER_RUN: Final = 10
WINDOW: Final = 10
BROKE_OFF: Final = "the run broke off"
RATE_PER_S: Final = 240.0  # of which 200 must flow at every strike
HURRIED_PER_S: Final = 12.0  # good for seconds only
_HURRIED_MAX: Final = 0.5
_ANSWER_MS: Final = 60  # 333 a second of two windows of ten
# Silence and lost answers are noticed soon; two sessions go through the proxy, so that one of them always works.
CARRIER_CUT: Final = replace(cuts.SHAPE, sessions=2, window=WINDOW, carrier=(("window_max", str(WINDOW)),))


@dataclass(frozen=True, slots=True)
class Unit:
    """One run: a kind of fault and a seed. The same unit is the same run again."""

    kind: str
    seed: int

    @property
    def name(self) -> str:
        """As it is written in the file and given to --replay."""
        return f"{self.kind}-{self.seed}"

    @staticmethod
    def of(name: str) -> Unit:
        """Reads a name; raises ValueError where it is none."""
        kind, _, seed = name.rpartition("-")
        if kind not in ALL_KINDS or not seed.isdecimal():
            raise ValueError(f"{name} is no run; runs are named like egress-3, with a kind of: {', '.join(ALL_KINDS)}")
        return Unit(kind, int(seed))


def units(kinds: list[str], strikes: int, cut_seeds: int) -> Iterator[Unit]:
    """Seed by seed over all kinds, so that a campaign that is stopped early has some of each."""
    of_strikes = -(-strikes // STRIKES_PER_RUN)
    for seed in range(1, max(of_strikes, cut_seeds) + 1):
        for kind in kinds:
            if seed <= (cut_seeds if kind in CUTS else of_strikes):
                yield Unit(kind, seed)


def shape_of(unit: Unit, rate_per_s: float = RATE_PER_S) -> Shape:
    """Windows of ten in flight, guarded by the carrier; every second seed with two egress processes.

    At a lower rate the carrier answers later: sessions with nothing to wait for would let a strike meet nothing.
    """
    return Shape(
        sessions=2,  # they are busy: 240 a second, of 333 that these windows and answers let through
        window=WINDOW,
        egress=2 if unit.seed % 2 == 0 else 1,
        answer_delay_ms=round(_ANSWER_MS * RATE_PER_S / rate_per_s),
        otp_wait_budget_s=110,  # a busy machine may need a minute to start a process anew
        shifting_clock=unit.kind == "clock",
        carrier=(("window_max", str(WINDOW)),),
    )


@dataclass(slots=True)
class Played:
    """What one run came to; `rate_per_s` is what was accepted from its first to its last message."""

    kills: list[Kill] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    hops: dict[int, int] = field(default_factory=dict)
    rate_per_s: float = 0.0


async def play(unit: Unit, home: Path, rate_per_s: float, strikes: int = STRIKES_PER_RUN) -> Played:
    """One run in `home`."""
    if unit.kind == "cut-carrier":
        carrier = await cuts.run(cuts.Plan(1, unit.seed, rate_per_s, shape=CARRIER_CUT), home)
        return Played(carrier.kills, carrier.findings, carrier.hops, carrier.rate_per_s)
    if unit.kind in CUTS:
        link = unit.kind.removeprefix("cut-")
        cut = await store_cuts.run(
            store_cuts.Plan(link, 1, unit.seed, rate_per_s, shape=shape_of(unit, rate_per_s)), home
        )
        return Played(cut.kills, cut.findings, cut.hops, cut.rate_per_s)
    plan = faults.Plan(
        (unit.kind,), strikes, unit.seed, rate_per_s, again=0.2, settle_s=90.0, callbacks=True,
        hurried=min(_HURRIED_MAX, HURRIED_PER_S / rate_per_s), shape=shape_of(unit, rate_per_s),
    )  # fmt: skip
    outcome = await faults.run(plan, home)
    return Played(outcome.kills, outcome.findings, outcome.hops, min(outcome.rates, default=0.0))


def row_of(unit: Unit, played: Played, asked_per_s: float) -> dict[str, Any]:
    """What the file keeps of a run."""
    kills, found = played.kills, played.findings
    slower = "" if asked_per_s == RATE_PER_S else f" --rate {asked_per_s:g}"
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    return {
        "unit": unit.name,
        "kind": unit.kind,
        "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "commit": subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or "unknown",
        "replay": f"make faults ARGS='--replay {unit.name}{slower}'",
        "rate_per_s": round(played.rate_per_s),
        "faults": len(kills),
        "accepted": found.accepted,
        "delivered": found.delivered,
        "doubts": sum(found.doubts),
        "flagged": found.flagged,
        "expired": found.expired,
        "in_flight": sum(found.in_flight),
        "not_final": found.not_final,
        "heirs": shape_of(unit).egress > 1,
        "recovered": len(found.recovered_ms),
        "recovered_ms_max": max(found.recovered_ms, default=0),
        "violations": found.violations,
        "hops": {str(hop): count for hop, count in played.hops.items()},
    }


def _run(unit: Unit, keep: Path | None, rate_per_s: float, strikes: int = STRIKES_PER_RUN) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="sluicegate-faults-") as scratch:
        home = keep / unit.name if keep else Path(scratch) / "run"
        home.mkdir(parents=True, exist_ok=True)
        home.parent.chmod(0o755)
        try:
            played = asyncio.run(play(unit, home, rate_per_s, strikes))
        except (RuntimeError, OSError, TimeoutError) as fault:
            # The harness itself failed: that proves nothing, and must not pass for a proof.
            played = Played(findings=Findings(violations=[f"{BROKE_OFF}: {type(fault).__name__}: {fault}"]))
    row = row_of(unit, played, rate_per_s)
    sys.stdout.write(
        f"{unit.name:>18}  faults {row['faults']:>3}  accepted {row['accepted']:>6}  in doubt {row['doubts']:>4}"
        f"  flagged {row['flagged']:>4}  at {row['rate_per_s']:>3}/s  violations {len(row['violations'])}\n"
        + "".join(f"    ! {violation}\n" for violation in row["violations"])
    )
    sys.stdout.flush()
    return row


def main() -> int:
    """Play the runs that the file does not have, print the table; 1 where a promise broke in any of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", action="append", choices=ALL_KINDS, help="default: all")
    parser.add_argument("--strikes", type=int, default=60, help="of each kind")
    parser.add_argument("--cuts", type=int, default=25, help="seeds of each link")
    parser.add_argument("--again", action="store_true", help="play runs with violations anew, after a mend")
    parser.add_argument("--replay", metavar="RUN", type=Unit.of, help="play one run again; the file stays as it is")
    parser.add_argument("--replay-strikes", type=int, default=STRIKES_PER_RUN, help="fewer: not the whole run again")
    parser.add_argument("--rate", type=float, default=RATE_PER_S, help="messages a second; less on a busy machine")
    parser.add_argument("--keep", type=Path, help="run here and keep the logs")
    parser.add_argument("--page", type=Path, help="put the table into this page: docs/promises.md")
    parser.add_argument("--out", type=Path, default=Path("results/faults.jsonl"))
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what runs is ended, the file is whole
    if asked.replay:
        return 1 if _run(asked.replay, asked.keep, asked.rate, asked.replay_strikes)["violations"] else 0
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    rows = read_rows(asked.out)
    played = {row["unit"] for row in rows if not (asked.again and row["violations"])}
    whole = True
    for unit in units(asked.kind or [*ALL_KINDS], asked.strikes, asked.cuts):
        if unit.name not in played:
            row = _run(unit, asked.keep, asked.rate)
            if any(BROKE_OFF in violation for violation in row["violations"]):
                whole = False  # it is played again the next time
                continue
            with asked.out.open("a") as out:
                out.write(json.dumps(row) + "\n")
    rows = read_rows(asked.out)
    if not rows:
        return 1
    text = table(rows)
    sys.stdout.write(f"\n{text}")
    for hop in missing_hops(rows):
        sys.stdout.write(f"no fault met anything on hop {hop} yet\n")
    if asked.page:
        put(asked.page, "faults", text)
    return 0 if whole and not any(row["violations"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
