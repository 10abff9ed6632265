"""`make bench`: the full job on one machine: HTTP in, PostgreSQL, SMPP to the simulated carrier, receipts back.

    python -m loadtests.bench --count 20000 --rounds 3

Each round starts a gateway of its own and sends `--count` one-segment messages over `--connections` keep-alive
connections in a closed loop: one bind, window 100, answers at once, receipts 200 ms later. Load client and carrier are
Python and share the machine, so the rate is a lower bound; CPU counts the gateway's processes and stores only. Full use
of a small window: `--window 10 --answer-delay 20` can come to 500 a second at the carrier; with `--queued` the messages
are sent in batches first and the carrier's rate is that of what still waited then, without the door's work beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from loadtests.evidence import read_journal, settle
from loadtests.http_line import HttpLine
from loadtests.world import Shape, World

PARTS = ("api", "egress", "delivery", "postgres", "valkey")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_BATCH = 500
_TEXT = "benchmark message of about one hundred characters, as a bank or a shop would send them every day"


@dataclass(frozen=True, slots=True)
class Round:
    """What one round came to; CPU in seconds per 1,000 messages."""

    accepted_per_s: float
    carrier_per_s: float
    http_ms_p50: float
    http_ms_p99: float
    cpu_s_per_1k: float
    cpu_s_per_1k_by_part: dict[str, float]
    answers: dict[int, int]


def cpu_s(world: World) -> dict[str, float]:
    """CPU seconds that each part of the gateway has used so far."""
    return {part: sum(map(_cpu_of, world.pids(part))) for part in PARTS}


def _cpu_of(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


async def send(world: World, refs: Iterable[str], connections: int) -> tuple[list[float], Counter[int]]:
    """Every ref once, over so many connections in turn; milliseconds per accepted call, and answers by status."""
    todo, took_ms, answers = iter(refs), [], Counter[int]()

    async def work() -> None:
        line = HttpLine(world.url)
        for ref in todo:
            body = json.dumps({"to": "+447700900123", "text": f"{ref} {_TEXT}", "client_ref": ref}).encode()
            began_mono = time.monotonic()
            headers = {"Authorization": f"Bearer {world.key}", "Idempotency-Key": ref}
            reply = await line.post("/v1/messages", body, headers)
            answers[reply.status] += 1
            if reply.status == 202:
                took_ms.append((time.monotonic() - began_mono) * 1000)
        line.close()

    await asyncio.gather(*(work() for _ in range(connections)))
    return took_ms, answers


async def send_batches(world: World, refs: list[str]) -> tuple[list[float], Counter[int]]:
    """Every ref once, in batches one after the other; as `send`, a time per batch."""
    line, took_ms, answers = HttpLine(world.url), [], Counter[int]()
    for at in range(0, len(refs), _BATCH):
        some = refs[at : at + _BATCH]
        messages = [{"text": f"{ref} {_TEXT}", "client_ref": ref} for ref in some]
        body = json.dumps({"defaults": {"to": "+447700900123"}, "messages": messages}).encode()
        began_mono = time.monotonic()
        headers = {"Authorization": f"Bearer {world.key}", "Idempotency-Key": f"batch-{some[0]}"}
        reply = await line.post("/v1/messages/batch", body, headers)
        spent_ms = (time.monotonic() - began_mono) * 1000
        if reply.status == 202:
            statuses = [one["status"] for one in json.loads(reply.body)["results"]]
            answers.update(statuses)
            took_ms += [spent_ms] * statuses.count(202)
    line.close()
    return took_ms, answers


async def run_round(home: Path, count: int, connections: int, shape: Shape, *, queued: bool = False) -> Round:
    """One gateway, one load; raises RuntimeError when not everything that was accepted was delivered."""
    world = World(home, shape)
    await world.start()
    try:
        await send(world, (f"warm{n}" for n in range(500)), connections)
        before, began_mono = cpu_s(world), time.monotonic()
        refs = [f"bench{n}" for n in range(count)]
        took_ms, answers = await (send_batches(world, refs) if queued else send(world, refs, connections))
        sent_s, sent_at = time.monotonic() - began_mono, time.time() * 1000 if queued else 0.0
        if not await settle(world, 120):
            raise RuntimeError("not every accepted message came to its end")
        after = cpu_s(world)
        seen = sorted(s.at for s in read_journal(world.journal_path) if s.client_ref.startswith("bench"))
    finally:
        await world.stop()
    if len(seen) < len(took_ms):
        raise RuntimeError(f"{len(took_ms)} accepted, {len(seen)} at the carrier")
    by_part = {part: (after[part] - before[part]) / len(took_ms) * 1000 for part in PARTS}
    took_ms.sort()
    seen = [at for at in seen if at > sent_at]
    return Round(
        accepted_per_s=len(took_ms) / sent_s,
        carrier_per_s=len(seen) / max(0.001, (seen[-1] - seen[0]) / 1000),
        http_ms_p50=took_ms[len(took_ms) // 2],
        http_ms_p99=took_ms[int(len(took_ms) * 0.99)],
        cpu_s_per_1k=sum(by_part.values()),
        cpu_s_per_1k_by_part={part: round(s, 3) for part, s in by_part.items()},
        answers=dict(answers),
    )


def main() -> int:
    """Run the rounds, print the table of medians, write a dated JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--window", type=int, default=100)
    parser.add_argument(
        "--answer-delay", type=int, default=0, metavar="MS", help="how long the carrier takes to answer"
    )
    parser.add_argument("--queued", action="store_true", help="what waits already, without the door beside it")
    parser.add_argument("--out", type=Path, default=Path("results"))
    asked = parser.parse_args()
    shape = Shape(sessions=1, window=asked.window, answer_delay_ms=asked.answer_delay, receipt_delay_ms=200)
    rounds = []
    for number in range(asked.rounds):
        with tempfile.TemporaryDirectory(prefix="sluicegate-bench-") as scratch:
            rounds.append(
                asyncio.run(run_round(Path(scratch), asked.count, asked.connections, shape, queued=asked.queued))
            )
        print_round(f"round {number + 1}", rounds[-1])
    names = ("accepted_per_s", "carrier_per_s", "http_ms_p50", "http_ms_p99", "cpu_s_per_1k")
    medians = {name: statistics.median(getattr(one, name) for one in rounds) for name in names}
    sys.stdout.write("median   " + "  ".join(f"{name} {value:,.2f}" for name, value in medians.items()) + "\n")
    asked.out.mkdir(parents=True, exist_ok=True)
    out = asked.out / f"bench-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    out.write_text(
        json.dumps({"asked": vars(asked), "medians": medians, "rounds": [*map(asdict, rounds)]}, default=str)
    )
    sys.stdout.write(f"written to {out}\n")
    return 0


def print_round(title: str, one: Round) -> None:
    """One line of the table."""
    parts = "  ".join(f"{part} {s:.2f}" for part, s in one.cpu_s_per_1k_by_part.items())
    sys.stdout.write(
        f"{title}  accepted/s {one.accepted_per_s:,.0f}  at the carrier/s {one.carrier_per_s:,.0f}  "
        f"HTTP p50 {one.http_ms_p50:.0f} ms p99 {one.http_ms_p99:.0f} ms  "
        f"CPU s per 1,000: {one.cpu_s_per_1k:.2f} ({parts})\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
