"""Receipts under load: a flood of old ones beside OTPs, and receipts that come before their own answer.

    python -m loadtests.receipts flood --count 30000
    python -m loadtests.receipts early --rate 1000 --seconds 20 [--batches]

`flood`: the carrier pours receipts of ids that nobody knows into two binds, as fast as they are answered, while OTPs go
on; prints receipts per second, CPU seconds per 1,000 of them by part, and the time from the door to the carrier of OTPs
before and in the flood. `early`: each submit is answered after its receipt; prints which share has its final receipt
and how long receipts waited once their id was stored; with `--batches` a hundred messages come in a call, so that the
door leaves more of the machine to the receipts. Load and carrier share the machine: rates are lower bounds, CPU
counts the gateway's processes and stores only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from loadtests.bench import cpu_s
from loadtests.evidence import settle
from loadtests.http_line import HttpLine
from loadtests.traffic import Traffic
from loadtests.world import Shape, World
from smpp.protocol.pdu import DeliverSm
from smpp.simulator import Simulator, SimulatorSettings

_BATCH: Final = 100
_OTP_WAITS: Final = """
SELECT a.written_at - m.created_at AS wait_ms FROM attempts a JOIN messages m ON m.day = a.day AND m.id = a.id
 WHERE m.class = 'otp' AND a.written_at IS NOT NULL AND m.created_at BETWEEN $1 AND $2
"""
# From the moment at which a receipt and its id were both stored to its merge, ms.
_MERGE_WAITS: Final = """
SELECT r.merged_at - greatest(r.received_at, a.outcome_at) AS wait_ms FROM receipts r
  JOIN attempts a ON a.day = r.day AND a.id = r.message_id AND a.slot = r.slot WHERE r.merged_at IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Flood:
    """What a flood came to; waits in ms, CPU in seconds per 1,000 receipts."""

    receipts: int
    answered_per_s: float
    cpu_s_per_1k: dict[str, float]
    otp_quiet_ms_p50: float
    otp_quiet_ms_p99: float
    otp_flood_ms_p50: float
    otp_flood_ms_p99: float
    otps_in_flood: int


@dataclass(frozen=True, slots=True)
class Early:
    """What early receipts came to; waits in ms. CPU in seconds per 1,000 messages: door, submit, receipt and all.

    `load_cpu_s_per_1k` is what the load tool itself took: near 1,000 / rate it is the load tool that is at its end.
    """

    messages: int
    sent_per_s: float
    coverage: float
    wait_ms_p50: float
    wait_ms_p99: float
    wait_ms_max: float
    cpu_s_per_1k: dict[str, float]
    load_cpu_s_per_1k: float


class _OwnCarrier(World):
    """A world whose carrier runs in this process."""

    def start_carrier(self) -> None:
        """Nothing: `carried` starts it."""

    async def stop_carrier(self) -> None:
        """Nothing: `carried` stops it."""


async def flood(home: Path, count: int, otp_rate_per_s: float = 40.0) -> Flood:
    """Pour `count` receipts while one-time passwords go on."""
    world = _OwnCarrier(home, Shape(sessions=2, window=100, otp_wait_budget_s=60))
    settings = SimulatorSettings(port=world.carrier_port, receipts=False, receipt_window=1_000, password="secret")
    carrier = await Simulator(settings).start()
    try:
        await world.start()
        traffic = Traffic(world.url, world.key, otp_rate_per_s, 1, "f1", lines=16)
        sending = asyncio.create_task(traffic.run_until_stopped())
        await asyncio.sleep(6)
        quiet = (_now_at() - 5_000, _now_at())
        before, began_at, began_mono = cpu_s(world), _now_at(), time.monotonic()
        for n in range(count):
            carrier.inject("load", old_receipt(n))
        while carrier.counters["inbound_taken"] < count:
            await asyncio.sleep(0.05)
        took_s, ended_at = time.monotonic() - began_mono, _now_at()
        used = {part: round((used_s - before[part]) * 1000 / count, 3) for part, used_s in cpu_s(world).items()}
        traffic.stop()
        await sending
        await settle(world, 30)
        waits = [await _column(world, _OTP_WAITS, *span) for span in (quiet, (began_at, ended_at))]
    finally:
        await world.stop()
        await carrier.stop()
    return Flood(
        receipts=count,
        answered_per_s=round(count / took_s, 1),
        cpu_s_per_1k=used,
        otp_quiet_ms_p50=_quantile(waits[0], 50),
        otp_quiet_ms_p99=_quantile(waits[0], 99),
        otp_flood_ms_p50=_quantile(waits[1], 50),
        otp_flood_ms_p99=_quantile(waits[1], 99),
        otps_in_flood=len(waits[1]),
    )


