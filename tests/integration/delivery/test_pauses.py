"""Pauses by hand: held at the claim, back after the end, budgets moved (contract section 2, "The two clocks")."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any
from uuid import UUID

import pytest

from gateway.delivery.pausing import Pausing
from gateway.delivery.promoter import Promoter
from gateway.delivery.rebuild import Rebuilder
from gateway.ledger import expiries, pauses
from gateway.ledger.cancellation import cancel
from gateway.ledger.claims import Wanted, claim, close_overdue
from gateway.ledger.pauses import Place
from gateway.ledger.resumptions import list_resumptions, move_budgets
from scheduler.store.scheduler import Scheduler
from tests.integration.delivery.world import World, index_of

MINUTE_MS = 60_000


class Held:
    """A ledger with an index, and the pauses of an application of acme and of the route."""

    def __init__(self, world: World, scheduler: Scheduler) -> None:
        self.world = world
        self.scheduler = scheduler
        self.rt: Any = world.runtime(scheduler)
        self.pausing = Pausing(self.rt)
        self.rebuilder = Rebuilder(self.rt, self.pausing)
        self.sale = Place("application", "sale", world.tenants["acme"], "acme")

    async def pause(self, place: Place, at: int | None = None) -> bool:
        async with self.world.pool.acquire() as conn:
            return await pauses.set_pause(conn, place, "pause", "ada", at or self.world.clock.now_at())

    async def resume(self, place: Place, at: int | None = None) -> bool:
        async with self.world.pool.acquire() as conn:
            return await pauses.clear_pause(conn, place, "ada", at or self.world.clock.now_at())

    async def claim(self, ids: Iterable[UUID], slot: int = 0) -> set[UUID]:
        wanted = [Wanted(one.bytes, slot, "carrier-a", "a1") for one in ids]
        async with self.world.pool.acquire() as conn:
            return {row["id"] for row in await claim(conn, wanted, 1, self.world.clock.now_at())}

    async def count(self, table: str) -> int:
        return int(await self.world.pool.fetchval(f"SELECT count(*) FROM {table}"))


@pytest.fixture
async def held(world: World, redis_url: str) -> AsyncIterator[Held]:
    async with index_of(redis_url) as (scheduler, _):
        made = Held(world, scheduler)
        await made.rebuilder.turn()
        yield made


@pytest.mark.parametrize("kind", ["application", "route", "provider"])
async def test_a_claim_that_meets_a_pause_holds_and_the_end_brings_it_back(held: Held, kind: str) -> None:
    """Design section 4: a reference never just vanishes."""
    place = held.sale if kind == "application" else Place(kind, "main" if kind == "route" else "carrier-a")
    message, other = await held.world.message(application="sale"), await held.world.message(application="other")
    assert await held.pause(place) and not await held.pause(place)
    assert await held.claim([message, other]) == ({other} if kind == "application" else set())
    waiting = await held.world.pool.fetch("SELECT id, kind FROM held ORDER BY id")
    assert [row["kind"] for row in waiting] == [kind] * len(waiting) and message in {row["id"] for row in waiting}
    await held.pausing.turn()
    assert await held.count("held") == len(waiting)  # the pause stands
    assert await held.resume(place)
    await held.pausing.turn()
    assert (await held.count("held"), await held.count("resumptions"), await held.count("outbox")) == (0, 0, 0)
    assert sum((await held.scheduler.counts()).values()) == len(waiting)
    assert await held.claim([message]) == {message}
    audit = await held.world.pool.fetch("SELECT actor, action FROM audit ORDER BY id")
    assert [tuple(row) for row in audit] == [("ada", f"{kind}.pause"), ("ada", f"{kind}.resume")]


@pytest.mark.parametrize("place", [Place("route", "main"), Place("provider", "carrier-a")], ids=lambda one: one.kind)
async def test_what_was_deferred_for_a_pause_comes_at_its_end(held: Held, place: Place) -> None:
    """The door defers by a minute at a time where nobody knows the end; nothing else is brought forward."""
    world, now_at = held.world, held.world.clock.now_at()

    async def due(kind: str, in_ms: int, **values: Any) -> UUID:
        message = await world.message(status="scheduled", not_before=now_at + in_ms, **values)
        await world.pool.execute(
            "INSERT INTO due SELECT day, id, not_before, $2 FROM messages WHERE id = $1", message, kind
        )
        return message

    deferred = await due("deferral", 45_000)
    others = [
        await due("send_at", 45_000),
        await due("deferral", 5 * MINUTE_MS),  # for a queue that was full, not for the pause
        await due("deferral", 45_000, route="other", provider="carrier-b"),
    ]
    await held.pause(place)
    await held.pausing.turn()
    assert await world.status(deferred) == "scheduled" and await held.count("due") == 4
    await held.resume(place)
    await held.pausing.turn()
    await Promoter(held.rt).turn()
    row = await world.row(deferred)
    assert row["status"] == "queued" and row["not_before"] <= world.clock.now_at()
    assert [await world.status(one) for one in others] == ["scheduled"] * 3
    assert sum((await held.scheduler.counts()).values()) == 1 and await held.claim([deferred]) == {deferred}


async def test_what_a_claim_held_after_the_release_comes_back_too(held: Held) -> None:
    """A claim that read the pause just before its end commits after it."""
    message = await held.world.message(application="sale")
    await held.pause(held.sale)
    await held.claim([message])
    await held.world.pool.execute("DELETE FROM pauses")
    await held.pausing.turn()
    assert await held.count("held") == 0 and sum((await held.scheduler.counts()).values()) == 1


async def test_the_wait_budget_of_a_paused_application_does_not_run(held: Held) -> None:
    now_at = held.world.clock.now_at()
    past = {"created_at": now_at - 10 * MINUTE_MS, "submit_by": now_at - MINUTE_MS, "sweep_at": now_at - MINUTE_MS}
    spared = await held.world.message(application="sale", **past)
    useless = await held.world.message(application="sale", **(past | {"expires_at": now_at - 1}))
    begun = await held.world.message(application="sale", submit_begun=True, **(past | {"expires_at": now_at - 1}))
    other = await held.world.message(application="other", **past)
    await held.pause(held.sale, now_at - 5 * MINUTE_MS)
    async with held.world.pool.acquire() as conn:
        await expiries.expire_due(conn, held.world.policy, now_at)
        wanted = [Wanted(spared.bytes, 0, "carrier-a", "a1")]
        assert await close_overdue(conn, held.world.policy, wanted, 1, now_at) == []
    assert [await held.world.status(one) for one in (spared, useless, begun, other)] == [
        "queued", "expired", "expired", "expired",
    ]  # fmt: skip
    row = await held.world.row(spared)
    assert row["sweep_at"] == row["expires_at"]
    await held.resume(held.sale, now_at)
    assert await held.claim([spared]) == {spared}  # what follows from the end is not done yet
    assert await held.world.pool.fetchval("SELECT count(*) FROM attempts WHERE id = $1", spared) == 1


async def test_the_paused_time_comes_back_once_and_never_beyond_expires_at(held: Held) -> None:
    until = now_at = held.world.clock.now_at() + 5_000  # an id tells when its message was made
    since = until - 5 * MINUTE_MS
    created = {"created_at": since - MINUTE_MS, "submit_by": since + MINUTE_MS, "sweep_at": since + MINUTE_MS}
    whole = await held.world.message(application="sale", expires_at=now_at + 60 * MINUTE_MS, **created)
    capped = await held.world.message(application="sale", expires_at=now_at + 30_000, **created)
    midway = await held.world.message(
        application="sale", created_at=until - MINUTE_MS, submit_by=until + MINUTE_MS, sweep_at=until + MINUTE_MS
    )
    planned = await held.world.message(
        application="sale", status="scheduled", not_before=until + MINUTE_MS, submit_by=until + 3 * MINUTE_MS
    )
    begun = await held.world.message(application="sale", submit_begun=True, **created)
    foreign = await held.world.message(application="other", **created)
    before = {one: await held.world.row(one) for one in (planned, begun, foreign)}
    await held.pause(held.sale, since)
    await held.resume(held.sale, until)
    async with held.world.pool.acquire() as conn:
        (ended,) = await list_resumptions(conn)
        for _ in range(3):  # a process that died after its commit goes on from there
            assert not await move_budgets(conn, ended)
    assert (await held.world.row(whole))["submit_by"] == since + 6 * MINUTE_MS
    assert (await held.world.row(whole))["sweep_at"] == since + 6 * MINUTE_MS
    assert (await held.world.row(capped))["submit_by"] == now_at + 30_000
    assert (await held.world.row(midway))["submit_by"] == until + 2 * MINUTE_MS
    for one, row in before.items():
        assert await held.world.row(one) == row


async def test_pauses_are_told_to_an_index_that_was_rebuilt(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    async def pause(scope: str, until: int | None = None) -> None:
        told.append(scope)

    monkeypatch.setattr(held.scheduler, "pause", pause)
    await held.pause(held.sale)
    await held.pause(Place("route", "main"))
    await held.pause(Place("session", "a1"))
    await held.pausing.turn()
    await held.pausing.turn()
    assert told == ["application:acme/sale", "route:main"]  # sessions are egress's, and nothing is told every second
    await held.world.message(application="sale")
    await held.claim([await held.world.message(application="sale")])
    await held.scheduler._redis.flushall()
    await held.rebuilder.turn()
    assert told[2:] == ["application:acme/sale", "route:main"]
    assert sum((await held.scheduler.counts()).values()) == 1  # the held one is not loaded


async def test_a_canceled_message_leaves_what_is_held(held: Held) -> None:
    message = await held.world.message(application="sale")
    await held.pause(held.sale)
    await held.claim([message])
    async with held.world.pool.acquire() as conn:
        assert await cancel(conn, held.world.tenants["acme"], message, held.world.clock.now_at()) is not None
    await held.resume(held.sale)
    await held.pausing.turn()
    assert await held.count("held") == 0 and await held.scheduler.counts() == {}
