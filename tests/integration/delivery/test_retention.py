"""Texts are wiped, numbers hashed, days dropped when their time is over, and never before the message is."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from gateway.delivery.retention import Retention
from gateway.delivery.sweeps import Sweeper
from gateway.domain.ids import day_of, uuid7
from gateway.ledger import data_keys, erasures, retention
from gateway.sealing import Sealer, about_message
from tests.integration.delivery.world import World, policy_of, world_of

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
NUMBER = "+447700900123"


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with world_of(database_url) as made:
        yield made


async def forget(world: World) -> None:
    """Works until nothing is left to do now."""
    worker = Retention(world.runtime())
    for _ in range(50):
        if await worker.turn() > 1:
            return
    raise AssertionError("retention does not come to an end")


async def final(world: World, age_ms: int, **values: Any) -> UUID:
    """A message that was made and became final so long ago."""
    at = world.clock.now_at() - age_ms
    message_id = uuid7(at, os.urandom(10))
    await world.pool.execute("SELECT ensure_partitions($1, 1)", day_of(message_id))
    body = world.sealer.seal(b"a text", about_message(world.tenants["acme"], message_id))
    row = {"status": "delivered", "final_at": at, "created_at": at, "sweep_at": None, "body_key_id": 1, "body": body}
    return await world.message(id=message_id, **(row | values))


async def column(world: World, name: str, *ids: UUID) -> list[Any]:
    rows = await world.pool.fetch(f"SELECT id, {name} AS value FROM messages WHERE id = ANY ($1::uuid[])", list(ids))
    found = {row["id"]: row["value"] for row in rows}
    return [found[one] for one in ids]


async def test_texts_go_when_the_message_is_final_and_the_time_of_its_class_is_over(world: World) -> None:
    otp_old = await final(world, 11 * MINUTE, **{"class": "otp"})
    otp_young = await final(world, 9 * MINUTE, **{"class": "otp"})
    other_old = await final(world, 7 * DAY + HOUR)
    other_young = await final(world, 6 * DAY)
    still_open = await final(world, 30 * DAY, status="sent", final_at=None)
    await forget(world)
    kept = [body is not None for body in await column(world, "body", otp_old, otp_young, other_old, other_young)]
    assert kept == [False, True, False, True]
    assert (await column(world, "body", still_open))[0] is not None


async def test_a_class_that_no_policy_names_any_more_is_wiped_too(world: World) -> None:
    gone = await final(world, 8 * DAY, **{"class": "abolished"})
    await forget(world)
    assert await column(world, "body", gone) == [None]


async def test_a_clock_in_doubt_forgets_nothing(world: World) -> None:
    old = await final(world, 30 * DAY)
    world.clock.doubtful = True
    assert await Retention(world.runtime()).turn() > 0
    assert (await column(world, "body", old))[0] is not None


async def test_numbers_are_hashed_once_their_time_is_over(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 3)
    old = [await final(world, 31 * DAY + n * HOUR, recipient=f"+4477009001{n:02d}") for n in range(8)]
    young = await final(world, 29 * DAY)
    still_open = await final(world, 32 * DAY, status="sent", final_at=None)
    await forget(world)
    marks = await column(world, "recipient", *old)
    pepper = world.runtime().pepper
    assert marks == [retention.hashed(pepper, f"+4477009001{n:02d}") for n in range(8)]
    assert await column(world, "recipient", young, still_open) == [NUMBER, NUMBER]
    # A day that waited for an open message is looked at again.
    await world.pool.execute("UPDATE messages SET final_at = created_at WHERE id = $1", still_open)
    await forget(world)
    assert await column(world, "recipient", still_open) == [NUMBER]
    world.clock.shift_ms += 61 * MINUTE
    await forget(world)
    assert await column(world, "recipient", still_open) == [retention.hashed(pepper, NUMBER)]


async def days(world: World) -> list[str]:
    rows = await world.pool.fetch(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = 'messages'::regclass ORDER BY 1"
    )
    return [row["relname"] for row in rows]


async def test_days_go_as_a_whole_once_all_of_them_is_final_and_their_usage_stays(world: World) -> None:
    old = await final(world, 91 * DAY, segments=3)
    waiting = await final(world, 92 * DAY, status="sent", final_at=None)
    kept = await final(world, 89 * DAY)
    await world.attempt(old, outcome="accepted")
    await world.pool.execute(
        "INSERT INTO message_events (day, id, at, type) VALUES ($1, $2, 0, 'deferred')", day_of(old), old
    )
    before = await days(world)
    await forget(world)
    left = await days(world)
    gone = {name for name in before if name not in left}
    assert f"messages_{day_of(old):%Y%m%d}" in gone
    assert f"messages_{day_of(waiting):%Y%m%d}" in left and f"messages_{day_of(kept):%Y%m%d}" in left
    rows = await world.pool.fetch("SELECT * FROM usage_days")
    assert [(row["day"], row["status"], row["messages"], row["segments"]) for row in rows] == [
        (day_of(old), "delivered", 1, 3)
    ]
    assert await world.pool.fetchval("SELECT count(*) FROM attempts WHERE id = $1", old) == 0
    # What ends later lets its day go later.
    await world.pool.execute("UPDATE messages SET final_at = created_at WHERE id = $1", waiting)
    await forget(world)
    assert f"messages_{day_of(waiting):%Y%m%d}" not in await days(world)
    assert await world.pool.fetchval("SELECT count(*) FROM message_events WHERE id = $1", old) == 0


async def test_a_road_in_use_is_not_blocked_by_a_day_that_goes(world: World) -> None:
    old = await final(world, 95 * DAY)
    async with world.pool.acquire() as busy, busy.transaction():
        await busy.fetch("SELECT count(*) FROM messages")  # holds a lock on every partition
        await Retention(world.runtime()).turn()
        assert f"messages_{day_of(old):%Y%m%d}" in await days(world)
    await forget(world)
    assert await world.pool.fetchval("SELECT count(*) FROM messages") == 0


@pytest.mark.parametrize("jump_days", [1, 10, 40])
async def test_a_clock_that_jumps_ahead_finds_partitions_and_one_that_jumps_back_loses_none(
    world: World, jump_days: int
) -> None:
    recent = await final(world, HOUR)
    world.clock.shift_ms = jump_days * DAY
    await Sweeper(world.runtime()).partitions()
    ahead = await world.message(id=uuid7(world.clock.now_at() + 6 * DAY, os.urandom(10)))
    world.clock.shift_ms = 0
    await Sweeper(world.runtime()).partitions()
    await forget(world)
    assert await column(world, "status", recent, ahead) == ["delivered", "queued"]
    last = retention.day_at(world.clock.now_at()) + timedelta(days=7)
    assert f"messages_{last:%Y%m%d}" in await days(world)


async def test_a_new_data_key_takes_over_and_the_earlier_one_retires(world: World) -> None:
    old_key, new_key = bytes(range(32)), bytes(32)
    async with world.pool.acquire() as conn:
        first = await data_keys.load(conn, [old_key], 1)
        texts: dict[UUID, bytes] = {}
        for n in range(5):
            message_id = await final(world, n * MINUTE)
            text = f"text {n}".encode()
            texts[message_id] = text
            await conn.execute(
                "UPDATE messages SET body = $2, body_key_id = $3 WHERE id = $1",
                message_id, first.seal(text, about_message(world.tenants["acme"], message_id)), first.current,
            )  # fmt: skip
        with pytest.raises(data_keys.KeyMissing, match="SLUICEGATE_DATA_KEYS_BEFORE"):
            await data_keys.load(conn, [new_key], 2)
        second = await data_keys.load(conn, [new_key, old_key], 2)
    world.sealer = second
    worker = Retention(world.runtime())
    await worker.keys()
    rows = await world.pool.fetch("SELECT * FROM messages")
    assert {row["body_key_id"] for row in rows} == {second.current}
    alone = Sealer({second.current: new_key}, second.current)
    for row in rows:
        about = about_message(row["tenant_id"], row["id"])
        assert alone.open(row["body_key_id"], bytes(row["body"]), about) == texts[row["id"]]
    await worker.keys()
    async with world.pool.acquire() as conn:
        assert await data_keys.earlier(conn, second.current) == []
        await data_keys.load(conn, [new_key], 3)


async def test_texts_from_before_they_were_sealed_are_sealed_once(world: World) -> None:
    async with world.pool.acquire() as conn:
        world.sealer = await data_keys.load(conn, [bytes(32)], 1)
    plain = await final(world, HOUR, body=b"plain", body_key_id=0)
    worker = Retention(world.runtime())
    await worker.keys()
    assert await column(world, "body_key_id", plain) == [1]
    (body,) = await column(world, "body", plain)
    about = about_message(world.tenants["acme"], plain)
    assert b"plain" not in bytes(body) and world.sealer.open(1, bytes(body), about) == b"plain"
    await worker.keys()
    async with world.pool.acquire() as conn:
        assert await data_keys.is_whole(conn, 1), "a second pass found nothing: no more of them"


async def test_an_earlier_key_stays_while_what_came_under_it_is_kept_or_a_process_uses_it(world: World) -> None:
    async with world.pool.acquire() as conn:
        await data_keys.load(conn, [bytes(range(32))], 1)
        world.sealer = await data_keys.load(conn, [bytes(32), bytes(range(32))], world.clock.now_at())
    worker = Retention(world.runtime())
    await worker.keys()
    assert await world.pool.fetchval("SELECT count(*) FROM data_keys") == 2
    world.clock.shift_ms = 15 * DAY
    await world.pool.execute(
        "INSERT INTO processes (role, worker, pid, host, started_at, heartbeat_at, report)"
        " VALUES ('api', 'api-1', 1, 'h', 0, $1, $2)",
        world.clock.now_at(), {"data_key": 1},
    )  # fmt: skip
    await worker.keys()
    assert await world.pool.fetchval("SELECT count(*) FROM data_keys") == 2
    await world.pool.execute("UPDATE processes SET ended_at = 1")
    await worker.keys()
    assert await world.pool.fetchval("SELECT count(*) FROM data_keys") == 1


async def test_a_person_is_shown_everything_and_forgotten_on_request(world: World) -> None:
    ended = await final(world, HOUR)
    still_open = await final(world, HOUR, status="sent", final_at=None)
    other = await final(world, HOUR, recipient="+447700900999")
    await world.carrier_id(ended, "C9")
    await world.receipt("delivered", "C9", message_id=ended, day=day_of(ended), merged_at=1)
    await world.pool.execute(
        "INSERT INTO opt_outs (tenant_id, recipient, source, created_at) VALUES ($1, $2, 'api', 1)",
        world.tenants["acme"], NUMBER,
    )  # fmt: skip
    await world.pool.execute(
        "INSERT INTO idempotency (tenant_id, endpoint, key, fingerprint, answer, created_at, keep_until)"
        " VALUES (1, 'messages', 'k', 'f', $1, 0, 0)",
        b'{"id":"msg_1","to":"+447700900123"}',
    )
    rt = world.runtime()
    now_at = world.clock.now_at()
    async with world.pool.acquire() as conn:
        found = await erasures.export(conn, world.sealer, rt.pepper, NUMBER)
        assert [one["text"] for one in found["messages"]] == ["a text", "a text"]
        assert found["lists"][0]["list"] == "opt_outs" and found["complete"]
        assert found["lists"][0]["created_at"] == "1970-01-01T00:00:00.001Z"
        async with conn.transaction():
            done = await erasures.erase(conn, rt.pepper, NUMBER, "someone", now_at)
    assert (done.messages, done.open) == (1, 1)
    mark = retention.hashed(rt.pepper, NUMBER)
    assert await column(world, "recipient", ended, still_open, other) == [mark, NUMBER, "+447700900999"]
    assert (await column(world, "body", ended))[0] is None
    assert await world.pool.fetchval("SELECT count(*) FROM receipts") == 0
    assert await world.pool.fetchval("SELECT recipient FROM carrier_ids") == ""
    assert NUMBER.encode() not in await world.pool.fetchval("SELECT answer FROM idempotency")
    assert await world.pool.fetchval("SELECT count(*) FROM opt_outs") == 1
    # The open one follows when it is over.
    await world.pool.execute("UPDATE messages SET final_at = $1, status = 'unknown' WHERE id = $2", now_at, still_open)
    world.clock.shift_ms = 2 * MINUTE
    await forget(world)
    assert await column(world, "recipient", still_open) == [mark]
    assert await world.pool.fetchval("SELECT count(*) FROM erasures") == 0


async def test_an_export_tells_what_it_can_where_a_key_lacks(world: World) -> None:
    await final(world, HOUR)
    stranger = Sealer({7: b"k" * 32}, 7)
    async with world.pool.acquire() as conn:
        await conn.execute("UPDATE messages SET body_key_id = 1")
        found = await erasures.export(conn, stranger, world.runtime().pepper, NUMBER)
    assert [one["text"] for one in found["messages"]] == [None] and found["complete"]


async def test_retention_follows_the_policy(world: World) -> None:
    old = await final(world, 3 * HOUR)
    world.policy = replace(policy_of(), privacy=replace(policy_of().privacy, keep_text_ms=2 * HOUR))
    await forget(world)
    assert await column(world, "body", old) == [None]


async def test_two_processes_forget_side_by_side(world: World) -> None:
    ids = [await final(world, 8 * DAY) for _ in range(20)]
    first, second = Retention(world.runtime()), Retention(world.runtime())
    for _ in range(4):
        await first.turn()
        await second.turn()
    assert await column(world, "body", *ids) == [None] * 20


def test_marks_lead_nowhere_and_differ_between_installations() -> None:
    assert retention.hashed(b"a" * 32, NUMBER) == retention.hashed(b"a" * 32, NUMBER)
    assert retention.hashed(b"a" * 32, NUMBER) != retention.hashed(b"b" * 32, NUMBER)
    assert NUMBER[1:] not in retention.hashed(b"a" * 32, NUMBER)


async def test_wiping_uses_its_index(world: World) -> None:
    async with world.pool.acquire() as conn, conn.transaction():
        await retention.begin(conn)
        plan = await conn.fetch(f"EXPLAIN {retention._WIPE}", "otp", 1, 10)
    assert any("class_final_at" in row[0] or "to_wipe" in row[0] for row in plan), [row[0] for row in plan]
