"""Thousands of clients that trickle their requests, beside healthy ones (reliability section 5, line 14).

    python -m loadtests.trickle --connections 2000

Starts a gateway of its own, measures healthy sends alone, opens the slow connections (half trickle headers, half a
body, an octet every second), measures again while they stand, and waits until the gateway has cut all of them.
Prints a table and writes results/trickle-DATE.json. Exit code 1 where a promise is broken: healthy p99 at most doubled
(and at most 50 ms where it was tiny), one-time passwords within their wait budget, every slow connection cut within
12 s of its first octet.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from loadtests.http_line import HttpLine
from loadtests.world import World

CUT_S = 12.0
OTP_BUDGET_MS = 10_000.0
FLOOR_MS = 50.0  # below this a doubling says nothing
_OCTET_EVERY_S = 1.0
_GIVE_UP_S = 60.0
_HEADERS = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Slow: "
_BODY = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n"


@dataclass(slots=True)
class Slow:
    """How the slow ones ended: seconds from the first octet to the cut, and what they were told."""

    lifetimes_s: list[float] = field(default_factory=list)
    told: dict[str, int] = field(default_factory=dict)
    standing: int = 0  # that were open all at once

    @property
    def longest_s(self) -> float:
        """The longest life of all."""
        return max(self.lifetimes_s, default=0.0)


@dataclass(slots=True)
class Healthy:
    """Latencies of healthy sends in ms by class, and their answers by status."""

    latencies_ms: dict[str, list[float]] = field(default_factory=dict)
    answers: dict[int, int] = field(default_factory=dict)

    def p99_ms(self, name: str | None = None) -> float:
        """The 99th percentile of a class, or of all."""
        taken = [one for key, some in self.latencies_ms.items() if name in (None, key) for one in some]
        return statistics.quantiles(taken, n=100)[98] if len(taken) > 1 else 0.0


@dataclass(slots=True)
class Outcome:
    """What a run came to."""

    connections: int
    alone: Healthy
    beside: Healthy
    slow: Slow

    def violations(self) -> list[str]:
        """What was promised and not kept."""
        found = []
        allowed = max(2 * self.alone.p99_ms(), FLOOR_MS)
        if self.beside.p99_ms() > allowed:
            found.append(f"healthy p99 {self.beside.p99_ms():.1f} ms, at most {allowed:.1f} ms")
        if self.beside.p99_ms("otp") > OTP_BUDGET_MS:
            found.append(f"otp p99 {self.beside.p99_ms('otp'):.1f} ms, its budget is {OTP_BUDGET_MS:.0f} ms")
        if self.slow.longest_s > CUT_S:
            found.append(f"a slow connection lived {self.slow.longest_s:.1f} s, at most {CUT_S:g} s")
        if len(self.slow.lifetimes_s) != self.connections:
            found.append(f"{len(self.slow.lifetimes_s)} of {self.connections} slow connections were cut")
        refused = {status: n for status, n in self.beside.answers.items() if status != 202}
        if refused:
            found.append(f"healthy sends were refused: {refused}")
        return found


async def send_healthily(
    url: str, key: str, seconds: float, run: str, lines: int = 4, pause_s: float = 0.02
) -> Healthy:
    """Sends from a few connections, one after the other, for some seconds."""
    healthy = Healthy()
    until_mono = time.monotonic() + seconds

    async def one(number: int) -> None:
        line, n = HttpLine(url), 0
        while time.monotonic() < until_mono:
            n += 1
            name = ("otp", "transactional", "marketing")[n % 3]
            text = json.dumps({"to": f"+4477009{number}{n:05d}"[:13], "text": "code 1234", "class": name}).encode()
            headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": f"{run}-{number}-{n}"}
            began_mono = time.monotonic()
            reply = await line.post("/v1/messages", text, headers)
            healthy.latencies_ms.setdefault(name, []).append((time.monotonic() - began_mono) * 1000)
            healthy.answers[reply.status] = healthy.answers.get(reply.status, 0) + 1
            await asyncio.sleep(pause_s)
        line.close()

    await asyncio.gather(*(one(number) for number in range(1, lines + 1)))
    return healthy


async def trickle(url: str, connections: int, slow: Slow, all_open: asyncio.Event) -> None:
    """Opens slow connections and trickles until each is cut."""
    parts = urlsplit(url)
    opened = 0

    async def one(number: int) -> None:
        nonlocal opened
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        began_mono = time.monotonic()
        writer.write(_HEADERS if number % 2 else _BODY)
        opened += 1
        slow.standing = max(slow.standing, opened)
        if opened == connections:
            all_open.set()
        told = b""
        ended = asyncio.ensure_future(reader.read())
        with suppress(OSError):
            while not ended.done() and time.monotonic() - began_mono < _GIVE_UP_S:
                writer.write(b"x")
                await asyncio.wait({ended}, timeout=_OCTET_EVERY_S)
        opened -= 1
        if ended.done():
            slow.lifetimes_s.append(time.monotonic() - began_mono)
            with suppress(OSError):
                told = ended.result()
        else:
            ended.cancel()
        line = told.split(b"\r\n", 1)[0].decode("latin-1") or "closed"
        slow.told[line] = slow.told.get(line, 0) + 1
        writer.close()

    await asyncio.gather(*(one(number) for number in range(connections)))


async def measure(url: str, key: str, connections: int, seconds: float) -> Outcome:
    """The whole run against a gateway."""
    await send_healthily(url, key, min(2.0, seconds), "warm")
    alone = await send_healthily(url, key, seconds, "alone")
    # In a process of their own: what they cost their own loop is no latency of the gateway.
    words = ("-m", "loadtests.trickle", "--connections", str(connections), "--only-slow", url)
    other = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE)
    assert other.stdout is not None
    await other.stdout.readline()  # all are open
    beside = await send_healthily(url, key, seconds, "beside")
    slow = Slow(**json.loads(await other.stdout.read()))
    await other.wait()
    return Outcome(connections, alone, beside, slow)


async def only_slow(url: str, connections: int) -> None:
    """The slow ones alone: says when all are open, and in the end how they fared, a line of JSON each."""
    slow, all_open = Slow(), asyncio.Event()
    trickling = asyncio.create_task(trickle(url, connections, slow, all_open))
    opening = asyncio.create_task(all_open.wait())
    await asyncio.wait({trickling, opening}, return_when=asyncio.FIRST_COMPLETED)
    opening.cancel()
    print(json.dumps({"standing": slow.standing}), flush=True)
    await trickling
    print(json.dumps(asdict(slow)), flush=True)


def table(outcome: Outcome) -> str:
    """The run in words."""
    rows = [
        ("slow connections", f"{outcome.connections}, at most {outcome.slow.standing} at once"),
        ("healthy p99 alone / beside", f"{outcome.alone.p99_ms():.1f} / {outcome.beside.p99_ms():.1f} ms"),
        ("otp p99 alone / beside", f"{outcome.alone.p99_ms('otp'):.1f} / {outcome.beside.p99_ms('otp'):.1f} ms"),
        ("longest life of a slow one", f"{outcome.slow.longest_s:.2f} s (at most {CUT_S:g} s)"),
        ("slow ones were told", ", ".join(f"{n} x {line}" for line, n in sorted(outcome.slow.told.items()))),
        ("violations", "; ".join(outcome.violations()) or "none"),
    ]
    return "\n".join(f"{name:<28} {value}" for name, value in rows)


async def run(connections: int, seconds: float) -> Outcome:
    """Measures a gateway of its own."""
    with tempfile.TemporaryDirectory(prefix="sluicegate-trickle-") as home:
        world = World(Path(home) / "run")
        await world.start()
        try:
            return await measure(world.url, world.key, connections, seconds)
        finally:
            await world.stop()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--only-slow", metavar="URL", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = asked.connections + 500
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard) if hard > 0 else wanted, hard))
    if asked.only_slow:
        asyncio.run(only_slow(asked.only_slow, asked.connections))
        return 0
    outcome = asyncio.run(run(asked.connections, asked.seconds))
    print(table(outcome))
    results = Path("results")
    results.mkdir(exist_ok=True)
    path = results / f"trickle-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    path.write_text(json.dumps(asdict(outcome) | {"violations": outcome.violations()}))
    return 1 if outcome.violations() else 0


if __name__ == "__main__":
    sys.exit(main())
