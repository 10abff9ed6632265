"""A person asks to be forgotten while messages, receipts, callbacks and texts of theirs are still on their way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from gateway.domain.ids import day_of
from gateway.inbound.joiner import Joiner
from gateway.ledger import erasures
from gateway.ledger.callback_lines import add_events
from gateway.ledger.inbox import ReceivedPart, keep
from gateway.ledger.merges import merge_batch
from gateway.ledger.retention import hashed
from tests.integration.delivery.test_retention import HOUR, MINUTE, NUMBER, column, final, forget
from tests.integration.delivery.world import World, world_of

DIGITS, NATIONAL = NUMBER[1:], "07700900123"


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with world_of(database_url) as made:
        yield made


async def erase(world: World) -> erasures.Erased:
    async with world.pool.acquire() as conn, conn.transaction():
        return await erasures.erase(conn, world.runtime().pepper, NUMBER, "someone", world.clock.now_at())


async def places(world: World) -> set[str]:
    """Every table that holds the number in any column, octets included."""
    found = set()
    names = await world.pool.fetch(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )
    for name in (row["relname"] for row in names):
        hit = f"SELECT count(*) FROM {name} t WHERE t::text LIKE '%' || $1 || '%' OR t::text LIKE '%' || $2 || '%'"
        for shown in (DIGITS, NATIONAL):
            if await world.pool.fetchval(hit, shown, shown.encode().hex()):
                found.add(name)
    return found


async def merge(world: World) -> Any:
    async with world.pool.acquire() as conn:
        return await merge_batch(conn, world.policy, world.clock.now_at() + 1)


async def test_what_tenants_noted_beside_a_number_goes_with_it(world: World) -> None:
    """client_ref and metadata may name the person: in messages of any age, in kept answers, alone and in a batch."""
    hook = "https://cb.example/hooks"
    noted: dict[str, Any] = {
        "client_ref": "patient-4711",
        "extras": {"metadata": {"name": "Jane Roe"}, "callback_url": hook},
    }
    ended = await final(world, HOUR, **noted)
    lone = await final(world, HOUR, client_ref="patient-4711", extras={"metadata": {"name": "Jane Roe"}})
    aged = await final(world, HOUR, **noted | {"recipient": hashed(world.runtime().pepper, NUMBER)})
    still_open = await final(world, HOUR, status="sent", final_at=None, **noted)
    other = await final(world, HOUR, recipient="+447700900999", client_ref="order-1", extras=noted["extras"])
    told = {
        "id": "msg_1",
        "to": NUMBER,
        "client_ref": "patient-4711",
        "metadata": {"name": "Jane Roe"},
        "delivery": None,
    }
    kept = told | {"to": "+447700900999", "client_ref": "order-1"}
    refused = {"status": 422, "problem": {"code": "policy.destination"}}
    batch = {"results": [{"status": 202, "message": told}, {"status": 202, "message": kept}, refused]}
    for endpoint, answer in (("messages", told), ("batch", batch)):
        await world.pool.execute(
            "INSERT INTO idempotency (tenant_id, endpoint, key, fingerprint, answer, created_at, keep_until)"
            " VALUES (1, $1, 'k', 'f', $2, 0, 0)",
            endpoint, orjson.dumps(answer),
        )  # fmt: skip
    done = await erase(world)
    assert (done.messages, done.open) == (3, 1)
    assert await column(world, "client_ref", ended, lone, aged, still_open, other) == [
        None, None, None, "patient-4711", "order-1",
    ]  # fmt: skip
    extras = await column(world, "extras", ended, lone, aged, still_open, other)
    assert extras == [{"callback_url": hook}, None, {"callback_url": hook}, noted["extras"], noted["extras"]]
    mark = hashed(world.runtime().pepper, NUMBER)
    wiped = told | {"to": mark, "client_ref": None, "metadata": {}}
    answers = {
        row["endpoint"]: orjson.loads(row["answer"]) for row in await world.pool.fetch("SELECT * FROM idempotency")
    }
    assert answers["messages"] == wiped
    assert [one.get("message") for one in answers["batch"]["results"]] == [wiped, kept, None]
    # What was open follows when it is over, and nobody finds the notes by looking for them.
    await world.pool.execute("UPDATE messages SET final_at = 1, status = 'unknown' WHERE id = $1", still_open)
    world.clock.shift_ms = 2 * MINUTE
    await forget(world)
    assert await column(world, "client_ref", still_open) == [None]
    assert await world.pool.fetchval("SELECT count(*) FROM messages WHERE client_ref = 'patient-4711'") == 0


async def test_nothing_of_a_number_is_left_once_all_of_it_is_over(world: World) -> None:
    ended, still_open = await final(world, HOUR), await final(world, HOUR, status="sent", final_at=None)
    for carrier_id, message_id in (("ENDED", ended), ("OPEN", still_open)):
        await world.carrier_id(message_id, carrier_id)
    await world.receipt("delivered", "ENDED", recipient=NATIONAL)
    await world.receipt("delivered", "NEVER-KNOWN", recipient=DIGITS)
    assert (await merge(world)).merged == 1
    async with world.pool.acquire() as conn:
        await add_events(conn, world.policy, [(dict(await world.row(ended)), "message.delivered")], 1)
        part = ReceivedPart("carrier-a", "a1", 1, world.clock.now_at(), DIGITS, "60070", b"unreadable")
        await keep(conn, world.sealer, [], [part])
    assert await places(world) >= {"messages_" + f"{day_of(ended):%Y%m%d}", "receipts", "callbacks", "inbound_parts"}

    done = await erase(world)
    assert (done.messages, done.open, done.owed) == (1, 2, 1)
    assert await column(world, "recipient", still_open) == [NUMBER]  # it may still be told
    # The open one ends, by its own receipt; the callbacks give up; the text is handed over.
    await world.receipt("delivered", "OPEN", recipient=DIGITS)
    assert (await merge(world)).merged == 1
    assert await world.status(still_open) == "delivered"
    async with world.pool.acquire() as conn:
        await Joiner(world.runtime()).work(conn)
    await world.pool.execute("UPDATE callbacks SET gave_up_at = 1")
    world.clock.shift_ms = 2 * MINUTE
    await forget(world)
    assert await places(world) == set()
    assert await world.pool.fetchval("SELECT count(*) FROM messages") == 2

    # A carrier that repeats itself afterwards brings nothing back and leaves nothing unmatched.
    await world.receipt("undeliverable", "ENDED", recipient=NATIONAL, raw=NATIONAL.encode())
    assert (await merge(world)).merged == 1
    assert await places(world) == set()


async def test_a_request_that_waits_is_looked_at_less_and_less(world: World) -> None:
    await final(world, HOUR, status="sent", final_at=None)
    await erase(world)
    for wait_ms in (2 * MINUTE, HOUR, 48 * HOUR):
        world.clock.shift_ms += wait_ms
        async with world.pool.acquire() as conn, conn.transaction():
            await erasures.work(conn, world.runtime().pepper, world.clock.now_at())
    row = await world.pool.fetchrow("SELECT * FROM erasures")
    assert 5 * HOUR < row["next_at"] - world.clock.now_at() <= 6 * HOUR


async def test_erasing_and_merging_meet_without_a_deadlock(world: World) -> None:
    """Both lock rows of many messages: in one order, so nobody is thrown out."""
    ids = [await world.sent(f"C{n}", final_at=1, status="delivered", sweep_at=None) for n in range(60)]

    async def receipts(words: tuple[str, ...]) -> None:
        for word in words:
            for n in reversed(range(60)):
                await world.receipt(word, f"C{n}")
            await merge(world)

    async with asyncio.TaskGroup() as group:
        group.create_task(receipts(("undeliverable", "delivered", "expired")))
        for _ in range(4):
            group.create_task(erase(world))
    marks = await column(world, "recipient", *ids)
    assert all(mark.startswith("#") for mark in marks)
