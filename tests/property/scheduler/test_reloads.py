"""Random policies and reloads in mid-run: limits in every window, fairness, work conserving (I17-I19, I23-I25)."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from math import ceil

import pytest
from redis.asyncio import Redis

from scheduler.core.asks import LeaseAsk, Leased
from scheduler.core.records import Entry, Flow
from scheduler.core.tuning import Tuning
from simulations.mutations import mutated
from tests.property.scheduler.world import CLASSES, World, flow

Limits = dict[str, tuple[float, int]]
SCOPES = (
    "tenant:a",
    "tenant:b",
    "application:a/x",
    "destination:it",
    "route:r",
    "provider:p",
    "session:s1",
    "session:s2",
)


@dataclass(slots=True)
class Terms:
    """What was in force when: per scope its rates and bursts with their beginning (ms); 0 is no limit."""

    began_at: float
    history: dict[str, list[tuple[float, float, int]]] = field(default_factory=lambda: defaultdict(list))

    def take(self, at: float, limits: Limits) -> None:
        """A policy's limits from now on."""
        for scope in SCOPES:
            rate, burst = limits.get(scope, (0.0, 0))
            self.history[scope].append((at, rate, burst))

    def check(self, scope: str, sent: list[tuple[float, int]]) -> None:
        """I18 with reloads: over every window sent <= integral of the rate + the largest burst in it.

        While a scope is unlimited everything may leave: windows that reach into such a time are not judged.
        """
        spans = self.history[scope]
        for number, (since, rate, _) in enumerate(spans):
            if rate <= 0 or (number and spans[number - 1][1] > 0):
                continue
            run = [spans[number]]
            for later in spans[number + 1 :]:
                if later[1] <= 0:
                    break
                run.append(later)
            until = spans[number + len(run)][0] if number + len(run) < len(spans) else float("inf")
            self._check_run(scope, run, [one for one in sent if since < one[0] < until])

    def _check_run(self, scope: str, run: list[tuple[float, float, int]], sent: list[tuple[float, int]]) -> None:
        def allowed_until(at: float) -> float:
            total = 0.0
            for number, (since, rate, _) in enumerate(run):
                end = run[number + 1][0] if number + 1 < len(run) else at
                total += rate * max(0.0, min(end, at) - since) / 1000
            return total

        burst = max(one[2] for one in run)
        total, lowest = 0.0, None
        for at, segments in sent:
            level = total - allowed_until(at)
            lowest = level if lowest is None else min(lowest, level)
            total += segments
            excess = total - allowed_until(at) - lowest
            assert excess <= max(burst, segments) + 1e-3, f"I18 broken by {scope}: {excess} over {burst}"


def drawn_limits(dice: random.Random) -> Limits:
    """Limits on some scopes."""
    found = {
        scope: (dice.choice([2.0, 7.5, 30.0, 120.0]), dice.choice([1, 4, 20]))
        for scope in SCOPES
        if dice.random() < 0.55
    }
    found["provider:p"] = (dice.choice([40.0, 150.0]), dice.choice([5, 30]))
    return found


def drawn_entry(world: World, dice: random.Random) -> Entry:
    """A message of one of some flows, long now and then."""
    scopes = [s for s in ("application:a/x", "destination:it", "route:r") if dice.random() < 0.5]
    tenant = "a" if "application:a/x" in scopes else dice.choice("abc")
    reference = world.reference(ttl_ms=dice.choice([2_000, 600_000]), segments=dice.choice([1, 1, 1, 3, 9]))
    return Entry(flow("p", dice.choice(list(CLASSES)), tenant, *scopes), reference, retry=dice.random() < 0.05)


