"""Leases, wakes, canceled and held messages on a real Valkey (I12, P4, design section 3)."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import pytest
from redis.asyncio import Redis

from scheduler.core.asks import Ask, LeaseAsk
from scheduler.core.records import Entry
from scheduler.store.scheduler import Scheduler
from tests.property.scheduler.world import World, flow

ASK = LeaseAsk("p", "s1", 100)


async def test_a_lapsed_lease_comes_back_once_in_order(index: Redis) -> None:
    world = await World.create(index, {})
    await world.fill(flow("p", "otp", "a"), 5)
    first = await world.lease(ASK)
    assert [item.reference.id[-1] for item in first.items] == [1, 2, 3, 4, 5]
    await world.fill(flow("p", "otp", "a"), 2)
    world.clock.at += 1_999
    assert len((await world.send(ASK)).items) == 2
    world.clock.at += 2
    again = await world.send(ASK)
    assert [item.reference.id[-1] for item in again.items] == [1, 2, 3, 4, 5]
    assert not await world.scheduler.ack(first.lease_id)
    world.clock.at += 10_000
    assert not (await world.lease(ASK)).items
    assert sum((await world.scheduler.counts()).values()) == 0


async def test_a_restored_lease_keeps_its_place_and_its_tokens(index: Redis) -> None:
    world = await World.create(index, {"tenant:a": (1, 3), "number:it": (1, 1)})
    await world.enqueue([Entry(flow("p", "otp", "a", "number:it"), world.reference(number=bytes([9] * 8)))])
    await world.fill(flow("p", "otp", "a"), 4)
    leased = await world.lease(ASK)
    assert len(leased.items) == 3
    assert await world.scheduler.restore(leased.lease_id)
    world.clock.at += 1_000  # what is parked meanwhile waits for the time that it was told
    again = await world.lease(ASK)
    assert {i.reference.id for i in again.items} == {i.reference.id for i in leased.items}
    await world.check_index()


async def test_tokens_given_back_never_exceed_the_burst(index: Redis) -> None:
    world = await World.create(index, {"tenant:a": (1, 2)})
    await world.fill(flow("p", "otp", "a"), 10)
    leased = await world.scheduler.lease(LeaseAsk("p", "s1", 100, lease_ms=60_000))
    assert len(leased.items) == 2
    world.clock.at += 10_000  # the bucket is full again; time has absorbed the charge
    assert len((await world.send(ASK)).items) == 2
    await world.scheduler.ack(leased.lease_id, [(i.reference, i.flow_key) for i in leased.items])
    world.clock.at += 1_000
    assert len((await world.lease(ASK)).items) == 1


async def test_canceled_and_expired_references_take_no_tokens(index: Redis) -> None:
    world = await World.create(index, {"tenant:a": (1, 3)})
    late, canceled = world.reference(ttl_ms=10), world.reference()
    rest = [world.reference() for _ in range(3)]
    await world.enqueue([Entry(flow("p", "otp", "a"), r) for r in (late, canceled, *rest)])
    await world.scheduler.tombstone([canceled.id], 60_000)
    world.clock.at += 10
    leased = await world.lease(ASK)
    first = {i.reference.id for i in leased.items}
    if len(first) < 3:  # a quantum of one: a visit per message
        first |= {i.reference.id for i in (await world.lease(ASK)).items}
    assert first == {r.id for r in rest}
    assert world.ended[late.id] == 1


async def test_a_number_that_is_held_moves_alone_and_keeps_its_deadline(index: Redis) -> None:
    world = await World.create(index, {"number:it": (1, 1)})
    one, other = bytes([1] * 8), bytes([2] * 8)
    burst = [world.reference(number=one) for _ in range(4)] + [world.reference(number=one, ttl_ms=1_500)]
    free = world.reference(number=other)
    await world.enqueue([Entry(flow("p", "marketing", "a", "number:it"), r) for r in (*burst, free)])
    leased = await world.send(ASK)
    assert {i.reference.id for i in leased.items} == {burst[0].id, free.id}
    await world.check_index()
    at = []
    for _ in range(50):
        world.clock.at += 100
        for item in (await world.send(ASK)).items:
            at.append((world.clock.at, item.reference.id))
    assert [id_ for _, id_ in at] == [r.id for r in burst[1:4]]
    assert all(900 <= b - a <= 1_200 for (a, _), (b, _) in pairwise(at))
    assert world.ended[burst[4].id] == 1  # told expired


async def test_a_throttled_message_keeps_its_place(index: Redis) -> None:
    world = await World.create(index, {})
    await world.fill(flow("p", "otp", "a"), 3)
    front = world.reference()
    await world.enqueue([Entry(flow("p", "otp", "a"), front, front=True)])
    assert (await world.lease(LeaseAsk("p", "s1", 1))).items[0].reference == front


async def test_retries_are_a_flow_of_their_own_under_their_share(index: Redis) -> None:
    world = await World.create(index, {})
    await world.enqueue([Entry(flow("p", "otp", "a"), world.reference(), retry=True) for _ in range(100)])
    sent = 0
    for _ in range(30):
        world.clock.at += 100
        sent += len((await world.send(ASK)).items)
    assert sent <= 10 + 3 * 1 + 1  # floor of one a second and a burst of ten
    for _ in range(10):
        await world.scheduler.answered("p", 500, "otp")
        world.clock.at += 1_000
    more = sum([len((await world.send(ASK)).items) for _ in range(1)])
    assert more >= 8


async def test_wakes_are_bounded_and_come_when_a_line_turns_eligible(index: Redis) -> None:
    world = await World.create(index, {})
    scheduler = world.scheduler
    for provider, session in (("p", "s1"), ("p", "s 2"), ("q", "s3")):
        await scheduler.session_up(provider, session)
    await index.delete("{c1}:wake:s1", "{c1}:wake:s 2", "{c1}:wake:s3")  # the wakes of coming up
    await world.fill(flow("p", "otp", "a"), 3)
    await world.fill(flow("p", "transactional", "a"), 3)
    assert await index.llen("{c1}:wake:s1") == 1
    assert await scheduler.wait("p", "s1", 1) and await scheduler.wait("p", "s 2", 1)
    assert not await scheduler.wait("p", "s1", 0.05)
    assert not await scheduler.wait("q", "s3", 0.05)
    while (await world.send(ASK)).items:
        pass
    waiting = asyncio.create_task(scheduler.wait("p", "s1", 5))
    await world.fill(flow("p", "otp", "a"), 1)
    assert await waiting
    await scheduler.forget_session("p", "s1")
    await scheduler.aclose()


async def test_an_empty_lease_tells_when_to_come_back(index: Redis) -> None:
    world = await World.create(index, {"tenant:a": (2, 1)})
    assert (await world.lease(ASK)).wait_ms is None
    await world.fill(flow("p", "otp", "a"), 2)
    assert len((await world.send(ASK)).items) == 1
    empty = await world.lease(ASK)
    assert empty.wait_ms == 500
    world.clock.at += 500
    assert len((await world.send(ASK)).items) == 1


async def test_names_of_any_kind_stay_apart(index: Redis) -> None:
    tenants = ["a", "a|b", "a%7cb", "a:b", "a b", "ü", "a\tb"]
    limits = {f"tenant:{name}": (1.0, 1) for name in tenants}
    world = await World.create(index, limits)
    for name in tenants:
        await world.fill(flow("p", "marketing", name), 3)
    leased = await world.send(ASK)
    assert len(leased.items) == len(tenants)
    assert set((await world.scheduler.report()).tenants) == set(tenants)


async def test_unnamed_tenants_have_the_default_limit(index: Redis) -> None:
    world = await World.create(index, {"tenant:": (5, 4)})
    await world.fill(flow("p", "marketing", "unknown"), 10)
    assert len((await world.send(ASK)).items) == 4
    world.clock.at += 1_000
    assert len((await world.send(ASK)).items) == 4
    assert world.scheduler._tuning is not None
    tuning = world.scheduler._tuning
    await world.scheduler.tune(type(tuning)(2, tuning.classes, limits={"tenant:": (1, 1)}))
    world.clock.at += 1_000
    assert len((await world.send(ASK)).items) == 1


async def test_a_client_that_decodes_is_refused(redis_url: str) -> None:
    client = Redis.from_url(redis_url, decode_responses=True)
    with pytest.raises(ValueError, match="decode_responses"):
        Scheduler(client)
    await client.aclose()


async def test_a_wait_ends_on_time_and_a_wake_ends_it_at_once(index: Redis) -> None:
    """The server ends blocking reads up to a tenth of a second late: 5/s with a burst of 1 would become 4/s."""
    world = await World.create(index, {})
    await world.scheduler.session_up("p", "s1")
    while await world.scheduler.wait("p", "s1", 0.2):  # the wake of coming up
        pass
    late_s = []
    for n in range(10):
        asked_s, began_mono = 0.11 + 0.013 * n, time.monotonic()
        assert not await world.scheduler.wait("p", "s1", asked_s)
        late_s.append(time.monotonic() - began_mono - asked_s)
    assert not world.scheduler._listeners["s1"].done(), "the wait was the server's"
    assert sorted(late_s)[3] < 0.03, late_s
    waiting = asyncio.create_task(world.scheduler.wait("p", "s1", 30))
    await asyncio.sleep(0.05)
    await world.enqueue([Entry(flow("p", "otp", "a"), world.reference())])
    async with asyncio.timeout(5):
        assert await waiting
    await world.scheduler.session_down("p", "s1")
    assert not world.scheduler._listeners, "it would take the wakes of who has the session next"
    await world.scheduler.aclose()


async def book_swept(world: World) -> None:
    """What a sweep dropped has ended."""
    there = {octets[:16] for _, octets, _ in await world.queued()}
    world.ended.update(id_ for id_ in world.enqueued if id_ not in there and not world.ended[id_])


async def test_what_ended_is_dropped_where_no_lease_comes_by(index: Redis) -> None:
    world = await World.create(index, {"route:r": (1, 1), "number:it": (1, 1)})
    await world.scheduler.session_up("p", "s1")
    plain, limited, by_number = (
        flow("p", "otp", "a"),
        flow("p", "otp", "a", "route:r"),
        flow("p", "otp", "b", "number:it"),
    )
    await world.fill(limited, 3, ttl_ms=10_000)
    await world.enqueue([Entry(by_number, world.reference(ttl_ms=10_000, number=bytes([9] * 8))) for _ in range(3)])
    assert len((await world.send(ASK)).items) == 2  # what is left of both is set aside until there is room
    await world.fill(plain, 1_200, ttl_ms=10_000)
    await world.fill(plain, 2, ttl_ms=60_000)
    canceled = flow("p", "marketing", "a")
    await world.fill(canceled, 2)
    await world.scheduler.session_down("p", "s1")
    world.clock.at += 3_000
    assert await world.scheduler.sweep("p") == (0, None)
    await world.scheduler.tombstone(
        [world.numbers.to_bytes(16, "big"), (world.numbers - 1).to_bytes(16, "big")], 60_000
    )
    world.clock.at += 7_000
    dropped, go_on = await world.scheduler.sweep("p")
    assert go_on == 0
    again, go_on = await world.scheduler.sweep("p", go_on)
    assert (dropped + again, go_on) == (1_200 + 2 + 2, None)  # and two that their number held, which are no heads
    waiting = await world.scheduler.counts()
    assert (waiting["p", "otp"], waiting["p", "marketing"]) == (2, 0)
    await book_swept(world)
    await world.check_index()
    report = await world.scheduler.report()
    assert report.lines["p", "marketing"].unserved_ms == 0 and report.lines["p", "otp"].oldest_ms == 10_000
    world.clock.at += 60_000
    assert await world.scheduler.sweep("p") == (2, None)
    assert sum((await world.scheduler.counts()).values()) == 0
    await book_swept(world)
    asked = Ask((plain,), 1, 14_400_000, 7_200_000, 43_200_000, b"place--1", probe=True)
    assert (await world.scheduler.admit([asked]))[0].queue_age_ms == 0
    await world.scheduler.session_up("p", "s1")
    await world.fill(plain, 3)
    await world.fill(limited, 3)
    assert len((await world.send(ASK)).items) == 4
    await world.check_index()
