"""Why a message waits, what blocks most, and that asking is cheap."""

from __future__ import annotations

import time

import pytest
from redis.asyncio import Redis

from scheduler.core.asks import ExplainAsk, Explanation, LeaseAsk, Outcomes
from scheduler.core.records import Entry, Flow, Reference
from scheduler.core.tuning import ProviderTuning, Tuning
from tests.property.scheduler.world import CLASSES, World, flow

ASK = LeaseAsk("p", "s1", 10)


async def made(index: Redis, limits: dict[str, tuple[float, int]] | None = None) -> World:
    """A world with a bound session whose bucket is full."""
    world = await World.create(index, limits or {})
    await world.scheduler.tune(Tuning(2, CLASSES, limits=limits or {}, providers={"p": ProviderTuning()}))
    await world.scheduler.session_up("p", "s1")
    world.clock.at += 60_000
    await world.send(ASK)
    return world


async def why(world: World, way: Flow, reference: Reference) -> Explanation:
    """The explanation of one reference."""
    return await world.scheduler.explain(ExplainAsk(way, reference))


async def queue(world: World, way: Flow, count: int) -> list[Reference]:
    """References of a backlog, in order, each a millisecond after the other."""
    references = []
    for _ in range(count):
        references.append(world.reference(ttl_ms=3_600_000))
        world.clock.at += 1
    for at in range(0, count, 1_000):
        await world.scheduler.enqueue(references[at].id, [Entry(way, one) for one in references[at : at + 1_000]])
    return references


@pytest.mark.parametrize(
    "scope", ["tenant:a", "application:a/x", "destination:it", "route:r", "provider:p", "session:s1"]
)
async def test_the_scope_that_lacks_tokens_is_named(index: Redis, scope: str) -> None:
    world = await made(index, {scope: (2.0, 3)})
    kind, name = scope.split(":")
    way = flow("p", "marketing", "a", *([scope] if kind in ("application", "destination", "route") else []))
    references = await queue(world, way, 20)
    await world.send(ASK)
    found = await why(world, way, references[8])
    assert found.scope == (kind, name)
    assert found.position == 6
    assert found.tokens_missing == pytest.approx(1.0, abs=0.05)
    assert (found.predicted_start or 0) - world.clock.at == pytest.approx(3_000, rel=0.2)


async def test_pauses_and_outages_are_named(index: Redis) -> None:
    world = await made(index)
    way = flow("p", "otp", "a", "application:a/x", "route:r")
    references = await queue(world, way, 2)
    for scope in ("application:a/x", "route:r", "provider:p", "session:s1"):
        await world.scheduler.pause(scope)
        await world.send(ASK)
        found = await why(world, way, references[0])
        assert (found.scope, found.predicted_start, found.position) == (("paused", scope), None, 1), scope
        await world.scheduler.resume(scope)
    await world.scheduler.session_down("p", "s1")
    found = await why(world, way, references[1])
    assert (found.scope, found.predicted_start) == (("session_down", "provider:p"), None)  # too early to guess
    world.clock.at += 3_000
    found = await why(world, way, references[1])
    assert found.scope == ("session_down", "provider:p") and found.position == 2 and found.predicted_start is not None
    await world.scheduler.session_up("p", "s1")
    await world.scheduler.report_outcomes("p", "s1", Outcomes(errors=50))
    assert (await why(world, way, references[1])).scope[0] == "session_down"


async def test_a_carrier_that_was_never_bound_promises_no_start(index: Redis) -> None:
    world = await World.create(index, {})
    await world.scheduler.tune(Tuning(2, CLASSES, providers={"p": ProviderTuning()}))
    way = flow("p", "otp", "a")
    references = await queue(world, way, 1)
    for _ in range(2):
        found = await why(world, way, references[0])
        assert (found.scope, found.position, found.predicted_start) == (("session_down", "provider:p"), 1, None)
        world.clock.at += 20_000


async def test_others_before_it_a_full_window_and_a_held_number(index: Redis) -> None:
    world = await made(index, {"number:it": (0.1, 1)})
    await queue(world, flow("p", "transactional", "busy"), 50)
    way = flow("p", "transactional", "a", "number:it")
    references = await queue(world, way, 30)
    await world.send(LeaseAsk("p", "s1", 4))
    assert (await why(world, way, references[20])).scope == ("fairness", "transactional")
    while (await world.send(ASK)).items:
        pass
    alone = (await queue(world, way, 1))[0]
    world.clock.at += 500
    assert (await why(world, way, alone)).scope == ("window", "s1")  # eligible, and nobody takes it
    await world.send(ASK)
    token = bytes([7] * 8)
    pair = [world.reference(number=token) for _ in range(2)]
    await world.enqueue([Entry(way, one) for one in pair])
    await world.send(ASK)
    found = await why(world, way, pair[1])
    assert found.scope == ("number", "it") and found.position is None
    assert (found.predicted_start or 0) - world.clock.at == pytest.approx(10_000, rel=0.1)
    assert (await why(world, way, alone)).position is None  # it left


