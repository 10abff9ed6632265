"""`make sim`: the scenarios over many seeds; prints one table and writes results/sim-DATE.json.

python -m simulations                                     seeds 1-20 at 100k and 1-3 at 1M; goes on where it stopped
python -m simulations --scenario 5 --seed 3 --size 100k   replays one run
python -m simulations --scenario 7 --mutate NAME          with one rule of the scripts broken (--mutations lists them)
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path

from simulations.mutations import MUTATIONS
from simulations.plays import Play, Result, run
from simulations.scenarios import SCENARIOS
from simulations.table import failures, rows, show

ROOT = Path(__file__).resolve().parents[1]
# What a result depends on: a changed file begins anew.
_CODE = ("scheduler", "simulations", "gateway/admission", "gateway/policy/rules")


def sizes(text: str) -> int:
    """`100k`, `1M` or a number."""
    factor = {"k": 1_000, "m": 1_000_000}.get(text[-1:].lower(), 1)
    return int(float(text[:-1] if factor > 1 else text) * factor)


def numbers(text: str) -> list[int]:
    """`3`, `1-20`, `1,4,7`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def plays(scenarios: Iterable[int], seeds: Sequence[int] | None, size: int | None, engine: str) -> Iterator[Play]:
    """All runs that are asked for: by default seeds 1-20 at 100k, then 1-3 at 1M."""
    wanted = [(seeds or range(1, 21), size)] if size else [(seeds or range(1, 21), 100_000)]
    if size is None and seeds is None:
        wanted.append((range(1, 4), 1_000_000))
    scenarios = [number for number in scenarios if engine == "scripts" or not SCENARIOS[number].server]
    for some, count in wanted:
        for seed in some:
            for number in scenarios:
                yield Play(number, seed, count or 100_000, engine)


def digest() -> str:
    """Names the state of the code that results come from."""
    found = sha256()
    for folder in _CODE:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".lua"):
                found.update(path.read_bytes())
    return found.hexdigest()[:12]


def commit() -> str:
    """The commit that is checked out, `+` where the work tree differs from it."""
    try:
        name = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        changed = subprocess.run(
            ["git", "status", "--porcelain", *_CODE], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return name.stdout.strip() + ("+" if changed.stdout.strip() else "")


def run_all(wanted: Sequence[Play], jobs: int, kept: Path) -> list[Result]:
    """Runs what is not in the file of results already; each result is kept at once."""
    done: dict[str, Result] = {}
    if kept.exists():
        for line in kept.read_text(encoding="utf-8").splitlines():
            found = json.loads(line)
            found["checks"] = [tuple(check) for check in found["checks"]]
            done[found["key"]] = Result(**found)
    left = [play for play in wanted if play.key not in done]
    if left:
        print(f"{len(left)} runs, {len(wanted) - len(left)} are there already", flush=True)
    # A process per run: what a million messages leave behind (cycles, with collection off) would add up over the runs.
    fresh = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=1)
    with fresh as pool, kept.open("a", encoding="utf-8") as file:
        pending = {pool.submit(run, play): play for play in left}
        for future in as_completed(pending):
            play = pending[future]
            result = done[play.key] = future.result()
            file.write(json.dumps(result.as_object()) + "\n")
            file.flush()
            failed = failures([result])
            print(
                f"{play.scenario:3} seed {play.seed:2} {play.size:8,} {result.wall_s:7.1f} s (cpu {result.cpu_s:.1f}) "
                + ("ok" if not failed else "NOT REACHED: " + "; ".join(failed)),
                flush=True,
            )
    return [done[play.key] for play in wanted]


def main() -> int:
    """Runs, prints, writes; 1 where a number was not reached."""
    parser = argparse.ArgumentParser(prog="simulations", description=__doc__.splitlines()[0])
    parser.add_argument("--scenario", type=numbers, default=list(SCENARIOS))
    parser.add_argument("--seed", type=numbers)
    parser.add_argument("--size", type=sizes)
    parser.add_argument("--engine", choices=("scripts", "model"), default="scripts")
    parser.add_argument("--mutate", choices=sorted(MUTATIONS))
    parser.add_argument("--mutations", action="store_true", help="list them and end")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--fresh", action="store_true", help="run again what was run already")
    parser.add_argument("--out", type=Path, default=ROOT / "results")
    asked = parser.parse_args()
    if asked.mutations:
        for name, mutation in sorted(MUTATIONS.items()):
            print(f"{name:26} scenario {', '.join(map(str, mutation.caught_by)):6} {mutation.what}")
        return 0
    wanted = list(plays(asked.scenario, asked.seed, asked.size, asked.engine))
    if asked.mutate:
        wanted = [Play(one.scenario, one.seed, one.size, one.engine, asked.mutate) for one in wanted]
    asked.out.mkdir(exist_ok=True)
    kept = asked.out / f".sim-{digest()}.jsonl"
    if asked.fresh:
        kept.unlink(missing_ok=True)
    results = run_all(wanted, asked.jobs, kept)
    print(show(rows(results)))
    if not asked.mutate:
        out = asked.out / f"sim-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
        table = [row.as_object() for row in rows(results)]
        runs = [result.as_object() for result in results]
        text = json.dumps({"commit": commit(), "engine": asked.engine, "table": table, "runs": runs}, indent=1)
        out.write_text(text + "\n", encoding="utf-8")
        print(f"written to {out}")
    return 1 if failures(results) else 0


if __name__ == "__main__":
    sys.exit(main())
