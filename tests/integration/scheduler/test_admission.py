"""What the door is told: waits, binding scopes, ages, pauses and the Retry-After line (design section 3, I26)."""

from __future__ import annotations

import random

from redis.asyncio import Redis

from scheduler.core.asks import Ask, LeaseAsk, Verdict
from scheduler.core.records import Entry, Flow
from tests.property.scheduler.world import World, flow


def ask(*flows: Flow, limit_ms: int = 5_000, place: bytes = b"place--1", probe: bool = False, segments: int = 1) -> Ask:
    return Ask(flows, segments, 10_000, limit_ms, 60_000, place, probe=probe)


async def verdict(world: World, *flows: Flow, limit_ms: int = 5_000, place: bytes = b"place--1") -> Verdict:
    return (await world.scheduler.admit([ask(*flows, limit_ms=limit_ms, place=place)]))[0]


async def test_an_idle_system_accepts_with_no_wait(index: Redis) -> None:
    world = await World.create(index, {"tenant:a": (0.1, 1), "provider:p": (1, 1)})
    found = await verdict(world, flow("p", "otp", "a"))
    assert found == Verdict(True, 0, 0, 0, ("class", "otp"), None, 0)


async def test_earlier_asks_of_a_call_and_of_the_last_moments_count(index: Redis) -> None:
    world = await World.create(index, {"tenant:a": (1, 1)})
    way = flow("p", "otp", "a")
    verdicts = await world.scheduler.admit([ask(way, place=bytes([n] * 8)) for n in range(10)])
    assert [v.accepted for v in verdicts] == [True] * 6 + [False] * 4
    assert verdicts[6].scope == ("tenant", "a") and verdicts[6].cause == "wait"
    assert not (await verdict(world, way)).accepted  # none of the six is queued yet
    await world.enqueue([Entry(way, world.reference()) for _ in range(6)])
    assert not await index.keys("{c1}:w:*")
    assert not (await verdict(world, way)).accepted


async def test_what_was_admitted_and_never_queued_is_forgotten(index: Redis) -> None:
    world = await World.create(index, {"tenant:a": (1, 1)})
    way = flow("p", "otp", "a")
    await world.scheduler.admit([ask(way, place=bytes([n] * 8)) for n in range(10)])
    for key in await index.keys("{c1}:w:*"):
        assert 0 < await index.pttl(key) <= 5_000
        await index.delete(key)  # its time ran out
    world.clock.at += 5_001
    assert (await verdict(world, way)).predicted_wait_ms == 0


async def test_later_admissions_do_not_keep_forgotten_ones_alive(index: Redis) -> None:
    world = await World.create(index, {"tenant:a": (1, 3)})
    way = flow("p", "otp", "a")
    await world.scheduler.admit([ask(way)] * 3)
    [key] = await index.keys("{c1}:w:*")
    await index.pexpire(key, 200)
    world.clock.at += 4_900
    await world.scheduler.admit([ask(way)] * 3)
    assert await index.get(key) == b"6"
    assert 0 < await index.pttl(key) <= 200, "the later ones prolonged the life of the first"
    await index.delete(key)  # its time ran out
    world.clock.at += 200
    assert (await verdict(world, way)).predicted_wait_ms == 0


async def test_a_probe_leaves_no_trace(index: Redis) -> None:
    world = await World.create(index, {"tenant:a": (1, 1)})
    for _ in range(20):
        assert (await world.scheduler.admit([ask(flow("p", "otp", "a"), probe=True)]))[0].accepted
    assert not await index.keys("{c1}:w:*")


async def test_the_binding_scope_is_named(index: Redis) -> None:
    limits = {"destination:it": (1.0, 1), "route:r": (1.0, 1), "provider:p": (1.0, 1), "sender:a/+39": (1.0, 1)}
    limits |= {"application:a/x": (1.0, 1)}
    for scope in limits:
        world = await World.create(index, {scope: (1.0, 1)})
        way = flow("p", "otp", "a", *([] if scope.startswith("provider") else [scope]))
        await world.fill(way, 20)
        found = await verdict(world, way)
        assert not found.accepted and found.scope == tuple(scope.split(":", 1)), scope
        assert found.predicted_wait_ms >= 15_000 and found.retry_after_s >= 10
        await index.flushall()


