"""Messages move off a route that cannot send (design section 3, Health), and every race has one winner (section 4)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from gateway.delivery import reroute
from gateway.delivery.promoter import Promoter
from gateway.delivery.rebuild import Rebuilder
from gateway.delivery.reroute import Outages, Rerouter, outages_of, ways_out
from gateway.domain.message import timeline
from gateway.ledger import applications, expiries, pauses, queries
from gateway.ledger.cancellation import cancel
from gateway.ledger.claims import Wanted, claim, close_overdue
from gateway.ledger.outcomes import Bench, Closing, store_endings
from gateway.ledger.pauses import Place
from gateway.ledger.reroutes import move_messages
from gateway.policy.rules.parse import read_policy
from scheduler.core.asks import LinkReport
from scheduler.store.scheduler import Scheduler
from tests.integration.delivery.world import World, index_of

POLICY = read_policy("""
tenants:
  acme: {classes: [otp, transactional, marketing]}
providers:
  carrier-a: {sessions: {a1: {host: 127.0.0.1, port: 2775, system_id: a, password: b, bind: transceiver, window: 10}}}
  carrier-b:
    limits: {rate_per_s: 100, burst: 100}
    dialect: {long_messages: udh16}
    sessions: {b1: {host: 127.0.0.1, port: 2776, system_id: a, password: b, bind: transceiver, window: 10}}
routes:
  main: {match: {}, provider: carrier-a, preference: 1}
  spare: {match: {classes: [otp, transactional]}, provider: carrier-b, preference: 2}
