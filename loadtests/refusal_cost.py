"""What saying no costs beside saying yes: CPU per message of every part, refused, accepted and carried in turn.

    python -m loadtests.refusal_cost                    # batches of 100 and single calls, five rounds
    python -m loadtests.refusal_cost --rounds 9

Runs a gateway of its own. Refused are codes to a destination whose limit is a message in half an hour. Accepted is
marketing with a day's budget for a carrier that takes three messages a second, so that nothing but the door, the ledger
and the index works. Carried is what a carrier without a limit answers and whose receipt is kept: all that a 202
promises. What the gateway needs while nobody calls is measured before and taken off.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

from loadtests.bench import PARTS, cpu_s
from loadtests.http_line import HttpLine
from loadtests.world import Shape, World

BATCH: Final = 100
CONNECTIONS: Final = 50
REFUSED, ACCEPTED, CARRIED = "refused", "accepted", "carried"
_IDLE_S: Final = 5.0
_CARRIED_S: Final = 120.0
_POLICY: Final = """\
classes:
  otp: {wait_budget: 10s, ttl: {default: 2m, max: 10m}}
  transactional: {wait_budget: 10m, ttl: {default: 1h, max: 2h}}
  marketing: {wait_budget: 24h, ttl: {default: 40h, max: 48h}, when_full: refuse}
tenants:
  a:
    limits: {rate_per_s: 50000, burst: 50000}
    requests: {rate_per_s: 100000, burst: 100000}
    classes: [marketing, otp, transactional]
    default_class: marketing
    default_sender: "60070"
destinations: {slow: {prefixes: ["+39"], limits: {rate_per_s: 0.0005, burst: 1}}}
providers:
  carrier:
    sessions:
      only:
        {host: 127.0.0.1, port: {port}, system_id: load, password: secret, bind: transceiver, window: 50,
         limits: {rate_per_s: 3, burst: 1}}
  quick:
    sessions:
      quick-1: {host: 127.0.0.1, port: {port}, system_id: quick, password: secret, bind: transceiver, window: 50}
routes:
  quick: {match: {classes: [transactional]}, provider: quick, preference: 1}
  everything: {match: {}, provider: carrier, preference: 2}
