"""`make bench`: Sluicegate, Kannel and Jasmin under the standard loads on this machine, in turn; one table of medians.

    python -m loadtests.peers                       # the whole: 20,000 messages, three rounds, a million behind codes
    python -m loadtests.peers --quick               # small counts, two rounds, Jasmin in the first alone
    python -m loadtests.peers --gateway Sluicegate --load "full job"

One load after another; in each round each gateway is started anew, measured and ended before the next. Carrier, client
and callback sink are the same programs for all and run on the same machine. Everything is bound to loopback. A gateway
that is not installed has a row that says so (loadtests/peers/install.sh). CPU seconds and memory count every process of
a gateway and its stores. Latencies of a class run from the client's request to the submit_sm at the carrier.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadtests.pages import put
from loadtests.peers.loads import WINDOW, Came, Load, standard
from loadtests.peers.run import GATEWAYS, Bench
from loadtests.peers.table import markdown, medians
from loadtests.peers.tools import Tools
from loadtests.world import ROOT

NAMES = tuple(kind.name for kind in GATEWAYS)


def main() -> int:
    """Play what is asked, print the table, write a dated JSON file."""
    asked = _parser().parse_args()
    sizes = [2_000, 20_000, [1, 100]] if asked.quick else [20_000, 1_000_000, [1, 100, 10_000]]
    count, backlog, tenants = (
        given or size for given, size in zip((asked.count, asked.backlog, asked.tenants), sizes, strict=True)
    )
    rounds = asked.rounds or (2 if asked.quick else 3)
    loads = [load for load in standard(count, backlog, tuple(tenants)) if not asked.load or load.name in asked.load]
    if not loads:
        sys.stderr.write(
            f"no such load; there are: {', '.join(load.name for load in standard(count, backlog, (1,)))}\n"
        )
        return 2
    tools = Tools(python=asked.python_tools)
    bench = Bench(
        tools, callbacks=asked.callbacks, drain_s=20.0 if asked.quick else 60.0, load_s=30.0 if asked.quick else 60.0
    )
    out = asked.out / f"bench-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    asked.out.mkdir(parents=True, exist_ok=True)
    about = _about(tools, asked, count, backlog, rounds)
    runs: list[Came] = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for number, came in _rounds(bench, asked, rounds, loads):
            runs.append(came)
            _tell(number, came)
            out.write_text(json.dumps({**about, "runs": [*map(asdict, runs)]}, indent=1))
    except KeyboardInterrupt:
        sys.stdout.write("stopped: the table has what was measured\n")
    found = medians(runs, loads, asked.gateway)
    table = markdown(about, loads, found)
    out.write_text(json.dumps({**about, "medians": [*map(asdict, found)], "runs": [*map(asdict, runs)]}, indent=1))
    sys.stdout.write(f"\n{table}\nwritten to {out}\n")
    if asked.page and found:
        put(asked.page, "bench", table)
    return 0


def _rounds(bench: Bench, asked: argparse.Namespace, rounds: int, loads: list[Load]) -> Iterator[tuple[int, Came]]:
    """Round by round all loads, each with all gateways in turn."""
    rates: dict[str, float] = {}
    for number in range(1, rounds + 1):
        for load in loads:
            for kind in GATEWAYS:
                if kind.name not in asked.gateway or (asked.quick and kind.name == "Jasmin" and number > 1):
                    continue
                came = _play(bench, kind, _fitted(load, kind.name, asked), rates.get(kind.name, 0.0), asked.keep)
                if load.name == WINDOW and came.carrier_per_s:
                    rates[kind.name] = came.carrier_per_s
                yield number, came


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small counts: about a quarter of an hour")
    parser.add_argument("--count", type=int, default=0, help="messages of the full job")
    parser.add_argument("--peer-count", type=int, default=0, help="at most so many for Jasmin, which is slow")
    parser.add_argument("--backlog", type=int, default=0, help="marketing that waits before the codes")
    parser.add_argument("--peer-backlog", type=int, default=20_000, help="the same for Kannel and Jasmin")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--tenants", type=int, nargs="*", default=[], help="numbers of tenants to try")
    parser.add_argument("--callbacks", type=int, choices=(1, 2), default=1, help="2: one for the carrier's answer too")
    parser.add_argument("--gateway", nargs="*", choices=NAMES, default=[*NAMES])
    parser.add_argument("--load", nargs="*", default=[], help="names of loads, default all")
    parser.add_argument("--python-tools", action="store_true", help="not the C carrier and client")
    parser.add_argument("--keep", type=Path, help="run here and keep the logs")
    parser.add_argument("--page", type=Path, help="put the table into this page too: docs/speed.md")
    parser.add_argument("--out", type=Path, default=Path("results"))
    return parser


def _fitted(load: Load, name: str, asked: argparse.Namespace) -> Load:
    """The load in the size that a peer can be asked for in bearable time."""
    if name == "Sluicegate":
        return load
    fields = asdict(load)
    if load.backlog:
        most = 2_000 if name == "Jasmin" and asked.quick else asked.peer_backlog
        fields["backlog"] = min(load.backlog, most)
    if name == "Jasmin":
        fields["count"] = min(load.count, asked.peer_count or (1_000 if asked.quick else 4_000))
    return Load(**fields)


def _play(bench: Bench, kind: Any, load: Load, rate_per_s: float, keep: Path | None) -> Came:
    scratch = Path(tempfile.mkdtemp(prefix="sluicegate-bench-")) if keep is None else keep
    scratch.mkdir(parents=True, exist_ok=True)
    scratch.chmod(0o755)
    home = scratch / f"{kind.name}-{load.name}-{datetime.now(UTC):%H%M%S}".replace(" ", "-").replace(",", "")
    try:
        return bench.play(kind, load, home, rate_per_s)
    finally:
        if keep is None:
            shutil.rmtree(scratch, ignore_errors=True)


def _tell(number: int, came: Came) -> None:
    words = came.why_not or (
        f"accepted/s {came.accepted_per_s:,.0f}  carrier/s {came.carrier_per_s:,.0f}  CPU s/1k {came.cpu_s_per_1k:.2f}"
        f"  missing {came.missing}  others {came.others_cores:.2f} cores"
    )
    sys.stdout.write(f"round {number}  {came.load:>26}  {came.gateway:<10}  {words}\n")
    sys.stdout.flush()


def _about(tools: Tools, asked: argparse.Namespace, count: int, backlog: int, rounds: int) -> dict[str, Any]:
    """When, where and of what: what a reader needs to judge the figures."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    processor = next(
        (
            row.split(":", 1)[1].strip()
            for row in Path("/proc/cpuinfo").read_text().splitlines()
            if row.startswith("model name")
        ),
        "",
    )
    return {
        "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "commit": commit,
        "machine": f"{len(_cores())} cores, {processor or platform.machine()}",
        "tools": tools.kind,
        "rounds": rounds,
        "count": count,
        "backlog": backlog,
        "callbacks": asked.callbacks,
        "quick": asked.quick,
    }


def _cores() -> list[str]:
    return [row for row in Path("/proc/cpuinfo").read_text().splitlines() if row.startswith("processor")]


if __name__ == "__main__":
    sys.exit(main())