async def test_marketing_floods_do_not_refuse_otp(index: Redis) -> None:
    world = await World.create(index, {"provider:p": (100, 100), "destination:it": (50, 50), "tenant:a": (40, 40)})
    await world.fill(flow("p", "marketing", "a", "destination:it"), 20_000)
    for _ in range(50):
        world.clock.at += 20
        await world.send(LeaseAsk("p", "s1", 50))
    assert (await verdict(world, flow("p", "otp", "a", "destination:it"))).accepted
    assert (await verdict(world, flow("p", "otp", "b", "destination:it"))).accepted
    assert not (await verdict(world, flow("p", "marketing", "a", "destination:it"), limit_ms=60_000)).accepted
    assert (await verdict(world, flow("p", "marketing", "b"), limit_ms=60_000)).accepted


async def test_another_way_is_taken_where_the_first_is_full(index: Redis) -> None:
    world = await World.create(index, {"route:main": (1, 1)})
    main, backup = flow("p", "otp", "a", "route:main"), flow("q", "otp", "a")
    await world.fill(main, 30)
    found = await verdict(world, main, backup)
    assert found.accepted and found.candidate == 1
    barred = Ask((main, backup), 1, 10_000, 5_000, 60_000, b"place--1", paused=frozenset({1}))
    assert not (await world.scheduler.admit([barred]))[0].accepted


async def test_pauses_and_dead_providers_close_the_door(index: Redis) -> None:
    world = await World.create(index, {"provider:p": (100, 100)})
    way = flow("p", "otp", "a", "route:r")
    await world.scheduler.pause("route:r")
    found = await verdict(world, way)
    assert (found.accepted, found.cause, found.scope) == (False, "paused", ("route", "r"))
    await world.scheduler.resume("route:r")
    assert (await verdict(world, way)).accepted
    await world.scheduler.session_up("p", "s1")
    await world.scheduler.session_down("p", "s1")
    world.clock.at += 1_000
    assert (await verdict(world, way)).accepted
    world.clock.at += 1_500
    found = await verdict(world, way)
    assert (found.accepted, found.cause, found.scope) == (False, "paused", ("provider", "p"))
    assert found.retry_after_s >= 1
    await world.scheduler.session_up("p", "s1")
    assert (await verdict(world, way)).accepted


async def test_a_silent_carrier_closes_the_door_by_age(index: Redis) -> None:
    world = await World.create(index, {})
    way = flow("p", "otp", "a")
    await world.scheduler.session_up("p", "s1")
    await world.fill(way, 5, ttl_ms=60_000)
    world.clock.at += 6_000  # eligible, and nobody leases
    found = await verdict(world, way)
    assert not found.accepted and found.queue_age_ms >= 6_000 and found.cause in {"age", "wait"}
    other = await verdict(world, flow("p", "otp", "b"))
    assert not other.accepted and other.scope == ("provider", "p")


async def test_an_old_backlog_of_its_own_refuses_no_other_tenant(index: Redis) -> None:
    world = await World.create(index, {"tenant:a": (0.1, 1), "provider:p": (100, 100)})
    await world.fill(flow("p", "otp", "a"), 10)
    await world.send(LeaseAsk("p", "s1", 50))
    world.clock.at += 9_000
    await world.send(LeaseAsk("p", "s1", 50))
    own = await verdict(world, flow("p", "otp", "a"))
    assert not own.accepted and own.scope == ("tenant", "a")
    assert (await verdict(world, flow("p", "otp", "b"))).accepted


async def test_the_measured_drain_counts_only_while_backlogged(index: Redis) -> None:
    world = await World.create(index, {})
    way = flow("p", "transactional", "a")
    await world.fill(way, 1_000)
    for _ in range(100):  # 50 a second, as the carrier answers
        world.clock.at += 100
        await world.send(LeaseAsk("p", "s1", 5))
        await world.scheduler.answered("p", 5, "transactional")
    line = (await world.scheduler.report()).lines["p", "transactional"]
    assert abs(line.drain_per_s - 50) < 3
    found = await verdict(world, way, limit_ms=60_000)
    assert abs(found.predicted_wait_ms - 500 / 50 * 1_000) < 1_500