@pytest.mark.parametrize("seed", range(1, 7))
async def test_limits_hold_in_every_window_across_reloads(index: Redis, seed: int) -> None:
    dice = random.Random(seed)
    limits = drawn_limits(dice)
    world = await World.create(index, dict.fromkeys(SCOPES, (1.0, 1)))  # the journal knows every scope
    terms, version = Terms(world.clock.at), 2

    async def apply(taken: Limits) -> None:
        await world.scheduler.tune(Tuning(version, CLASSES, {"a": dice.choice([1, 3]), "b": 2}, limits=taken))
        terms.take(world.clock.at, taken)

    await apply(limits)
    await world.scheduler.session_up("p", "s1")
    await world.scheduler.session_up("p", "s2")
    unsent: list[Leased] = []
    for turn in range(200):
        world.clock.at += dice.choice([1, 5, 20, 60, 250])
        if dice.random() < 0.5:
            await world.enqueue([drawn_entry(world, dice) for _ in range(dice.randint(1, 12))])
        if dice.random() < 0.04:
            version += 1
            limits = drawn_limits(dice) if dice.random() < 0.6 else {k: (r * 2, b) for k, (r, b) in limits.items()}
            await apply(limits)
        if dice.random() < 0.03:
            scope = dice.choice(SCOPES)
            await world.scheduler.pause(scope, int(world.clock.at) + dice.choice([50, 900]))
        ask = LeaseAsk("p", dice.choice(["s1", "s2"]), dice.choice([1, 10, 80]))
        if dice.random() < 0.1:  # leased and never sent: tokens come back, never more than there is room for
            leased = await world.lease(ask)
            unsent += [leased] if leased.items else []
        else:
            await world.send(ask)
        if unsent and dice.random() < 0.5:
            await world.scheduler.restore(unsent.pop().lease_id)
        if turn % 60 == 59:
            await check_tokens(world)
    for scope in SCOPES:
        terms.check(scope, world.journal[scope])


