"""The links to PostgreSQL, Valkey and a tenant's callback endpoint are cut under load, judged by the same oracle.

    python -m loadtests.store_cuts --link postgres --rounds 3 --seed 1

The stores run by themselves, as a user's own would; the gateway reaches them through `tcp_proxy`. Each round cuts every
point once, in random order, after a random number of octets: in the middle of what the gateway sends, after it (the
answer is lost), with FIN, with RST, and by silence, which lasts some seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from gateway.embedded.home import Home
from gateway.embedded.postgres import PostgresServer
from gateway.embedded.valkey import ValkeyServer
from loadtests.callback_sink import CallbackSink
from loadtests.courses import courses
from loadtests.evidence import CALLED_WITHIN_S, collect, settle, told
from loadtests.hops import caught
from loadtests.oracle import Findings, Kill, judge
from loadtests.tcp_proxy import ANSWER_LOST, BLACK_HOLE, FIN, MIDDLE, RST, Cut, TcpProxy
from loadtests.traffic import Traffic
from loadtests.world import Shape, World

LINKS = ("postgres", "valkey", "callbacks")
POINTS = (MIDDLE, ANSWER_LOST, FIN, RST, BLACK_HOLE)
SILENCE_S = 4.0
_STRIKES_WITHIN_S = 30.0
_BETWEEN_S = (1.0, 3.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """Which link is cut, how often each point, and the load meanwhile."""

    link: str
    rounds: int = 1
    seed: int = 1
    rate_per_s: float = 240.0
    points: tuple[str, ...] = POINTS
    settle_s: float = 90.0
    shape: Shape = field(default_factory=lambda: Shape(otp_wait_budget_s=60, carrier=(("window_max", "50"),)))


@dataclass(slots=True)
class Outcome:
    """What a run came to."""

    plan: Plan
    kills: list[Kill] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    hops: dict[int, int] = field(default_factory=dict)
    rate_per_s: float = 0.0  # accepted, from the first to the last


@asynccontextmanager
async def _own_store(link: str, home: Path) -> AsyncIterator[tuple[str, str]]:
    """A store that no supervisor of the gateway looks after: its own URL and its socket."""
    home.mkdir(parents=True)
    home.chmod(0o755)
    held = Home(home)
    held.hold()
    server = PostgresServer(held) if link == "postgres" else ValkeyServer(held)
    server.start()
    try:
        await server.ready()
        sockets = held.socket_directory()
        yield server.url(), str(sockets / (".s.PGSQL.5432" if link == "postgres" else "valkey.sock"))
    finally:
        await server.stop()
        held.release()


def through(link: str, url: str, port: int) -> dict[str, str]:
    """The setting that leads the gateway to a store through a proxy on a port of loopback."""
    parts = urlsplit(url)
    if link == "postgres":
        return {
            "SLUICEGATE_DATABASE_URL": f"postgresql://{parts.username}:{parts.password}@127.0.0.1:{port}{parts.path}"
        }
    return {"SLUICEGATE_REDIS_URL": f"redis://:{parts.password}@127.0.0.1:{port}/0"}


async def run(plan: Plan, home: Path) -> Outcome:
    """Play one plan in `home` and judge it."""
    outcome = Outcome(plan)
    async with AsyncExitStack() as stack:
        sink = await stack.enter_async_context(CallbackSink())
        target: tuple[str, int] | str = ("127.0.0.1", urlsplit(sink.url).port or 80)
        url = ""
        if plan.link != "callbacks":
            home.chmod(0o755)
            url, target = await stack.enter_async_context(_own_store(plan.link, home / "store"))
        proxy = await TcpProxy(target, framing="octets").start()
        stack.push_async_callback(proxy.stop)
        where = sink.url if plan.link != "callbacks" else f"http://127.0.0.1:{proxy.port}/hooks"
        world = World(home / "gateway", replace(plan.shape, callbacks=where))
        if url:
            world.settings = through(plan.link, url, proxy.port)
        if plan.link == "postgres":
            world.ledger_url = url
        await world.start()
        try:
            await _play(plan, world, (proxy, sink), outcome)
        finally:
            code = await world.stop()
    if code != 0:
        outcome.findings.violations.append(f"up ended with exit code {code}")
    return outcome


async def _play(plan: Plan, world: World, ends: tuple[TcpProxy, CallbackSink], outcome: Outcome) -> None:
    (proxy, sink), dice = ends, random.Random(plan.seed)
    traffic = Traffic(world.url, world.key, plan.rate_per_s, plan.seed, f"l{plan.seed}")
    sending = asyncio.create_task(traffic.run_until_stopped())
    for _ in range(plan.rounds):
        for point in dice.sample(plan.points, len(plan.points)):
            await asyncio.sleep(dice.uniform(*_BETWEEN_S))
            outcome.kills.append(await _cut(plan.link, proxy, Cut(point, at=dice.randint(1, 40_000))))
    await asyncio.sleep(1.0)
    traffic.stop()
    await sending
    await settle(world, plan.settle_s)
    called = await told(world, sink, CALLED_WITHIN_S)
    outcome.findings = judge(await collect(world, traffic.journal, outcome.kills, called))
    found = await courses(world, traffic.journal, sink.taken)
    outcome.hops = caught(found, [kill.began_at for kill in outcome.kills], [])
    outcome.rate_per_s = traffic.journal.mean_per_s()


async def _cut(link: str, proxy: TcpProxy, cut: Cut) -> Kill:
    """One cut; after a silence the link ends."""
    strike = proxy.arm(cut)
    await asyncio.wait_for(strike.struck.wait(), _STRIKES_WITHIN_S)
    if cut.point == BLACK_HOLE:
        await asyncio.sleep(SILENCE_S)
        proxy.end_silent()
        await asyncio.wait_for(strike.over.wait(), _STRIKES_WITHIN_S)
    return Kill(f"cut-{link}", strike.began_at, max(strike.done_at, time.time_ns() // 1_000_000))


def main() -> int:
    """Run the asked rounds and print what they came to; 1 when a promise broke."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--link", choices=LINKS, required=True)
    parser.add_argument("--rounds", type=int, default=1, help="how often each point is cut")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=240.0, help="messages per second")
    parser.add_argument("--keep", type=Path, help="run here and keep the logs")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluicegate-links-") as scratch:
        home = asked.keep or Path(scratch)
        home.mkdir(parents=True, exist_ok=True)
        outcome = asyncio.run(run(Plan(asked.link, asked.rounds, asked.seed, asked.rate), home))
    found = outcome.findings
    sys.stdout.write(
        f"{asked.link}: cuts {len(outcome.kills)}  accepted {found.accepted}  delivered {found.delivered}"
        f"  flagged {found.flagged}  in doubt {found.in_doubt}  expired {found.expired}"
        f"  violations {len(found.violations)}\n" + "".join(f"    ! {one}\n" for one in found.violations)
    )
    return 1 if found.violations else 0


if __name__ == "__main__":
    sys.exit(main())
