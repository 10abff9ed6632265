"""kill -9 during a receipt storm: delivery, egress and PostgreSQL, seeded, judged by the oracle.

    python -m loadtests.storms --runs 20 --first-seed 1 --out results/storms.jsonl

Each run starts a gateway of its own, sends messages whose carrier answers each with several receipts (on the way,
final, repeated, contradicted), strikes every target once in random order while receipts pour in, waits until all is
merged and told, and compares carrier's journal, inbox, messages and callback journal. A run is one line of the file;
runs that stand there already are not played again.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import asyncpg
import orjson

from loadtests.callback_sink import CallbackSink
from loadtests.evidence import settle
from loadtests.receipt_oracle import (
    EndedMessage,
    KeptReceipt,
    StormEvidence,
    StormFindings,
    TakenReceipt,
    judge_storm,
)
from loadtests.strikes import strike
from loadtests.traffic import ClientJournal, Traffic
from loadtests.transition_watch import strayed, watch
from loadtests.world import Shape, World

TARGETS: Final = ("delivery", "egress", "postgres")
# Receipts per message: two on the way, the final one, a quarter of them twice, a tenth contradicted.
STORM: Final = (
    ("intermediate", "[ENROUTE, ACCEPTD]"),
    ("receipt_double_ratio", "0.25"),
    ("receipt_contradicted_ratio", "0.1"),
    ("receipt_fail_ratio", "0.2"),
    ("receipt_retry_ms", "300"),
)
_POURS_WITHIN_S: Final = 45.0
_TOLD_WITHIN_S: Final = 60.0
_UNMERGED = "SELECT count(*) FROM receipts WHERE merged_at IS NULL"
_OWED = "SELECT count(*) FROM callbacks WHERE gave_up_at IS NULL"


@dataclass(frozen=True, slots=True)
class Storm:
    """One run."""

    seed: int
    rate_per_s: float = 150.0
    pouring_per_s: int = 200  # receipts answered in the last second before a strike, at least
    targets: tuple[str, ...] = TARGETS
    between_s: tuple[float, float] = (0.3, 1.5)
    shape: Shape = field(default_factory=lambda: Shape(answer_delay_ms=50, receipt_delay_ms=1_500, carrier=STORM))


@dataclass(slots=True)
class StormOutcome:
    """What a run came to. `pouring`: receipts answered in the second before each strike."""

    seed: int
    strikes: list[str] = field(default_factory=list)
    pouring: list[int] = field(default_factory=list)
    findings: StormFindings = field(default_factory=StormFindings)
    took_s: float = 0.0


async def play(storm: Storm, home: Path) -> StormOutcome:
    """Play one storm in `home` and judge it."""
    outcome, began_mono = StormOutcome(storm.seed), time.monotonic()
    async with CallbackSink(refuse_every=17) as sink:
        world = World(home, _with_sink(storm.shape, sink.url))
        await world.start()
        try:
            ledger = await world.ledger()
            await watch(ledger)
            await ledger.close()
            evidence = await _rage(storm, world, sink, outcome)
            ledger = await world.ledger()
            unlawful = await strayed(ledger)
            await ledger.close()
        finally:
            await world.stop()
    outcome.findings = judge_storm(evidence)
    outcome.findings.say(unlawful, "changes of status that the table does not know")
    outcome.took_s = round(time.monotonic() - began_mono, 1)
    if min(outcome.pouring, default=0) < storm.pouring_per_s:
        outcome.findings.violations.append(f"no storm at a strike: {outcome.pouring} receipts a second")
    return outcome


def _with_sink(shape: Shape, url: str) -> Shape:
    values = {name: getattr(shape, name) for name in Shape.__dataclass_fields__}
    return Shape(**(values | {"callbacks": url}))


async def _rage(storm: Storm, world: World, sink: CallbackSink, outcome: StormOutcome) -> StormEvidence:
    dice = random.Random(storm.seed)
    traffic = Traffic(world.url, world.key, storm.rate_per_s, storm.seed, f"w{storm.seed}")
    sending = asyncio.create_task(traffic.run_until_stopped())
    for target in dice.sample(storm.targets, len(storm.targets)):
        await asyncio.sleep(1.0 + dice.uniform(*storm.between_s))
        outcome.pouring.append(await _pours(world, storm.pouring_per_s))
        await strike(world, target, dice)
        outcome.strikes.append(target)
    await asyncio.sleep(1.0)
    traffic.stop()
    await sending
    await settle(world, _TOLD_WITHIN_S)
    await _all_told(world, sink)
    return await _collect(world, traffic.journal, sink)


async def _pours(world: World, least: int) -> int:
    """Wait for a storm; how many receipts were answered in the last second."""
    end_mono = time.monotonic() + _POURS_WITHIN_S
    while True:
        since_at = time.time() * 1000 - 1_000
        poured = sum(1 for entry in _entries(world.journal_path, "receipt_taken", 600_000) if entry["at"] >= since_at)
        if poured >= least or time.monotonic() > end_mono:
            return poured
        await asyncio.sleep(0.1)


async def _all_told(world: World, sink: CallbackSink) -> None:
    """Wait until the carrier has nothing more to say, everything is merged and every callback is taken."""
    end_mono, ledger, before = time.monotonic() + _TOLD_WITHIN_S, await world.ledger(), -1
    try:
        while time.monotonic() < end_mono:
            size = world.journal_path.stat().st_size
            owed = await ledger.fetchval(_UNMERGED) + await ledger.fetchval(_OWED)
            if owed == 0 and size == before:
                return
            before = size
            await asyncio.sleep(2.0)
    finally:
        await ledger.close()


async def _collect(world: World, client: ClientJournal, sink: CallbackSink) -> StormEvidence:
    ledger: asyncpg.Connection = await world.ledger()
    try:
        kept = await ledger.fetch("SELECT raw_id, state, message_id FROM receipts")
        messages = await ledger.fetch("SELECT id, client_ref, status, version, network_state FROM messages")
    finally:
        await ledger.close()
    ids = {row["client_ref"]: f"msg_{row['id'].hex}" for row in messages}
    submits = _entries(world.journal_path, "submit")
    return StormEvidence(
        taken=[TakenReceipt(one["message_id"], one["stat"]) for one in _entries(world.journal_path, "receipt_taken")],
        kept=[
            KeptReceipt(row["raw_id"], row["state"], row["message_id"] and f"msg_{row['message_id'].hex}")
            for row in kept
        ],
        messages=[
            EndedMessage(f"msg_{row['id'].hex}", row["status"], row["version"], row["network_state"])
            for row in messages
        ],
        callbacks=list(sink.taken),
        named={
            one["message_id"]: ids[ref]
            for one in submits
            if one["message_id"] and (ref := one["body_prefix"].split(" ", 1)[0]) in ids
        },
    )


def _entries(path: Path, event: str, tail: int | None = None) -> list[dict[str, Any]]:
    """The lines of one event of the carrier's journal, or of its last `tail` octets."""
    with path.open("rb") as journal:
        if tail is not None:
            journal.seek(max(0, path.stat().st_size - tail))
        lines = journal.read().splitlines()
    mark = f'"event":"{event}"'.encode()
    return [orjson.loads(line) for line in lines if mark in line and line.startswith(b"{") and line.endswith(b"}")]


def main() -> int:
    """Play the runs that are missing in the file; 1 when a promise broke in any of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=150.0, help="messages per second; about 3.4 receipts each")
    parser.add_argument("--keep", type=Path, help="run here and keep the logs")
    parser.add_argument("--out", type=Path, default=Path("results/storms.jsonl"))
    asked = parser.parse_args()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    rows = [orjson.loads(line) for line in asked.out.read_bytes().splitlines()] if asked.out.exists() else []
    played = {row["seed"] for row in rows}
    for seed in range(asked.first_seed, asked.first_seed + asked.runs):
        if seed in played:
            continue
        with tempfile.TemporaryDirectory(prefix="sluicegate-storm-") as scratch:
            home = asked.keep / f"storm-{seed}" if asked.keep else Path(scratch)
            outcome = asyncio.run(play(Storm(seed, asked.rate), home))
        rows.append(asdict(outcome))
        with asked.out.open("ab") as out:
            out.write(orjson.dumps(rows[-1]) + b"\n")
        sys.stdout.write(f"{outcome}\n")
        sys.stdout.flush()
    broken = [row for row in rows if row["findings"]["violations"]]
    sys.stdout.write(f"{len(rows)} runs, {len(broken)} with violations\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