"""
_TEXT: Final = "Hello there, this is a message of usual length for all"
_KINDS: Final = {
    REFUSED: ("otp", "+3933312", 503),
    ACCEPTED: ("marketing", "+4477009", 202),
    CARRIED: ("transactional", "+4477008", 202),
}
_OPEN: Final = "SELECT count(*) FROM messages WHERE class = 'transactional' AND final_at IS NULL"


class Bench:
    """One gateway, and what it was asked so far."""

    def __init__(self, world: World, key: str) -> None:
        self._world = world
        self._key = key
        self._count = 0
        self._idle = dict.fromkeys(PARTS, 0.0)  # CPU seconds per second

    async def rest(self) -> None:
        """Learns what the parts need while nobody calls."""
        before = cpu_s(self._world)
        await asyncio.sleep(_IDLE_S)
        after = cpu_s(self._world)
        self._idle = {part: (after[part] - before[part]) / _IDLE_S for part in PARTS}

    async def cost(self, kind: str, messages: int, size: int) -> dict[str, float]:
        """Microseconds of CPU per message by part; raises RuntimeError where the door answered otherwise."""
        left, before, began_mono = messages // size, cpu_s(self._world), time.monotonic()

        async def work() -> None:
            nonlocal left
            line = HttpLine(self._world.url)
            while left > 0:
                left -= 1
                await self._call(line, kind, size)

        await asyncio.gather(*(work() for _ in range(CONNECTIONS if size == 1 else 4)))
        if kind == CARRIED:
            await self._carried()
        await asyncio.sleep(1.0)  # what was accepted is queued, what was carried is booked
        took_s, after = time.monotonic() - began_mono, cpu_s(self._world)
        return {part: (after[part] - before[part] - self._idle[part] * took_s) / messages * 1e6 for part in PARTS}

    async def _carried(self) -> None:
        ledger = await self._world.ledger()
        try:
            async with asyncio.timeout(_CARRIED_S):
                while await ledger.fetchval(_OPEN):
                    await asyncio.sleep(0.5)
        finally:
            await ledger.close()

    async def _call(self, line: HttpLine, kind: str, size: int) -> None:
        class_name, prefix, status = _KINDS[kind]
        self._count += 1
        headers = {"Authorization": f"Bearer {self._key}", "Idempotency-Key": f"cost-{self._count}"}
        one = {"class": class_name, "text": _TEXT}
        if size == 1:
            path, body = "/v1/messages", json.dumps(one | {"to": f"{prefix}{self._count % 100_000:05d}"})
        else:
            messages = [{"to": f"{prefix}{(self._count * size + at) % 100_000:05d}"} for at in range(size)]
            path, body = "/v1/messages/batch", json.dumps({"defaults": one, "messages": messages})
        reply = await line.post(path, body.encode(), headers)
        if reply.status != status:
            raise RuntimeError(f"{kind} was answered {reply.status}, not {status}: {reply.body[:200]!r}")


async def measure(
    rounds: int, batched: int, single: int, say: Callable[[str], None]
) -> dict[tuple[int, str], list[dict[str, float]]]:
    """Costs of each round, by messages per call and kind."""
    found: dict[tuple[int, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="sluicegate-refusals-") as scratch:
        world = World(Path(scratch), Shape(answer_delay_ms=20), _POLICY)
        await world.start()
        try:
            bench = Bench(world, world.new_key("a"))
            await bench.cost(ACCEPTED, BATCH * 10, BATCH)
            await _until_refused(bench)
            for _ in range(rounds):
                await bench.rest()
                for size, messages in ((BATCH, batched), (1, single)):
                    for kind in _KINDS:
                        cost = await bench.cost(kind, messages, size)
                        found.setdefault((size, kind), []).append(cost)
                        say(f"{kind:>9} in calls of {size:>3}: {sum(cost.values()):7.0f} us\n")
        finally:
            await world.stop()
    return found


async def _until_refused(bench: Bench) -> None:
    """The destination takes its first code or two."""
    for _ in range(20):
        try:
            await bench.cost(REFUSED, CONNECTIONS, 1)
        except RuntimeError:
            continue
        return
    raise RuntimeError("codes to the slow destination are never refused")


def table(found: dict[tuple[int, str], list[dict[str, float]]]) -> str:
    """Medians, and the ratio of what a refusal costs to what an acceptance does."""
    lines = [f"{'calls of':>8}  {'':>9}  " + "  ".join(f"{part:>8}" for part in PARTS) + f"  {'together':>8}"]
    for size in (BATCH, 1):
        costs = {kind: {part: median(one[part] for one in found[size, kind]) for part in PARTS} for kind in _KINDS}
        for kind, by_part in costs.items():
            shown = "  ".join(f"{by_part[part]:8.0f}" for part in PARTS)
            lines.append(f"{size:>8}  {kind:>9}  {shown}  {sum(by_part.values()):8.0f}")
        for kind in (ACCEPTED, CARRIED):
            ratios = [
                sum(no.values()) / sum(yes.values())
                for no, yes in zip(found[size, REFUSED], found[size, kind], strict=True)
            ]
            each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            lines.append(f"{size:>8}  refused is {median(ratios):.2f} of {kind} (rounds: {each})")
    return "\n".join(lines)


def main() -> int:
    """Print the table; microseconds of CPU per message."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batched", type=int, default=6_000, help="messages per round in batches")
    parser.add_argument("--single", type=int, default=2_000, help="single calls per round")
    asked = parser.parse_args()
    found = asyncio.run(
        measure(asked.rounds, asked.batched, asked.single, lambda line: print(line, end="", flush=True))
    )
    sys.stdout.write(table(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
