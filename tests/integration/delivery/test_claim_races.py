"""Stop words, consent, imports, pauses and cancels at the very moment of the claim: one decision each, none lost."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from gateway.domain.suppression import rules_of
from gateway.inbound.importer import Importer
from gateway.ledger import consents, pauses
from gateway.ledger.cancellation import Canceled, cancel
from gateway.ledger.claims import PLANNER_SETTINGS, Wanted, claim, close_overdue, keep_undecided
from gateway.ledger.consents import NewImport
from gateway.ledger.pauses import Place
from gateway.ledger.resumptions import free_holders, release_held
from gateway.ledger.suppression import suppress_refused
from tests.integration.delivery.world import World

PAUSED = Place("application", "sale")


def wanted_of(ids: list[UUID]) -> list[Wanted]:
    return [Wanted(one.bytes, 0, "carrier-a", "a1") for one in ids]


async def work(world: World, ids: list[UUID], between: Any = None) -> set[UUID]:
    """What the claimer does with a batch of references; `between` happens after the claim has looked."""
    now_at = world.clock.now_at()
    async with world.pool.acquire() as conn:
        await conn.execute(PLANNER_SETTINGS)
        rows = await claim(conn, wanted_of(ids), 1, now_at, rules_of(world.policy))
        won = {row["id"] for row in rows}
        if between is not None:
            await between()
        lost = wanted_of([one for one in ids if one not in won])
        async with conn.transaction():
            await close_overdue(conn, world.policy, lost, 1, now_at)
            await suppress_refused(conn, world.policy, lost, 1, now_at)
        await keep_undecided(conn, lost, now_at)
    return won


async def released(world: World) -> set[UUID]:
    """References that come back into the queue now."""
    found: set[UUID] = set()
    async with world.pool.acquire() as conn:
        for holder in await free_holders(conn):
            back = await release_held(conn, world.policy, b"p" * 32, holder, world.clock.now_at())
            found |= {UUID(bytes=entry.reference.id) for entry in back.entries}
    return found


def with_opt_in(world: World) -> None:
    marketing = replace(world.policy.classes["marketing"], consent="opt_in")
    world.policy = replace(world.policy, classes={**world.policy.classes, "marketing": marketing})


async def test_consent_that_comes_between_the_claim_s_two_looks_loses_no_message(world: World) -> None:
    with_opt_in(world)
    message = await world.message(**{"class": "marketing"})

    async def opt_in() -> None:
        async with world.pool.acquire() as conn:
            await consents.add(conn, "opt_ins", world.tenants["acme"], [("+447700900123", "")], ("api", 1))

    assert await work(world, [message], opt_in) == set()
    assert await world.status(message) == "queued"
    assert await released(world) == {message}
    assert await work(world, [message]) == {message}


async def test_a_pause_that_comes_or_goes_between_the_looks_loses_no_message(world: World) -> None:
    place = replace(PAUSED, tenant_id=world.tenants["acme"], tenant="acme")
    now_at = world.clock.now_at()

    async def pause() -> None:
        async with world.pool.acquire() as conn:
            await pauses.set_pause(conn, place, "pause", "someone", now_at)

    async def resume() -> None:
        async with world.pool.acquire() as conn:
            await pauses.clear_pause(conn, place, "someone", now_at)

    late = await world.message(application="sale", submit_by=now_at - 1)
    assert await work(world, [late], pause) == set()  # out of time when the claim looked, spared when it was to expire
    waiting = await world.message(application="sale")
    assert await work(world, [waiting], resume) == set()
    assert await released(world) == {late, waiting}


@pytest.mark.parametrize("seed", range(3))
async def test_everybody_at_once_decides_each_message_once(world: World, seed: int) -> None:
    """What a stop, an import, a cancel had before a claim began is never claimed; nothing is lost, nothing twice."""
    chance = random.Random(seed)
    numbers = [f"+4477009{n:05d}" for n in range(120)]
    about = {"class": "marketing", "application": "sale"}
    ids = {await world.message(recipient=number, **about): number for number in numbers}
    tenant = world.tenants["acme"]
    place = replace(PAUSED, tenant_id=tenant, tenant="acme")
    waiting, stopped, canceled, won = set(ids), set[str](), set[UUID](), Counter[UUID]()
    over = asyncio.Event()

    async def claimer() -> None:
        while not over.is_set():
            batch = sorted(chance.sample(sorted(waiting), min(20, len(waiting))))
            stopped_before, canceled_before = set(stopped), set(canceled)
            for one in await work(world, batch):
                assert ids[one] not in stopped_before and one not in canceled_before
                won[one] += 1
            waiting.difference_update(batch)
            waiting.update(await released(world))
            await asyncio.sleep(chance.random() * 0.01)

    async def stopper() -> None:
        for number in chance.sample(numbers, 25):
            async with world.pool.acquire() as conn, conn.transaction():
                await consents.stop(conn, tenant, number, "+393330000001", world.clock.now_at())
            stopped.add(number)

    async def importer() -> None:
        listed = chance.sample(numbers, 25)
        source = ("number\r\n" + "\r\n".join(listed)).encode()
        async with world.pool.acquire() as conn:
            new = NewImport(UUID(bytes=os.urandom(16)), tenant, "opt_outs", source, len(listed))
            await consents.begin_import(conn, new, world.clock.now_at())
            while await Importer(world.runtime()).work(conn, world.policy):
                pass
        stopped.update(listed)

    async def canceler() -> None:
        for one in chance.sample(sorted(ids), 25):
            async with world.pool.acquire() as conn:
                if isinstance(await cancel(conn, tenant, one, world.clock.now_at()), Canceled):
                    canceled.add(one)

    async def pauser() -> None:
        for n in range(12):
            async with world.pool.acquire() as conn:
                change = pauses.clear_pause if n % 2 else pauses.set_pause
                words = (place, "someone") if n % 2 else (place, "pause", "someone")
                await change(conn, *words, world.clock.now_at())
            await asyncio.sleep(chance.random() * 0.02)

    async with asyncio.TaskGroup() as group:
        claiming = [group.create_task(claimer()) for _ in range(2)]
        await asyncio.gather(stopper(), importer(), canceler(), pauser())
        async with asyncio.timeout(90):
            while not all([one in won or await world.status(one) != "queued" for one in ids]):
                waiting.update(await released(world))
                await asyncio.sleep(0.02)
        over.set()
        await asyncio.gather(*claiming)
    assert set(won.values()) <= {1}
    slots = await world.pool.fetch("SELECT id, kind, count(*) OVER (PARTITION BY id) AS n FROM attempts")
    assert {row["n"] for row in slots} == {1} and {row["id"] for row in slots} == set(ids)
    kinds = {row["id"]: row["kind"] for row in slots}
    assert {one for one, kind in kinds.items() if kind == "submit"} == set(won)
    assert {one for one, kind in kinds.items() if kind == "cancel"} == canceled
    assert all(ids[one] in stopped for one, kind in kinds.items() if kind == "suppress")
    assert not await world.pool.fetchval("SELECT count(*) FROM held")