async def test_obedient_clients_need_about_two_requests_per_message(index: Redis) -> None:
    """Scenario 9: twice the capacity for 30 s; every refused client comes back when told."""
    world = await World.create(index, {"tenant:a": (20, 20)})
    way = flow("p", "otp", "a")
    dice = random.Random(7)
    due: list[tuple[float, bytes]] = [
        (world.clock.at + dice.random() * 30_000, dice.randbytes(8)) for _ in range(1_200)
    ]
    requests = accepted = 0
    while due:
        world.clock.at += 100
        now, due_now = world.clock.at, [one for one in due if one[0] <= world.clock.at]
        due = [one for one in due if one[0] > now]
        verdicts = await world.scheduler.admit([ask(way, place=place) for _, place in due_now])
        requests += len(due_now)
        fresh = []
        for (_, place), found in zip(due_now, verdicts, strict=True):
            if found.accepted:
                accepted += 1
                fresh.append(Entry(way, world.reference(ttl_ms=10_000)))
            else:
                due.append((now + found.retry_after_s * 1_000, place))
        if fresh:
            await world.enqueue(fresh)
        await world.send(LeaseAsk("p", "s1", 50))
    assert accepted == 1_200
    assert requests / accepted <= 2.0, requests / accepted
    assert not [1 for reference in world.enqueued.values() if world.ended[reference.id] > 1]


async def test_near_the_limit_those_in_line_come_first(index: Redis) -> None:
    world = await World.create(index, {"tenant:a": (1, 1)})
    way = flow("p", "otp", "a")
    await world.fill(way, 6, ttl_ms=60_000)
    places = [bytes([n] * 8) for n in range(1, 6)]
    told = await world.scheduler.admit([ask(way, place=place) for place in places])
    assert not any(one.accepted for one in told)
    assert [one.retry_after_s for one in told] == sorted({one.retry_after_s for one in told})
    await world.send(LeaseAsk("p", "s1", 50))
    world.clock.at += 2_000
    await world.send(LeaseAsk("p", "s1", 50))
    fresh = await verdict(world, way, place=b"newcomer")
    assert (fresh.accepted, fresh.cause, fresh.scope) == (False, "wait", ("tenant", "a"))
    assert (await verdict(world, way, place=places[0])).accepted  # its time has come


async def test_those_in_line_come_first_whichever_scope_is_named(index: Redis) -> None:
    """Refused for the tenant's limit; then another tenant makes the class the tighter one: newcomers do not pass."""
    world = await World.create(index, {"tenant:a": (1, 1), "provider:p": (1.5, 1)})
    way = flow("p", "otp", "a")
    await world.fill(way, 6, ttl_ms=60_000)
    places = [bytes([n] * 8) for n in range(1, 6)]
    told = await world.scheduler.admit([ask(way, place=place) for place in places])
    assert {one.scope for one in told} == {("tenant", "a")}
    for _ in range(3):
        world.clock.at += 1_000
        await world.send(LeaseAsk("p", "s1", 50))
    await world.fill(flow("p", "otp", "b"), 4, ttl_ms=60_000)
    fresh = await verdict(world, way, place=b"newcomer")
    assert (fresh.accepted, fresh.cause) == (False, "wait"), fresh


async def test_the_limit_of_the_only_session_is_named(index: Redis) -> None:
    world = await World.create(index, {"session:s1": (0.05, 1)})
    await world.scheduler.session_up("p", "s1")
    way = flow("p", "otp", "a")
    await world.fill(way, 3, ttl_ms=600_000)
    found = await verdict(world, way)
    assert (found.accepted, found.scope) == (False, ("session", "s1"))


async def test_a_default_limit_that_is_gone_limits_nobody(index: Redis) -> None:
    world = await World.create(index, {"tenant:": (1, 1)})
    assert world.scheduler._tuning is not None
    await world.fill(flow("p", "marketing", "unknown"), 10)
    await world.scheduler.tune(type(world.scheduler._tuning)(2, world.scheduler._tuning.classes))
    assert len((await world.send(LeaseAsk("p", "s1", 50))).items) == 10


async def test_a_line_that_is_full_still_tells_its_length(index: Redis) -> None:
    """Twenty thousand have a place; who comes then is told how long that line is, not the longest wait there is."""
    world = await World.create(index, {"provider:p": (1_000, 1)})
    way = flow("p", "otp", "a")
    await world.enqueue([Entry(way, world.reference()) for _ in range(300)])
    for first in range(0, 20_500, 500):
        asks = [ask(way, limit_ms=100, place=n.to_bytes(8, "big")) for n in range(first, first + 500)]
        verdicts = await world.scheduler.admit(asks)
    assert {one.accepted for one in verdicts} == {False}
    assert {20, 21} >= {one.retry_after_s for one in verdicts} != set(), verdicts[0]