async def test_the_place_is_right_wherever_it_stands_and_asking_is_cheap(index: Redis) -> None:
    world = await made(index, {"provider:p": (1.0, 1)})
    way = flow("p", "marketing", "a")
    references = await queue(world, way, 20_000)
    batch = [world.reference() for _ in range(700)]  # one batch: all of one instant
    await world.enqueue([Entry(way, one) for one in batch])
    front = [world.reference() for _ in range(3)]
    await world.enqueue([Entry(way, one, front=True) for one in front])
    for at in (0, 1, 63, 64, 200, 9_999, 19_998, 19_999):
        assert (await why(world, way, references[at])).position == at + 4, at
    assert (await why(world, way, batch[300])).position == 20_000 + 304
    assert (await why(world, way, front[1])).position == 2
    best = 1e9
    for _ in range(3):
        began = time.perf_counter()
        for at in range(0, 20_000, 1_000):
            await why(world, way, references[at])
        best = min(best, (time.perf_counter() - began) / 20)
    assert best < 3 * 0.005


async def test_blockers_by_class_largest_first(index: Redis) -> None:
    world = await made(index, {"destination:it": (1.0, 1), "tenant:b": (1.0, 1)})
    await world.fill(flow("p", "marketing", "a", "destination:it"), 300)
    await world.fill(flow("p", "marketing", "b"), 40)
    await world.fill(flow("p", "otp", "b"), 20)
    await world.send(LeaseAsk("p", "s1", 200))
    await world.scheduler.pause("route:r")
    await world.fill(flow("p", "otp", "c", "route:r"), 5)
    await world.send(LeaseAsk("p", "s1", 200))
    world.clock.at += 4_000
    found = await world.scheduler.blockers()
    assert [one.class_name for one in found][:1] == ["marketing"]
    assert found[0].scope == ("destination", "it") and found[0].waiting == 299 and found[0].since_ms == 4_000
    assert {one.scope for one in found if one.class_name == "otp"} == {("tenant", "b"), ("route", "r")}
    await world.scheduler.session_down("p", "s1")
    found = await world.scheduler.blockers()
    assert ("provider", "p") in {one.scope for one in found if one.class_name == "otp"}


async def test_sessions_at_their_own_limit_hold_what_waits_for_their_carrier(index: Redis) -> None:
    """The commonest limit is a session's: what waits for it was told to wait for its turn (`fairness`)."""
    world = await made(index, {"session:s1": (1.0, 1), "session:s2": (2.0, 1), "tenant:b": (1.0, 1)})
    await world.fill(flow("p", "marketing", "a"), 30)
    await world.fill(flow("p", "marketing", "b"), 10)
    await world.scheduler.session_up("p", "s2")
    for _ in range(2):
        await world.send(LeaseAsk("p", "s1", 10))
        world.clock.at += 100
    assert {one.scope[0] for one in await world.scheduler.blockers()} <= {"fairness", "tenant"}  # s2 has room
    await world.send(LeaseAsk("p", "s2", 10))
    world.clock.at += 100
    found = {one.scope: one for one in await world.scheduler.blockers()}
    waiting = sum((await world.scheduler.counts()).values())
    assert ("fairness", "marketing") not in found
    assert found["session", "s2"].since_ms == 100
    assert sum(one.waiting for one in found.values()) == waiting
    await world.scheduler.session_down("p", "s2")
    assert ("session", "s1") in {one.scope for one in await world.scheduler.blockers()}


async def test_a_pause_without_a_limit_holds_what_waited_before_it(index: Redis) -> None:
    world = await made(index)
    way = flow("p", "otp", "a", "route:r")
    await world.fill(way, 12)
    await world.fill(flow("p", "marketing", "b", "route:r"), 7)
    await world.fill(flow("p", "otp", "c", "route:other"), 3)
    await world.scheduler.pause("route:r")
    await world.fill(way, 3)
    await world.send(ASK)
    world.clock.at += 2_000
    told = {one.class_name: one for one in await world.scheduler.blockers()}
    assert (told["otp"].scope, told["otp"].waiting, told["otp"].since_ms) == (("route", "r"), 15, 2_000)
    assert (told["marketing"].scope, told["marketing"].waiting) == (("route", "r"), 7)
    await world.scheduler.resume("route:r")
    assert {one.scope[0] for one in await world.scheduler.blockers()} == {"fairness"}
    for _ in range(4):
        await world.send(ASK)
    assert await world.scheduler.blockers() == [] and not (await world.scheduler.report()).scopes
    await world.scheduler.pause("route:r")
    assert [held.waiting for held in (await world.scheduler.report()).scopes.values()] == [0]


async def test_the_report_tells_links_and_starvation(index: Redis) -> None:
    world = await made(index)
    await world.scheduler.pause("session:s1")
    world.clock.at += 2_000
    await world.fill(flow("p", "otp", "a"), 3)
    await world.fill(flow("p", "marketing", "a"), 3)
    report = await world.scheduler.report()
    assert (report.sessions["s1"].state, report.sessions["s1"].since_ms) == ("paused", 2_000)
    world.clock.at += 5_000
    assert (await world.scheduler.report()).unserved == {"otp": 5_000, "marketing": 5_000}
    await world.scheduler.resume("session:s1")
    await world.send(LeaseAsk("p", "s1", 1))
    await world.scheduler.report_outcomes("p", "s1", Outcomes(throttled=1, rate_per_s=100))
    report = await world.scheduler.report()
    assert report.unserved["otp"] == 0 and report.unserved["marketing"] == 5_000
    assert report.sessions["s1"].rate_share == pytest.approx(0.7) and report.providers["p"].state == "up"
