"""What follows from a carrier's answers: pace, full queues, breakers, ramps, pauses (I22)."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis

from scheduler.core.asks import Health, LeaseAsk, Outcomes
from scheduler.core.records import Entry
from scheduler.core.tuning import ProviderTuning, Tuning
from tests.property.scheduler.world import CLASSES, World, flow

ASK = LeaseAsk("p", "s1", 100)
RULES = ProviderTuning(errors=0.5, of=10, within_ms=10_000, probe_after_ms=5_000, ramp_start=0.25)


async def made(index: Redis, limits: dict[str, tuple[float, int]]) -> World:
    """A world whose provider p has one bound session and breaker rules; the bind's ramp is over."""
    world = await World.create(index, limits)
    await world.scheduler.tune(Tuning(2, CLASSES, limits=limits, providers={"p": RULES}))
    await world.scheduler.session_up("p", "s1")
    world.clock.at += 60_000
    return world


async def sent_in(world: World, ms: int, step_ms: int = 50) -> int:
    """Segments that leave within a time."""
    sent = 0
    for _ in range(ms // step_ms):
        world.clock.at += step_ms
        sent += len((await world.send(ASK)).items)
    return sent


async def told(world: World, **outcomes: object) -> Health:
    """One report of the session s1."""
    return await world.scheduler.report_outcomes("p", "s1", Outcomes(**outcomes))  # type: ignore[arg-type]


async def test_throttling_slows_the_session_once_per_round_trip_and_it_recovers(index: Redis) -> None:
    world = await made(index, {"session:s1": (100, 10)})
    assert (await told(world, good=5, round_trip_ms=200)).rate_share == 1.0
    assert (await told(world, throttled=3, round_trip_ms=200)).rate_share == pytest.approx(0.7)
    world.clock.at += 100
    assert (await told(world, throttled=9, round_trip_ms=200)).rate_share == pytest.approx(0.705, abs=0.001)
    world.clock.at += 150
    health = await told(world, throttled=9, round_trip_ms=200)
    assert health.rate_share == pytest.approx(0.7 * 0.7125, abs=0.001)
    assert health.rate_per_s == pytest.approx(100 * health.rate_share, rel=0.01)
    assert health.breaker == "closed"  # throttling is no error
    await world.fill(flow("p", "marketing", "a"), 2_000)
    assert 48 <= await sent_in(world, 1_000) <= 64  # half the rate, and what the bucket had
    world.clock.at += 11_000
    assert (await told(world, good=1)).rate_share == 1.0
    world.check_limits()


async def test_a_session_without_a_limit_is_slowed_relative_to_what_it_did(index: Redis) -> None:
    world = await made(index, {})
    await world.fill(flow("p", "marketing", "a"), 2_000)
    health = await told(world, good=20, throttled=2, round_trip_ms=100, rate_per_s=200.0)
    assert health.rate_per_s == pytest.approx(140, rel=0.01)
    sent = await sent_in(world, 1_000)
    assert 135 <= sent <= 140 + 10 + 20
    world.clock.at += 7_000
    assert (await told(world, good=1)).rate_per_s is None
    assert len((await world.send(ASK)).items) == 100  # no limit any more


async def test_full_queues_of_three_numbers_slow_the_session_those_of_two_do_not(index: Redis) -> None:
    world = await made(index, {"session:s1": (100, 10)})
    one, two, three = (bytes([n] * 8) for n in (1, 2, 3))
    assert (await told(world, queue_full_destinations=frozenset({one, two}))).rate_share == 1.0
    assert (await told(world, queue_full_destinations=frozenset({one}))).rate_share == 1.0
    world.clock.at += 10_001
    assert (await told(world, queue_full_destinations=frozenset({three}))).rate_share == 1.0  # the first are forgotten
    assert (await told(world, queue_full_destinations=frozenset({one, two}))).rate_share == pytest.approx(0.7)


async def test_a_breaker_opens_probes_and_closes_with_a_ramp(index: Redis) -> None:
    world = await made(index, {"session:s1": (100, 10), "provider:p": (100, 10)})
    await world.fill(flow("p", "transactional", "a"), 2_000)
    assert (await told(world, good=5, errors=4)).breaker == "closed"  # nine answers are too few
    health = await told(world, errors=2)
    assert (health.breaker, health.open_until) == ("open", int(world.clock.at) + 5_000)
    report = await world.scheduler.report()
    assert report.providers["p"].state == report.sessions["s1"].state == "open"
    empty = await world.lease(ASK)
    assert not empty.items and empty.wait_ms == 5_000 and empty.cause in ("provider:p", "session:s1")
    world.clock.at += 5_000
    assert len((await world.send(ASK)).items) == 1  # one probe
    assert not (await world.send(ASK)).items
    assert (await told(world, errors=1)).breaker == "half_open"
    world.clock.at += 4_900
    assert not (await world.send(ASK)).items
    world.clock.at += 100
    assert len((await world.send(ASK)).items) == 1
    health = await told(world, good=1)
    assert (health.breaker, health.rate_share) == ("closed", pytest.approx(0.25))
    first = await sent_in(world, 1_000)
    assert 20 <= first <= 32  # a quarter of the rate, from an empty bucket
    world.clock.at += 10_000
    assert 95 <= await sent_in(world, 1_000) <= 110


async def test_a_provider_comes_back_at_the_pace_of_all_its_sessions(index: Redis) -> None:
    world = await made(index, {})
    await world.scheduler.session_up("p", "s2")
    for session, rate_per_s in (("s2", 160.0), ("s1", 40.0)):
        await world.scheduler.report_outcomes("p", session, Outcomes(good=1, rate_per_s=rate_per_s))
    assert (await told(world, errors=12)).breaker == "open"
    await world.fill(flow("p", "otp", "a"), 500)
    world.clock.at += 5_000
    assert len((await world.send(LeaseAsk("p", "s2", 100))).items) == 1
    await world.scheduler.report_outcomes("p", "s2", Outcomes(good=1))
    sent = 0
    for _ in range(20):
        world.clock.at += 50
        sent += len((await world.send(LeaseAsk("p", "s2", 100))).items)
    assert 45 <= sent <= 62  # a quarter of 200/s, and growing


async def test_answers_from_before_the_probe_do_not_close_a_breaker(index: Redis) -> None:
    world = await made(index, {})
    assert (await told(world, errors=10)).breaker == "open"
    assert (await told(world, good=3)).breaker == "open"
    world.clock.at += 1_000
    assert (await told(world, good=3)).breaker == "open"


async def test_one_broken_session_leaves_the_others_to_work(index: Redis) -> None:
    world = await made(index, {})
    await world.scheduler.session_up("p", "s2")
    await world.fill(flow("p", "otp", "a"), 50)
    await world.scheduler.report_outcomes("p", "s2", Outcomes(good=60))
    assert (await told(world, errors=12)).breaker == "open"
    assert not (await world.send(ASK)).items
    assert (await world.scheduler.report()).providers["p"].state == "up"
    assert (await world.send(LeaseAsk("p", "s2", 100))).items


async def test_after_a_bind_the_bucket_is_empty_and_the_rate_ramps(index: Redis) -> None:
    world = await made(index, {"session:s1": (100, 50)})
    await world.fill(flow("p", "marketing", "a"), 3_000)
    await world.scheduler.session_down("p", "s1")
    world.clock.at += 60_000
    await world.scheduler.session_up("p", "s1", 0.25, 5_000)
    assert not (await world.send(ASK)).items
    assert 20 <= await sent_in(world, 1_000) <= 32
    world.clock.at += 10_000
    await sent_in(world, 1_000)
    assert 95 <= await sent_in(world, 1_000) <= 105
    world.check_limits()


@pytest.mark.parametrize("scope", ["application:a/x", "route:r", "session:s1", "provider:p"])
@pytest.mark.parametrize("limited", [False, True])
async def test_a_pause_holds_what_waits_already_and_ends_empty(index: Redis, scope: str, limited: bool) -> None:
    world = await made(index, {scope: (100.0, 100)} if limited else {})
    way = flow("p", "marketing", "a", "application:a/x", "route:r")
    await world.fill(way, 1_000)
    await world.fill(flow("p", "marketing", "b", "route:other"), 10)
    await world.scheduler.pause(scope)
    shut = scope.split(":", maxsplit=1)[0] in ("session", "provider")
    assert await sent_in(world, 500, 100) == (0 if shut else 10)
    await world.fill(way, 5)
    world.clock.at += 60_000
    assert await sent_in(world, 500, 100) == 0
    held = (await world.scheduler.report()).scopes
    name = (scope.split(":", maxsplit=1)[0], scope.split(":")[1])
    assert name not in held or held[name].paused
    await world.scheduler.resume(scope)
    sent = await sent_in(world, 1_000)
    if limited:
        assert 95 <= sent <= 101
    else:
        assert sent >= 1_005 - 100 * (scope == "session:s1")
    await world.check_index()


async def test_classes_can_be_left_out_of_a_lease(index: Redis) -> None:
    world = await made(index, {})
    await world.enqueue([Entry(flow("p", name, "a"), world.reference()) for name in ("otp", "marketing")])
    leased = await world.send(LeaseAsk("p", "s1", 10, without=frozenset({"otp"})))
    assert [item.class_name for item in leased.items] == ["marketing"]
    assert [item.class_name for item in (await world.send(ASK)).items] == ["otp"]


async def test_a_tombstone_of_one_slot_spares_the_next(index: Redis) -> None:
    world = await made(index, {})
    old, new = world.reference(), world.reference()
    new = type(new)(old.id, 1, 1, new.deadline_at, new.queued_at)
    await world.scheduler.tombstone([old.id + (0).to_bytes(4, "big")], 60_000)
    await world.scheduler.enqueue(b"both", [Entry(flow("p", "otp", "a"), one) for one in (old, new)])
    leased = await world.scheduler.lease(ASK)
    again = await world.scheduler.lease(ASK)
    assert [item.reference.slot for item in (*leased.items, *again.items)] == [1]


async def test_retries_weigh_half(index: Redis) -> None:
    world = await made(index, {})
    way = flow("p", "transactional", "a")
    for _ in range(10):  # first attempts at 3,000/s: the retry share does not bind
        await world.scheduler.answered("p", 1_500, "transactional")
        world.clock.at += 500
    await world.fill(way, 1_000)
    await world.enqueue([Entry(way, world.reference(), retry=True) for _ in range(300)])
    retried = 0
    for _ in range(20):
        world.clock.at += 200
        for item in (await world.send(LeaseAsk("p", "s1", 12))).items:
            retried += "retry:" in item.flow_key
    assert 20 * 12 / 3 - 8 <= retried <= 20 * 12 / 3 + 8