async def early(home: Path, rate_per_s: float, seconds: float, *, batches: bool = False) -> Early:
    """Send for `seconds`; every receipt comes before the answer to its own submit."""
    script = (("receipt_before_answer", "true"),)
    world = World(home, Shape(sessions=2, window=200, receipt_delay_ms=20, otp_wait_budget_s=60, carrier=script))
    try:
        await world.start()
        traffic = Traffic(world.url, world.key, rate_per_s, 1, "e1", again_ratio=0.0)
        before, own_s = cpu_s(world), time.process_time()
        began_mono = time.monotonic()
        if batches:
            await _send_batches(world, rate_per_s, seconds)
        else:
            sending = asyncio.create_task(traffic.run_until_stopped())
            await asyncio.sleep(seconds)
            traffic.stop()
            await sending
        took_s, own_s = time.monotonic() - began_mono, time.process_time() - own_s
        await settle(world, 60)
        used = {part: used_s - before[part] for part, used_s in cpu_s(world).items()}
        await asyncio.sleep(2)
        ledger = await world.ledger()
        sent = await ledger.fetchval("SELECT count(*) FROM messages WHERE status <> 'expired'")
        decided = await ledger.fetchval("SELECT count(*) FROM messages WHERE status IN ('delivered', 'undelivered')")
        await ledger.close()
        waits = await _column(world, _MERGE_WAITS)
    finally:
        await world.stop()
    return Early(
        messages=sent,
        sent_per_s=round(sent / took_s, 1),
        coverage=decided / sent,
        wait_ms_p50=_quantile(waits, 50),
        wait_ms_p99=_quantile(waits, 99),
        wait_ms_max=max(waits, default=0.0),
        cpu_s_per_1k={part: round(used_s * 1000 / sent, 3) for part, used_s in used.items()},
        load_cpu_s_per_1k=round(own_s * 1000 / sent, 3),
    )


async def _send_batches(world: World, rate_per_s: float, seconds: float) -> None:
    """A batch each time it is due, at most four under way; one that comes late is not caught up."""
    lines = asyncio.Queue[HttpLine]()
    for _ in range(4):
        lines.put_nowait(HttpLine(world.url))

    async def send(n: int, line: HttpLine) -> None:
        messages = [
            {"to": f"+447700{n % 1000:03d}{at:03d}", "text": f"{n} {at}", "client_ref": f"b{n}-{at}"}
            for at in range(_BATCH)
        ]
        headers = {"Authorization": f"Bearer {world.key}", "Idempotency-Key": f"early-{n}"}
        await line.post("/v1/messages/batch", json.dumps({"messages": messages}).encode(), headers)
        lines.put_nowait(line)

    end_mono, n = time.monotonic() + seconds, 0
    async with asyncio.TaskGroup() as calls:
        while time.monotonic() < end_mono:
            due_mono = time.monotonic() + _BATCH / rate_per_s
            calls.create_task(send(n, await lines.get()))
            n += 1
            await asyncio.sleep(max(0.0, due_mono - time.monotonic()))
    while not lines.empty():
        lines.get_nowait().close()


def old_receipt(n: int) -> DeliverSm:
    """A receipt of some day long ago, of an id that nobody knows any more."""
    text = f"id:OLD{n:07d}X sub:001 dlvrd:001 submit date:2601010101 done date:2601010105 stat:DELIVRD err:000 text:"
    return DeliverSm(source_addr=f"4477{n:08d}", destination_addr="60070", esm_class=0x04, short_message=text.encode())


async def _column(world: World, statement: str, *arguments: int) -> list[float]:
    ledger = await world.ledger()
    try:
        return [float(row["wait_ms"]) for row in await ledger.fetch(statement, *arguments)]
    finally:
        await ledger.close()


def _quantile(values: Sequence[float], percent: int) -> float:
    return round(statistics.quantiles(values, n=100)[percent - 1], 1) if len(values) > 1 else 0.0


def _now_at() -> int:
    return time.time_ns() // 1_000_000


def main() -> int:
    """Run what is asked, print it, write a dated JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    one = kinds.add_parser("flood")
    one.add_argument("--count", type=int, default=30_000)
    one.add_argument("--otp-rate", type=float, default=40.0, help="messages per second, a third of them OTPs")
    two = kinds.add_parser("early")
    two.add_argument("--rate", type=float, default=1_000.0)
    two.add_argument("--seconds", type=float, default=20.0)
    two.add_argument("--batches", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results"))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluicegate-receipts-") as scratch:
        if asked.kind == "flood":
            found: Flood | Early = asyncio.run(flood(Path(scratch), asked.count, asked.otp_rate))
        else:
            found = asyncio.run(early(Path(scratch), asked.rate, asked.seconds, batches=asked.batches))
    row = asdict(found)
    for name, value in row.items():
        sys.stdout.write(f"{name:>18}  {value}\n")
    asked.out.mkdir(parents=True, exist_ok=True)
    out = asked.out / f"receipts-{asked.kind}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    out.write_text(json.dumps(row, indent=1))
    sys.stdout.write(f"written to {out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
