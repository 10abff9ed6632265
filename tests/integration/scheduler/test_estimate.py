"""What the door is told of carriers that are slow, silent, away or broken, and of deferred work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from redis.asyncio import Redis

from scheduler.core.asks import Ask, LeaseAsk, Outcomes, Verdict
from scheduler.core.records import Entry, Flow
from scheduler.core.tuning import ProviderTuning, Tuning
from tests.property.scheduler.world import CLASSES, World, flow

OTP = Ask((), 1, 10_000, 5_000, 120_000, b"place--1")
BULK = Ask((), 1, 14_400_000, 7_200_000, 43_200_000, b"place--2")


async def asked(world: World, base: Ask, *flows: Flow, **change: object) -> Verdict:
    """A verdict without a trace."""
    return (await world.scheduler.capacity([replace(base, flows=flows, **change)]))[0]  # type: ignore[arg-type]


class Carrier:
    """Provider p behind one session with a window: it answers `rate` messages a second, steadily."""

    def __init__(self, world: World, window: int = 10) -> None:
        self.world = world
        self.window = window
        self.owed = 0
        self._credit = self._load = 0.0

    async def run(self, ms: int, rate: float, load_per_s: float = 0) -> list[float]:
        """Runs on while `load_per_s` OTPs arrive; returns the waits (ms) of what was leased."""
        world, waits = self.world, []
        for _ in range(ms // 100):
            world.clock.at += 100
            self._credit = min(1.0, self._credit) + rate / 10
            self._load += load_per_s / 10
            if self._load >= 1:
                entries = [Entry(flow("p", "otp", "a"), world.reference()) for _ in range(int(self._load))]
                await world.enqueue(entries)
                self._load -= len(entries)
            done = min(self.owed, int(self._credit + 1e-9))
            if done:
                self.owed, self._credit = self.owed - done, self._credit - done
                await world.scheduler.answered("p", done, "otp")
                outcomes = Outcomes(good=done, round_trip_ms=80, rate_per_s=rate)
                await world.scheduler.report_outcomes("p", "s1", outcomes)
            if self.owed < self.window:
                leased = await world.send(LeaseAsk("p", "s1", self.window - self.owed))
                self.owed += len(leased.items)
                waits += [world.clock.at - item.reference.queued_at for item in leased.items]
        return waits


async def bound(index: Redis, limits: dict[str, tuple[float, int]] | None = None) -> World:
    """A world with one bound session whose breaker rules are the defaults."""
    world = await World.create(index, limits or {})
    providers = {"p": ProviderTuning(), "q": ProviderTuning()}
    await world.scheduler.tune(Tuning(2, CLASSES, limits=limits or {}, providers=providers))
    await world.scheduler.session_up("p", "s1")
    await world.scheduler.session_up("q", "s2")
    world.clock.at += 60_000
    await world.send(LeaseAsk("p", "s1", 10))
    await world.send(LeaseAsk("q", "s2", 10))
    return world


async def test_a_silent_carrier_is_refused_soon_by_age(index: Redis) -> None:
    """5 OTPs a second that the window still takes, and no answer any more."""
    world = await bound(index)
    carrier = Carrier(world, window=100)
    await carrier.run(10_000, 50, load_per_s=5)
    way = flow("p", "otp", "a")
    assert (await asked(world, OTP, way)).accepted
    silent_at = world.clock.at
    while (await asked(world, OTP, way)).accepted:
        await carrier.run(100, 0, load_per_s=10)
        assert world.clock.at - silent_at < 2_000, "a silent carrier is refused within two seconds"
    found = await asked(world, OTP, way)
    assert (found.cause, found.scope) == ("age", ("provider", "p")) and found.queue_age_ms >= 1_000
    assert found.retry_after_s <= 3
    assert (await asked(world, BULK, flow("p", "marketing", "a"))).accepted  # it can wait: only OTPs must not
    assert (await asked(world, OTP, flow("q", "otp", "a"))).accepted  # another provider works
    assert (await asked(world, OTP, way, flow("q", "otp", "a"))).candidate == 1
    await carrier.run(1_000, 50, load_per_s=5)
    assert (await asked(world, OTP, way)).accepted  # it speaks again


async def test_a_carrier_that_nobody_feeds_is_refused_soon(index: Redis) -> None:
    world = await bound(index)
    await Carrier(world).run(5_000, 50, load_per_s=5)
    await world.fill(flow("p", "otp", "b"), 3)
    world.clock.at += 1_600
    found = await asked(world, OTP, flow("p", "otp", "a"))
    assert (found.accepted, found.cause, found.scope) == (False, "age", ("provider", "p"))


async def test_a_quiet_night_is_no_silence(index: Redis) -> None:
    world = await bound(index)
    carrier = Carrier(world)
    await carrier.run(5_000, 50, load_per_s=5)
    await carrier.run(200, 50)
    for _ in range(20):
        world.clock.at += 7_000
        await world.send(LeaseAsk("p", "s1", 10))  # an idle session looks once in a while
        assert (await asked(world, OTP, flow("p", "otp", "a"))).accepted


async def test_a_slow_carrier_promises_what_it_does(index: Redis) -> None:
    """2 a second without any configured limit: the first seconds teach it, what was accepted leaves in time."""
    world = await bound(index)
    way = flow("p", "otp", "a")
    await world.fill(way, 12, ttl_ms=60_000)
    carrier = Carrier(world)
    await carrier.run(3_000, 2)
    await world.fill(way, 8, ttl_ms=60_000)
    found = await asked(world, OTP, way)
    waiting = sum(n for (_, name), n in (await world.scheduler.counts()).items() if name == "otp")
    assert found.predicted_wait_ms == pytest.approx(waiting / 2 * 1_000, rel=0.3)
    accepted = 0
    for _ in range(300):  # offered 10 a second for 30 s; what is accepted is queued
        verdict = (await world.scheduler.admit([replace(OTP, flows=(way,))]))[0]
        if verdict.accepted:
            accepted += 1
            await world.enqueue([Entry(way, world.reference(ttl_ms=10_000))])
        for wait in await carrier.run(100, 2):
            assert wait <= 10_000
    assert 45 <= accepted <= 75


async def test_a_provider_that_is_away_refuses_what_cannot_wait_for_it(index: Redis) -> None:
    world = await bound(index)
    await Carrier(world).run(5_000, 50, load_per_s=5)
    await world.scheduler.session_down("p", "s1", int(world.clock.at) + 20_000)
    world.clock.at += 2_500
    found = await asked(world, OTP, flow("p", "otp", "a"))
    assert (found.accepted, found.cause, found.scope) == (False, "paused", ("provider", "p"))
    assert found.predicted_wait_ms >= 20_000 and found.retry_after_s >= 15
    bulk = await asked(world, BULK, flow("p", "marketing", "a"))
    assert bulk.accepted and bulk.predicted_wait_ms >= 20_000
    world.clock.at += 7_300_000
    assert not (await asked(world, BULK, flow("p", "marketing", "a"))).accepted


async def test_a_provider_that_never_had_a_session_is_away_after_a_grace(index: Redis) -> None:
    world = await World.create(index, {})
    way = flow("p", "otp", "a")
    await world.scheduler.tune(Tuning(2, CLASSES, providers={"p": ProviderTuning(), "q": ProviderTuning()}))
    world.clock.at += 9_900  # at a start nothing is bound yet
    assert (await asked(world, OTP, way)).accepted
    world.clock.at += 200
    found = await asked(world, OTP, way)
    assert (found.accepted, found.cause, found.scope) == (False, "paused", ("provider", "p"))
    assert found.predicted_wait_ms >= 10_000
    assert (await asked(world, BULK, flow("p", "marketing", "a"))).accepted  # it can wait as long again as it lasted
    await world.scheduler.tune(Tuning(3, CLASSES, providers={"p": ProviderTuning(), "r": ProviderTuning()}))
    assert not (await asked(world, OTP, way)).accepted  # another version begins no grace of its own
    assert (await asked(world, OTP, flow("r", "otp", "a"))).accepted  # but for a provider that it brings
    report = await world.scheduler.report()
    assert (report.providers["p"].state, report.providers["p"].since_ms) == ("down", 10_100)
    await world.scheduler.session_up("p", "s1")
    assert (await asked(world, OTP, way)).accepted


async def test_an_open_breaker_is_a_pause_with_a_known_end(index: Redis) -> None:
    world = await bound(index)
    await Carrier(world).run(5_000, 50, load_per_s=5)
    await world.scheduler.report_outcomes("p", "s1", Outcomes(errors=60))
    found = await asked(world, OTP, flow("p", "otp", "a"))
    assert (found.accepted, found.cause) == (False, "paused")
    assert found.scope in (("provider", "p"), ("session", "s1"))
    assert (await asked(world, OTP, flow("p", "otp", "a"), flow("q", "otp", "a"))).candidate == 1
    bulk = await asked(world, BULK, flow("p", "marketing", "a"))
    assert bulk.accepted and bulk.predicted_wait_ms >= 5_000


async def test_a_pause_with_an_end_refuses_only_what_cannot_wait(index: Redis) -> None:
    world = await bound(index)
    way = flow("p", "otp", "a", "route:r")
    await world.scheduler.pause("route:r", int(world.clock.at) + 3_000)
    assert (await asked(world, OTP, way)).predicted_wait_ms == 3_000
    await world.scheduler.pause("route:r", int(world.clock.at) + 8_000)
    found = await asked(world, OTP, way)
    assert (found.accepted, found.cause, found.scope) == (False, "paused", ("route", "r"))


async def test_the_pause_of_an_application_closes_no_door(index: Redis) -> None:
    world = await bound(index)
    way = flow("p", "otp", "a", "application:a/x")
    await world.scheduler.pause("application:a/x")
    await world.fill(way, 3, ttl_ms=3_600_000)
    world.clock.at += 60_000
    await world.send(LeaseAsk("p", "s1", 10))
    found = await asked(world, OTP, way)
    assert found.accepted, found
    await world.scheduler.resume("application:a/x")
    assert (await asked(world, OTP, way)).accepted  # what waited for it was its own wish


async def test_a_slowed_session_slows_the_estimate(index: Redis) -> None:
    world = await bound(index, {"session:s1": (10.0, 1)})
    way = flow("p", "otp", "a")
    await world.fill(way, 40)
    before = await asked(world, OTP, way)
    await world.scheduler.report_outcomes("p", "s1", Outcomes(throttled=1))
    after = await asked(world, OTP, way)
    assert after.predicted_wait_ms == pytest.approx(before.predicted_wait_ms / 0.7, rel=0.02)


async def test_what_is_claimed_and_not_written_stands_before(index: Redis) -> None:
    world = await bound(index, {"session:s1": (10.0, 1)})
    await world.scheduler.report_outcomes("p", "s1", Outcomes(good=1, waiting=20))
    assert (await asked(world, OTP, flow("p", "otp", "a"))).predicted_wait_ms == 2_000


async def test_deferral_is_decided_at_once_and_counted_at_once(index: Redis) -> None:
    world = await bound(index, {"route:r": (10.0, 10)})
    way = flow("p", "marketing", "a", "route:r")
    await world.fill(way, 1_000)
    ask = replace(BULK, flows=(way,), door_limit_ms=60_000)
    refused = (await world.scheduler.admit([ask]))[0]
    assert not refused.accepted and refused.not_before is None
    later = replace(ask, defer_until=int(world.clock.at) + 3_600_000)
    found = await world.scheduler.admit([replace(later, place=bytes([n] * 8)) for n in range(100)])
    places = [(v.not_before or 0) - world.clock.at for v in found]
    assert all(v.deferred and not v.accepted for v in found)
    assert places[0] == pytest.approx(40_000, abs=2_000)  # 100 s of work less the 60 s that may be waited
    assert places == sorted(places)
    assert places[-1] - places[0] == pytest.approx(10_000, rel=0.3)  # each takes 0.1 s
    assert not (await asked(world, replace(later, defer_until=int(world.clock.at) + 30_000), way)).deferred
    assert int(await index.hstrlen("{c1}:due", way.key)) <= 16 * 30
    fresh = await asked(world, replace(ask, door_limit_ms=3_600_000), way)
    assert fresh.predicted_wait_ms == pytest.approx(110_000, rel=0.05)  # behind all of them


async def test_work_that_falls_due_before_the_own_turn_counts(index: Redis) -> None:
    world = await bound(index, {"route:r": (10.0, 10)})
    way, now_at = flow("p", "marketing", "a", "route:r"), int(world.clock.at)
    await world.fill(way, 100)
    assert (await asked(world, BULK, way)).predicted_wait_ms == pytest.approx(10_000, rel=0.12)
    works = {way.key: [(now_at + 5_000, 50, 50), (now_at + 14_000, 20, 20), (now_at + 60_000, 9, 9)]}
    await world.scheduler.due_work(works, True)
    assert (await asked(world, BULK, way)).predicted_wait_ms == pytest.approx(17_000, rel=0.1)
    await world.scheduler.due_work({way.key: [(now_at + 60_000, 9, 9)]}, False)
    assert (await asked(world, BULK, way)).predicted_wait_ms == pytest.approx(10_000, rel=0.12)
    await world.scheduler.due_work({way.key: [(now_at + n, 1, 1) for n in range(1, 9_000)]}, False)
    assert int(await index.hstrlen("{c1}:due", way.key)) <= 16 * 256
    await world.scheduler.due_work({}, True)
    assert not await index.exists("{c1}:due")


async def test_a_surge_of_tenants_is_remembered(index: Redis) -> None:
    """Once a hundred tenants were active, a lone one is not promised the whole carrier again at once."""
    world = await bound(index, {"provider:p": (100.0, 100)})
    await world.enqueue([Entry(flow("p", "otp", f"t{n % 99}"), world.reference()) for n in range(990)])
    for _ in range(110):
        world.clock.at += 100
        leased = await world.send(LeaseAsk("p", "s1", 100))
        await world.scheduler.answered("p", len(leased.items), "otp")
    assert not sum((await world.scheduler.counts()).values())
    way = flow("p", "otp", "a")
    await world.fill(way, 20)
    found = await asked(world, OTP, way)
    assert not found.accepted and found.predicted_wait_ms > 10_000
    world.clock.at += 70_000
    await world.send(LeaseAsk("p", "s1", 100))
    assert (await asked(world, OTP, way)).accepted


async def test_what_is_degraded_refuses_only_what_needs_it(index: Redis) -> None:
    limits = {"destination:slow": (1.0, 1), "route:worn": (1.0, 1), "provider:p": (100.0, 100)}
    world = await bound(index, limits)
    for scope in ("destination:slow", "route:worn"):
        await world.fill(flow("p", "otp", "a", scope), 30)
        await world.send(LeaseAsk("p", "s1", 10))
        found = await asked(world, OTP, flow("p", "otp", "a", scope))
        assert not found.accepted and found.scope == tuple(scope.split(":"))
    for way in (flow("p", "otp", "a"), flow("p", "otp", "b", "destination:fine", "route:main")):
        assert (await asked(world, OTP, way)).accepted