""")
UP_B = Outages(providers=frozenset({"carrier-a"}), up=frozenset({"carrier-b"}))


class Gateway:
    """A ledger and an index with two carriers, of which the second is up."""

    def __init__(self, world: World, scheduler: Scheduler) -> None:
        world.policy = POLICY
        self.world = world
        self.scheduler = scheduler
        self.rt: Any = world.runtime(scheduler)
        self.rerouter = Rerouter(self.rt)

    async def up(self) -> None:
        await Rebuilder(self.rt).turn()
        await self.scheduler.session_up("carrier-b", "b1")


@pytest.fixture
async def gateway(world: World, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    monkeypatch.setattr(reroute, "GRACE_MS", 0)
    async with index_of(redis_url) as (scheduler, _):
        yield Gateway(world, scheduler)


async def test_what_waits_for_a_carrier_without_sessions_goes_to_the_next_candidate(gateway: Gateway) -> None:
    world = gateway.world
    stuck, code = await world.message(), await world.message(**{"class": "otp"})
    no_way = await world.message(**{"class": "marketing"})
    claimed = await world.message()
    await world.attempt(claimed)
    begun_long = await world.message(segments=2, submit_begun=True)
    parted_otherwise = await world.message(segments=2)
    await gateway.up()
    await gateway.scheduler.session_up("carrier-a", "a1")
    assert await gateway.rerouter.turn() == 2.0 and (await world.row(stuck))["route"] == "main"
    await gateway.scheduler.session_down("carrier-a", "a1")
    await asyncio.sleep(0.01)
    await gateway.rerouter.turn()
    for one in (stuck, code):
        row = await world.row(one)
        assert (row["route"], row["provider"], row["next_slot"], row["status"]) == ("spare", "carrier-b", 1, "queued")
    for one in (no_way, claimed, begun_long, parted_otherwise):
        row = await world.row(one)
        assert (row["route"], row["next_slot"]) == ("main", 0)
    assert await world.pool.fetchval("SELECT count(*) FROM outbox") == 0
    counts = await gateway.scheduler.counts()
    assert counts["carrier-b", "otp"] == 1 and counts["carrier-b", "transactional"] == 1
    async with world.pool.acquire() as conn:
        old = [Wanted(stuck.bytes, 0, "carrier-a", "a1"), Wanted(code.bytes, 0, "carrier-b", "b1")]
        assert await claim(conn, old, 1, world.clock.now_at()) == []  # a stale reference is void
        won = await claim(conn, [Wanted(stuck.bytes, 1, "carrier-b", "b1")], 1, world.clock.now_at())
        assert [row["id"] for row in won] == [stuck]
        found = await queries.find(conn, world.tenants["acme"], code)
    assert found is not None
    assert [(one["type"], one["cause"]) for one in timeline(found.row, found.history)][1:] == [("released", "rerouted")]


async def test_what_waited_for_a_carrier_that_the_policy_no_longer_has_goes_another_way(gateway: Gateway) -> None:
    world = gateway.world
    gone = await world.message(route="former", provider="carrier-gone")
    same_name = await world.message(route="spare", provider="carrier-gone")
    here = await world.message()
    await gateway.up()
    await gateway.scheduler.session_up("carrier-a", "a1")
    assert await gateway.rerouter.turn() < 2.0
    for one in (gone, same_name):
        row = await world.row(one)
        assert (row["route"], row["provider"], row["next_slot"], row["status"]) == ("main", "carrier-a", 1, "queued")
    assert (await world.row(here))["next_slot"] == 0


async def test_a_paused_route_lets_what_it_held_go_another_way(gateway: Gateway) -> None:
    world = gateway.world
    held, kept = await world.message(), await world.message(application="sale")
    await gateway.up()
    await gateway.scheduler.session_up("carrier-a", "a1")
    async with world.pool.acquire() as conn:
        await pauses.set_pause(conn, Place("route", "main"), "pause", "ada", 1)
        await pauses.set_pause(conn, Place("application", "sale", world.tenants["acme"], "acme"), "pause", "ada", 1)
        wanted = [Wanted(one.bytes, 0, "carrier-a", "a1") for one in (held, kept)]
        assert await claim(conn, wanted, 1, world.clock.now_at()) == []
    await gateway.rerouter.turn()
    assert (await world.row(held))["route"] == "spare" and (await world.row(kept))["route"] == "main"
    assert await world.pool.fetch("SELECT id FROM held") == [(kept,)]


async def test_a_retry_of_a_blocked_route_takes_the_next_candidate(gateway: Gateway) -> None:
    world = gateway.world
    retry = await world.message(next_slot=1, attempts_spent=1, submit_begun=True)
    await world.pool.execute("INSERT INTO due SELECT day, id, 1, 'retry' FROM messages WHERE id = $1", retry)
    await gateway.up()
    gateway.rerouter._outages = UP_B
    await Promoter(gateway.rt, None, gateway.rerouter.detour).turn()
    row = await world.row(retry)
    assert (row["route"], row["provider"], row["next_slot"]) == ("spare", "carrier-b", 1)
    assert (await gateway.scheduler.counts()) == {("carrier-b", "transactional"): 1}


async def test_outages_and_ways_out(world: World) -> None:
    report = await _report({"carrier-a": LinkReport("carrier-a", "open", since_ms=10_000), "carrier-b": LinkReport("carrier-b", "up")})  # fmt: skip  # noqa: E501
    assert outages_of(report, []) == UP_B
    short = await _report({"carrier-a": LinkReport("carrier-a", "down", since_ms=9_999)})
    assert outages_of(short, [("route", "main")]) == Outages(routes=frozenset({"main"}))
    assert not Outages(up=frozenset({"carrier-b"})).blocks("main", "carrier-a")
    row = {
        "tenant": "acme", "class": "otp", "sender": "ACME", "recipient": "+44777", "route": "main",
        "provider": "carrier-a", "segments": 1, "submit_begun": False, "extras": None,
    }  # fmt: skip
    assert [route.name for route in ways_out(POLICY, UP_B, row)] == ["spare"]
    assert ways_out(POLICY, UP_B, row | {"extras": {"tlvs": {"dlt": "1"}}}) == ()
    assert ways_out(POLICY, UP_B, row | {"class": "marketing"}) == ()


async def _report(providers: dict[str, LinkReport]) -> Any:
    from scheduler.core.asks import IndexReport

    return IndexReport({}, {}, {}, providers=providers)


async def test_every_race_has_one_winner(gateway: Gateway) -> None:
    """Design section 4: claim, cancel, expiry, reroute, pause, outcome at once; one kind per slot, one end each."""
    world = gateway.world
    rng = random.Random(20_261_130)
    soon = world.clock.now_at() + 1_500
    ids = [
        await world.message(application=rng.choice(["sale", None]), submit_by=soon, sweep_at=soon, expires_at=soon)
        for _ in range(120)
    ]
    spare = POLICY.routes["spare"]
    sale = Place("application", "sale", world.tenants["acme"], "acme")
    bench = Bench(POLICY, b"p" * 32, world.clock.now_at(), lambda: 0.0)
    submitted: Counter[tuple[UUID, int]] = Counter()

    async def claiming(conn: Any, some: list[UUID]) -> None:
        rows = await rows_of(conn, some)
        wanted = [Wanted(row["id"].bytes, row["next_slot"], row["provider"], "a1") for row in rows]
        won = await claim(conn, wanted, 1, world.clock.now_at())
        submitted.update((row["id"], row["slot"]) for row in won)
        for row in won:
            if rng.random() < 0.7:
                outcome = rng.choice(["accepted", "throttled", "later"])
                at = world.clock.now_at()
                closing = Closing(row["day"], row["id"], row["slot"], outcome, "carrier-a", "+44", 1, at, at)
                closing.accepted_parts = int(outcome == "accepted")
                async with conn.transaction():
                    await store_endings(conn, [closing], bench)

    async def canceling(conn: Any, some: list[UUID]) -> None:
        for one in some[:3]:
            await cancel(conn, world.tenants["acme"], one, world.clock.now_at())

    async def expiring(conn: Any, some: list[UUID]) -> None:
        await expiries.expire_due(conn, POLICY, world.clock.now_at())
        async with conn.transaction():
            rows = await rows_of(conn, some)
            wanted = [Wanted(row["id"].bytes, row["next_slot"], row["provider"], "a1") for row in rows]
            await close_overdue(conn, POLICY, wanted, 1, world.clock.now_at())

    async def moving(conn: Any, some: list[UUID]) -> None:
        rows = await rows_of(conn, some)
        there = [(row, spare) for row in rows if row["route"] == "main" and row["status"] == "queued"]
        if there:
            await move_messages(conn, POLICY, b"p" * 32, there, world.clock.now_at())

    async def pausing(conn: Any, _some: list[UUID]) -> None:
        turn = pauses.set_pause(conn, sale, "pause", "ada", world.clock.now_at())
        await (
            turn if rng.random() < 0.5 else _ended(turn, pauses.clear_pause(conn, sale, "ada", world.clock.now_at()))
        )

    works: list[Callable[[Any, list[UUID]], Awaitable[None]]] = [claiming, canceling, expiring, moving, pausing]

    async def worker() -> None:
        for _ in range(12):
            async with world.pool.acquire() as conn:
                await rng.choice(works)(conn, rng.sample(ids, 12))
            await asyncio.sleep(rng.random() / 50)

    await asyncio.gather(*[worker() for _ in range(6)])
    async with world.pool.acquire() as conn:
        await pauses.clear_pause(conn, sale, "ada", world.clock.now_at())
        await conn.execute("DELETE FROM resumptions")
        await asyncio.sleep(max(0.0, (soon - world.clock.now_at()) / 1000) + 0.05)
        while (await expiries.expire_due(conn, POLICY, world.clock.now_at())).found:
            pass
        await applications.cancel_waiting(conn, world.tenants["acme"], "sale", world.clock.now_at())
    for one in ids:
        row = await world.row(one)
        attempts = await world.pool.fetch("SELECT * FROM attempts WHERE id = $1 ORDER BY slot", one)
        assert [attempt["slot"] for attempt in attempts] == list(range(len(attempts)))  # none twice, none left out
        still_open = [attempt for attempt in attempts if attempt["outcome"] is None]
        assert len(still_open) <= 1
        if still_open:
            assert (row["status"], still_open[0]["slot"]) == ("queued", row["next_slot"])
        last = attempts[-1]["kind"] if attempts else None
        expected = {"expired": {"expire", "submit"}, "canceled": {"cancel"}, "sent": {"submit"}, "queued": {"submit"}}
        assert last in expected[row["status"]], (row["status"], last)
        for attempt in attempts:
            assert (attempt["kind"] == "submit") == (submitted[one, attempt["slot"]] == 1)
    kinds = Counter(row["kind"] for row in await world.pool.fetch("SELECT kind FROM attempts"))
    assert set(kinds) >= {"submit", "cancel", "expire", "reroute"}


async def rows_of(conn: Any, ids: list[UUID]) -> list[Any]:
    return list(await conn.fetch("SELECT * FROM messages WHERE id = ANY ($1)", ids))


async def _ended(unused: Any, wanted: Any) -> None:
    unused.close()
    await wanted
