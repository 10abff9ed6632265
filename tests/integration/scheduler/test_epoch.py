"""The epoch: what is lost is said to be lost, and one rebuilder brings it back class by class (design section 2)."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis

from scheduler.core.asks import Ask, LeaseAsk
from scheduler.core.records import Entry
from scheduler.core.tuning import Tuning
from scheduler.store.scheduler import IndexUnavailable, Scheduler
from tests.property.scheduler.world import CLASSES, VirtualClock, World, flow

ASK = LeaseAsk("p", "s1", 100)


def ask(class_name: str = "otp", *, probe: bool = False) -> Ask:
    return Ask((flow("p", class_name, "a"),), 1, 10_000, 5_000, 60_000, b"place--1", probe=probe)


async def test_a_fresh_server_is_lost_until_rebuilt(index: Redis) -> None:
    clock = VirtualClock()
    scheduler = Scheduler(index, clock=clock)
    assert await scheduler.epoch_state() == "lost"
    await scheduler.tune(Tuning(1, CLASSES))
    for call in (scheduler.admit([ask()]), scheduler.lease(ASK), scheduler.enqueue(b"b", []), scheduler.counts()):
        with pytest.raises(IndexUnavailable) as fault:
            await call
        assert fault.value.reason == "lost"
    epoch = await scheduler.begin_rebuild()
    assert epoch is not None
    await scheduler.finish_rebuild(epoch)
    assert await scheduler.epoch_state() == "ready"
    assert (await scheduler.admit([ask()]))[0].accepted


async def test_flushall_is_noticed_at_the_next_call_and_by_every_process(index: Redis) -> None:
    world = await World.create(index, {"tenant:a": (5, 5)})
    await world.fill(flow("p", "otp", "a"), 10)
    other = Scheduler(index, clock=world.clock)
    await index.flushall()
    for scheduler in (world.scheduler, other):
        with pytest.raises(IndexUnavailable, match="lost"):
            await scheduler.enqueue(b"x", [Entry(flow("p", "otp", "a"), world.reference())])


async def test_data_that_outlived_its_server_is_lost(index: Redis) -> None:
    """A restart from a snapshot: the key is there, its run id is another, no script is loaded."""
    world = await World.create(index, {})
    await world.fill(flow("p", "otp", "a"), 10)
    await index.set("{c1}:epoch", "ready abc 1800000000000 another-run-id")
    await index.function_flush()
    with pytest.raises(IndexUnavailable, match="lost"):
        await world.scheduler.lease(ASK)
    assert await world.scheduler.epoch_state() == "lost"


async def test_classes_open_one_by_one_and_one_rebuilder_works(index: Redis) -> None:
    world = await World.create(index, {"tenant:a": (1_000, 1_000)})
    scheduler = world.scheduler
    await world.fill(flow("p", "otp", "a"), 3)
    await world.fill(flow("p", "marketing", "a"), 3)
    stale = await scheduler.lease(ASK)
    epoch = await scheduler.begin_rebuild()
    assert epoch is not None
    assert await scheduler.begin_rebuild() is None
    assert await scheduler.epoch_state() == "loading"
    assert not (await scheduler.lease(ASK)).items
    assert not await scheduler.ack(stale.lease_id)
    with pytest.raises(IndexUnavailable, match="loading"):
        await scheduler.enqueue(b"y", [Entry(flow("p", "otp", "a"), world.reference())])

    references = [world.reference() for _ in range(2_500)]
    await scheduler.load(epoch, [Entry(flow("p", "otp", "a"), r) for r in references])
    await scheduler.open_class(epoch, "otp")
    world.clock.at += 5_000  # buckets read as empty at the start of an epoch
    verdicts = await scheduler.admit([ask(), ask("marketing")])
    assert verdicts[0].cause != "storage" and verdicts[1].cause == "storage" and not verdicts[1].accepted
    leased = await scheduler.lease(ASK)
    assert [item.reference for item in leased.items] == references[:100]
    await scheduler.enqueue(b"z", [Entry(flow("p", "otp", "a"), world.reference())])
    await scheduler.load(epoch, [Entry(flow("p", "marketing", "a"), world.reference())])
    await scheduler.finish_rebuild(epoch)
    assert await scheduler.epoch_state() == "ready"
    assert await scheduler.counts() == {("p", "otp"): 2_501, ("p", "marketing"): 1}
    with pytest.raises(IndexUnavailable, match="epoch"):
        await scheduler.load(epoch, [Entry(flow("p", "otp", "a"), world.reference())])


async def test_a_rebuild_whose_process_died_can_be_begun_anew(index: Redis) -> None:
    world = await World.create(index, {})
    first = await world.scheduler.begin_rebuild()
    assert first is not None
    await index.delete("{c1}:rebuilder")  # its time ran out
    assert await world.scheduler.epoch_state() == "lost"
    second = await world.scheduler.begin_rebuild()
    assert second is not None
    with pytest.raises(IndexUnavailable, match="epoch"):
        await world.scheduler.finish_rebuild(first)
    await world.scheduler.finish_rebuild(second)


@pytest.mark.parametrize("back_s", [30, 3_600, 86_400])
async def test_a_clock_that_was_put_back_stops_nothing_for_as_long(index: Redis, back_s: int) -> None:
    """Limits would owe for the length of the step, numbers and the line at the door too: the index begins anew."""
    limits = {"provider:p": (50.0, 10), "number:it": (1.0, 1)}
    world = await World.create(index, limits)
    way = flow("p", "otp", "a", "number:it")
    await world.enqueue([Entry(way, world.reference(number=b"number-1")) for _ in range(20)])
    assert await world.scheduler.epoch_state() == "ready"
    assert len((await world.send(ASK)).items) == 1, "the number holds the others"
    world.clock.at -= 1_000
    assert await world.scheduler.epoch_state() == "ready", "a little is waited for"
    world.clock.at -= back_s * 1_000
    assert await world.scheduler.epoch_state() == "lost"
    assert await world.scheduler.epoch_state() == "lost"
    epoch = await world.scheduler.begin_rebuild()
    assert epoch is not None
    await world.scheduler.tune(Tuning(1, CLASSES, limits=limits))
    await world.scheduler.load(epoch, [Entry(way, world.reference(number=b"number-1")) for _ in range(2)])
    await world.scheduler.finish_rebuild(epoch)
    assert await world.scheduler.epoch_state() == "ready"
    world.clock.at += 2_100
    assert len((await world.send(ASK)).items) == 1
    verdict = (await world.scheduler.admit([ask(probe=True)]))[0]
    assert verdict.accepted and verdict.predicted_wait_ms < 2_000


async def test_buckets_read_as_empty_after_a_rebuild(index: Redis) -> None:
    world = await World.create(index, {"tenant:a": (2, 100), "number:it": (0.5, 3)})
    epoch = await world.scheduler.begin_rebuild()
    assert epoch is not None
    await world.scheduler.finish_rebuild(epoch)
    await world.fill(flow("p", "otp", "a"), 10)
    assert not (await world.lease(ASK)).items
    world.clock.at += 500
    assert len((await world.lease(ASK)).items) == 1


async def test_one_line_is_dropped_alone(index: Redis) -> None:
    world = await World.create(index, {"tenant:a": (1, 1), "number:it": (0.01, 1)})
    await world.fill(flow("p", "marketing", "a"), 4_500)
    await world.fill(flow("p", "marketing", "b"), 50)
    held = [Entry(flow("p", "marketing", "c", "number:it"), world.reference(number=b"12345678")) for _ in range(5)]
    await world.enqueue(held)
    await world.fill(flow("p", "otp", "a"), 7)
    leased = await world.lease(LeaseAsk("p", "s1", 40))
    assert leased.items
    await world.scheduler.drop_line("p", "marketing")
    counts = await world.scheduler.counts()
    out = sum(1 for item in leased.items if item.class_name == "marketing")
    assert counts["p", "marketing"] == out
    assert counts["p", "otp"] == 7
    for _, octets, where in await world.queued():
        assert where == "lease" or octets[:16] in world.enqueued
    assert not await index.keys("{c1}:q:p|marketing*")


async def test_a_policy_change_keeps_the_fill(index: Redis) -> None:
    world = await World.create(index, {"tenant:a": (10, 10)})
    await world.fill(flow("p", "marketing", "a"), 100)
    assert len((await world.send(ASK)).items) == 10
    tuning = Tuning(2, CLASSES, limits={"tenant:a": (1, 5)})
    await world.scheduler.tune(tuning)
    assert not (await world.send(ASK)).items
    world.clock.at += 3_000
    assert len((await world.send(ASK)).items) == 3
    await world.scheduler.tune(Tuning(1, CLASSES, limits={"tenant:a": (1_000, 1_000)}))  # older: nothing
    world.clock.at += 1_000
    assert len((await world.send(ASK)).items) == 1
    await world.scheduler.tune(Tuning(3, CLASSES))  # no limit any more
    world.clock.at += 1_000
    assert len((await world.send(ASK)).items) == 86


async def test_a_server_that_is_down_is_unavailable() -> None:
    client = Redis.from_url("redis://127.0.0.1:1")
    scheduler = Scheduler(client)
    with pytest.raises(IndexUnavailable, match="down"):
        await scheduler.epoch_state()
    with pytest.raises(IndexUnavailable, match="down"):
        await scheduler.now_at()
    await client.aclose()