async def check_tokens(world: World) -> None:
    """I19: no bucket holds more than its burst."""
    for scope, report in (await world.scheduler.report()).scopes.items():
        limit = 10_000.0 if scope[0] == "retry" else 60.0
        assert report.tokens <= limit, scope


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_backlogged_tenants_share_by_weight_whatever_the_weights(index: Redis, seed: int) -> None:
    """scheduling.md 3k.1, over every interval of a time of equal weights; new weights hold at once."""
    dice = random.Random(seed)
    class_name = dice.choice(["otp", "transactional", "marketing"])
    quantum = CLASSES[class_name].quantum
    tenants = [f"t{n}" for n in range(dice.randint(2, 6))]
    bands = {name: dice.choice([1, 1, 2, 3]) for name in tenants}
    world = await World.create(index, {"provider:p": (1_000.0, 50)})
    for name in tenants:
        for band in range(bands[name]):
            await world.fill(flow("p", class_name, name, band=band), 9_000 // bands[name])
    for version in (2, 3):
        weights = {name: float(dice.choice([1, 2, 5])) for name in tenants}
        await world.scheduler.tune(Tuning(version, CLASSES, weights, limits={"provider:p": (1_000.0, 50)}))
        served: Counter[str] = Counter()
        marks = []
        for turn in range(75):
            world.clock.at += 20
            for item in (await world.send(LeaseAsk("p", "s1", dice.choice([20, 20, 64])))).items:
                served[Flow.parse(item.flow_key).tenant] += 1
            if turn >= 25:  # tags of the old weights are behind by then
                marks.append({name: served[name] / weights[name] for name in tenants})
        bound = {name: quantum * bands[name] / weights[name] for name in tenants}
        for i, one in enumerate(tenants):
            for other in tenants[i + 1 :]:
                lead = [mark[one] - mark[other] for mark in marks]
                # every interval: the largest rise or fall between two marks, within both bounds and one lease
                slack = 64 / min(weights.values()) if class_name == "marketing" else 0
                assert max(lead) - min(lead) <= 2 * (bound[one] + bound[other]) + slack, (weights, one, other)
    await world.check_index()


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_slot_is_idle_while_something_may_go(index: Redis, seed: int) -> None:
    """Work conserving: 99.9 % of the rate while eligible work waits, beside throttled flows and expiring ones (I24)."""
    dice = random.Random(seed)
    limits = {"provider:p": (300.0, 30), "destination:slow": (3.0, 1), "tenant:b": (5.0, 2)}
    world = await World.create(index, limits)
    await world.fill(flow("p", "marketing", "a"), 8_000)
    await world.fill(flow("p", "otp", "a", "destination:slow"), 500)
    await world.fill(flow("p", "transactional", "b"), 500)
    sent, began_at = 0, world.clock.at
    while world.clock.at < began_at + 10_000:
        world.clock.at += dice.choice([5, 10, 20, 50])
        if dice.random() < 0.2:
            await world.enqueue([Entry(flow("p", "otp", "c"), world.reference(ttl_ms=dice.choice([1, 40, 9_000])))])
        sent += sum(i.reference.segments for i in (await world.send(LeaseAsk("p", "s1", 100))).items)
    passed_s = (world.clock.at - began_at) / 1000
    assert sent >= 0.999 * 300 * passed_s
    for scope in ("destination:slow", "tenant:b"):  # with a burst of 1 a token waits for the next look, up to 50 ms
        used = sum(segments for _, segments in world.journal[scope])
        assert used >= 0.8 * limits[scope][0] * passed_s, f"I24: {scope} let through less than it may"
    world.check_limits()


async def test_every_class_has_its_floor_in_every_ten_seconds(index: Redis) -> None:
    world = await World.create(index, {"provider:p": (100.0, 10)})
    for name in CLASSES:
        await world.fill(flow("p", name, "a"), 4_000)
    for _ in range(2):
        sent: Counter[str] = Counter()
        for _ in range(200):
            world.clock.at += 50
            sent.update(item.class_name for item in (await world.send(LeaseAsk("p", "s1", 20))).items)
        for name, rules in CLASSES.items():
            floor = 1_000 * rules.weight / sum(one.weight for one in CLASSES.values())
            assert sent[name] >= floor - 2 * rules.quantum, (name, sent)


@pytest.mark.parametrize("seed", [1, 2])
async def test_floors_and_otp_hold_across_reloads(index: Redis, seed: int) -> None:
    """Rates and weights change every 2 s: no slot stays idle and every class has its floor (I24), also when one comes
    back that was idle; OTPs below their own floor neither wait long nor expire beside backlogs (I25); nothing leaves
    after its deadline (I17)."""
    dice = random.Random(seed)
    world = await World.create(index, {"provider:p": (100.0, 10)})
    for name in ("transactional", "marketing"):
        await world.fill(flow("p", name, "a"), 2_000)
    for version in range(2, 6):
        if version == 4:
            await world.fill(flow("p", "non_priority", "a"), 2_000)
        rate, burst = dice.choice([50.0, 120.0, 300.0]), dice.choice([10, 20])
        classes = {name: replace(one, weight=dice.choice([5, 10, 25, 60])) for name, one in CLASSES.items()}
        await world.scheduler.tune(
            Tuning(version, classes, {"a": dice.choice([1, 3])}, limits={"provider:p": (rate, burst)})
        )
        whole = sum(one.weight for one in classes.values())
        longest_ms = 20 + 1000 / rate * ceil(whole / classes["otp"].weight)
        sent: Counter[str] = Counter()
        came = 0
        for tick in range(100):
            world.clock.at += 20
            ttl_ms = dice.choice([10, 60, 9_000])  # some end in the queue of a backlog
            await world.enqueue([Entry(flow("p", "marketing", "b"), world.reference(ttl_ms=ttl_ms))])
            if came < 0.7 * rate * classes["otp"].weight / whole * tick / 50:
                came += 1
                await world.enqueue([Entry(flow("p", "otp", f"t{tick % 7}"), world.reference(ttl_ms=10_000))])
            leased = await world.send(LeaseAsk("p", "s1", 100))
            sent.update(item.class_name for item in leased.items)
            waits = [world.clock.at - one.reference.queued_at for one in leased.items if one.class_name == "otp"]
            assert max(waits, default=0) <= longest_ms, "I24, I25: an OTP waited beside lower classes"
        assert sum(sent.values()) >= 0.99 * rate * 2 - 1, "I24: a slot was idle"
        assert came - sent["otp"] <= 1
        for name, rules in classes.items():
            if name != "otp" and (name != "non_priority" or version >= 4):
                assert sent[name] >= rate * 2 * rules.weight / whole - 2 * rules.quantum, ("I24", name, sent)
    await world.check_index()


@pytest.mark.parametrize("after", [(10.0, 5), None], ids=["raised", "gone"])
@pytest.mark.parametrize(
    "scope", ["tenant:a", "application:a/x", "sender:a/S", "destination:it", "route:r", "number:it"]
)
async def test_a_limit_that_is_loosened_lets_go_of_what_it_held(
    index: Redis, scope: str, after: tuple[float, int] | None
) -> None:
    """One in a quarter of an hour, then ten a second: what was parked or held must not wait for the old instant,
    and a message that comes afterwards neither."""
    world = await World.create(index, {scope: (0.001, 1)})
    world.clock.at += 2_000_000
    scopes = () if scope.startswith("tenant:") else (scope,)
    way, number = flow("p", "marketing", "a", *scopes), b"number-1" if scope.startswith("number:") else bytes(8)
    await world.enqueue([Entry(way, world.reference(ttl_ms=9_000_000, number=number)) for _ in range(6)])
    assert len((await world.send(LeaseAsk("p", "s1", 10))).items) == 1
    assert not (await world.send(LeaseAsk("p", "s1", 10))).items
    await world.scheduler.tune(Tuning(2, CLASSES, limits={} if after is None else {scope: after}))
    sent = 0
    for tick in range(50):
        world.clock.at += 1_000
        sent += len((await world.send(LeaseAsk("p", "s1", 10))).items)
        if tick == 2:
            await world.enqueue([Entry(way, world.reference(ttl_ms=9_000_000, number=number))])
    assert sent == 6
    world.limits = {scope: after} if after is not None else {}
    await world.check_index()


async def test_a_second_look_ends_though_a_session_parks_the_flow_again_each_time(
    index: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await World.create(index, {"tenant:a": (0.001, 1)})
    world.clock.at += 2_000_000
    await world.enqueue([Entry(flow("p", "marketing", "a"), world.reference(ttl_ms=9_000_000)) for _ in range(3)])
    assert len((await world.send(LeaseAsk("p", "s1", 10))).items) == 1
    real, looks = world.scheduler._steer, 0

    async def busy(verb: str, *args: object) -> int:
        nonlocal looks
        looks += 1
        assert looks < 20, "it looks for ever"
        found = await real(verb, *args)
        world.clock.at += 1
        assert not (await world.send(LeaseAsk("p", "s1", 10))).items
        return found

    monkeypatch.setattr(world.scheduler, "_steer", busy)
    await world.scheduler.look_again()
    assert looks == 2


@pytest.mark.parametrize(
    ("name", "holds", "said"),
    [
        ("class-weights-upside-down", test_floors_and_otp_hold_across_reloads, "I24"),
        ("reload-fills-buckets", test_limits_hold_in_every_window_across_reloads, "I18"),
        ("weights-ignored", test_backlogged_tenants_share_by_weight_whatever_the_weights, "t0"),
    ],
    ids=["classes", "buckets", "weights"],
)
async def test_a_broken_rule_is_noticed(
    index: Redis, name: str, holds: Callable[[Redis, int], Awaitable[None]], said: str
) -> None:
    with mutated(name), pytest.raises(AssertionError, match=said):
        await holds(index, 1)
