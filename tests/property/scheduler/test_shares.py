"""Who gets how much: weights, classes, newcomers (I23, I24, I25; scheduling.md section 4, scenarios 1, 3 and 6)."""

from __future__ import annotations

from collections import Counter

import pytest
from redis.asyncio import Redis

from scheduler.core.asks import Ask, LeaseAsk
from scheduler.core.records import Entry, Flow
from tests.property.scheduler.world import World, flow


async def served(world: World, ticks: int, step_ms: float = 20) -> Counter[tuple[str, str]]:
    """Runs one session for some ticks; counts messages by (tenant, class)."""
    count: Counter[tuple[str, str]] = Counter()
    for _ in range(ticks):
        world.clock.at += step_ms
        leased = await world.send(LeaseAsk("p", "s1", 100))
        count.update((Flow.parse(item.flow_key).tenant, item.class_name) for item in leased.items)
    return count


async def test_tenants_share_by_weight_within_a_quantum(index: Redis) -> None:
    world = await World.create(index, {"provider:p": (500, 50)}, {"b": 2, "c": 5})
    for tenant in "abc":
        await world.fill(flow("p", "transactional", tenant), 3_000)
    sent: Counter[str] = Counter()
    for _ in range(60):
        for (tenant, _), count in (await served(world, 3)).items():
            sent[tenant] += count
        # S_i/w_i - S_j/w_j stays within Q/w_i + Q/w_j, with quantum 4 (scheduling.md 3k.1)
        lag = [sent["a"] / 1, sent["b"] / 2, sent["c"] / 5]
        assert max(lag) - min(lag) <= 4 / 1 + 4 / 2
    world.check_limits()
    await world.check_index()


async def test_a_tenant_gains_nothing_by_more_flows(index: Redis) -> None:
    world = await World.create(index, {"provider:p": (500, 50)})
    for band in range(4):
        await world.fill(flow("p", "transactional", "many", band=band), 1_000)
    await world.fill(flow("p", "transactional", "one"), 1_000)
    count = await served(world, 150)
    assert abs(count["many", "transactional"] - count["one", "transactional"]) <= 4 * 4 + 4


async def test_whoever_was_alone_has_its_turn_in_the_next_rounds(index: Redis) -> None:
    """Alone it was served ten at a time; those who come then are not each owed ten before its next turn."""
    world = await World.create(index, {"provider:p": (500, 50)})
    await world.fill(flow("p", "otp", "first"), 1_200)
    await served(world, 100)
    for tenant in range(50):
        await world.fill(flow("p", "otp", f"t{tenant}"), 20)
    count = await served(world, 21)  # four rounds of 51
    others = [count[f"t{tenant}", "otp"] for tenant in range(50)]
    assert max(others) - 2 <= count["first", "otp"] <= min(others) + 2


async def test_what_was_promised_is_kept_when_many_others_come(index: Redis) -> None:
    """Five seconds of work were promised to one who was alone; then fifty others want all that there is (I25).

    They wait as long as the first did, and are not late for that: each has little before it.
    """
    world = await World.create(index, {"provider:p": (250, 25)})
    await world.fill(flow("p", "otp", "first"), 2_000, ttl_ms=13_000)
    count: Counter[tuple[str, str]] = Counter()
    for tick in range(-150, 550):  # 3 s alone: the drain is known
        if 0 <= tick < 500:
            newcomers = [flow("p", "otp", f"t{(tick * 5 + n) % 50}") for n in range(5 if tick < 150 else 2)]
            await world.enqueue([Entry(one, world.reference(ttl_ms=10_000)) for one in newcomers])
        count += await served(world, 1)
        await world.scheduler.report_answers("p", {"otp": 5})
    assert count["first", "otp"] == 2_000
    assert sum(count.values()) == world.numbers
    await world.check_index()


async def test_new_weights_hold_from_the_next_policy(index: Redis) -> None:
    world = await World.create(index, {"provider:p": (500, 50)})
    for tenant in "ab":
        await world.fill(flow("p", "marketing", tenant), 4_000)
    before = await served(world, 100)
    assert abs(before["a", "marketing"] - before["b", "marketing"]) <= 64
    assert world.scheduler._tuning is not None
    tuning = world.scheduler._tuning
    await world.scheduler.tune(type(tuning)(2, tuning.classes, {"b": 3}, limits=tuning.limits))
    after = await served(world, 200)
    assert abs(after["a", "marketing"] - after["b", "marketing"] / 3) <= 64
    await world.check_index()


async def test_classes_get_their_floor_and_otp_waits_for_no_flood(index: Redis) -> None:
    world = await World.create(index, {"provider:p": (500, 50)})
    await world.fill(flow("p", "marketing", "noisy"), 12_000)
    waits = []
    sent: Counter[str] = Counter()
    for tick in range(1_000):
        world.clock.at += 10
        if tick % 2 == 0:  # 50 a second
            await world.enqueue([Entry(flow("p", "otp", f"t{tick % 20}"), world.reference(ttl_ms=10_000))])
        leased = await world.send(LeaseAsk("p", "s1", 100))
        for item in leased.items:
            sent[item.class_name] += 1
            if item.class_name == "otp":
                waits.append(world.clock.at - item.reference.queued_at)
    waits.sort()
    assert len(waits) == 500
    assert waits[int(len(waits) * 0.99)] <= 20 and waits[-1] <= 50
    assert sum(sent.values()) >= 0.999 * (500 * 10 + 50)  # work conserving
    world.check_limits()


async def test_a_class_that_returns_does_not_catch_up(index: Redis) -> None:
    world = await World.create(index, {"provider:p": (500, 50)})
    await world.fill(flow("p", "marketing", "a"), 6_000)
    await served(world, 200)
    await world.fill(flow("p", "transactional", "b"), 3_000)
    count = await served(world, 100)
    share = count["a", "marketing"] / sum(count.values())
    assert abs(share - 10 / 35) < 0.05  # its weight share, at once


async def test_a_throttled_destination_holds_only_its_own_flows(index: Redis) -> None:
    world = await World.create(index, {"provider:p": (500, 50), "destination:slow": (10, 5)})
    await world.fill(flow("p", "transactional", "a", "destination:slow"), 2_000)
    waits = []
    slow = 0
    for _ in range(500):
        world.clock.at += 20
        await world.enqueue([Entry(flow("p", "transactional", "a"), world.reference())])
        leased = await world.send(LeaseAsk("p", "s1", 100))
        for item in leased.items:
            if "destination:slow" in item.flow_key:
                slow += 1
            else:
                waits.append(world.clock.at - item.reference.queued_at)
    assert len(waits) == 500 and max(waits) <= 20
    assert 0.99 * (10 * 10) <= slow <= 10 * 10 + 5
    world.check_limits()


async def test_a_pause_saves_up_no_burst(index: Redis) -> None:
    world = await World.create(index, {"provider:p": (100, 100)})
    await world.fill(flow("p", "otp", "a"), 2_000)
    await served(world, 100)
    await world.scheduler.pause("provider:p")
    assert sum((await served(world, 100, 600)).values()) == 0
    await world.scheduler.resume("provider:p")
    first = sum((await served(world, 50)).values())
    assert 95 <= first <= 101  # one second at 100/s, no burst on top
    world.check_limits()


async def test_long_messages_pass_a_small_burst_beside_short_ones(index: Redis) -> None:
    """Nothing that a policy allows waits for ever: a long message reserves what it needs."""
    world = await World.create(index, {"provider:p": (20, 4), "route:r": (15, 3)})
    await world.enqueue(
        [Entry(flow("p", "transactional", "long", "route:r"), world.reference(segments=6)) for _ in range(20)]
    )
    segments: Counter[str] = Counter()
    for _ in range(400):
        world.clock.at += 25
        await world.enqueue(
            [
                Entry(flow("p", "transactional", "short", "route:r"), world.reference()),
                Entry(flow("p", "otp", "short"), world.reference()),
            ]
        )
        for item in (await world.send(LeaseAsk("p", "s1", 50))).items:
            segments[Flow.parse(item.flow_key).tenant] += item.reference.segments
    # Its class has 25 of 85 parts of 200 segments, and half of that is its tenant's.
    assert segments["long"] >= 24
    world.check_limits()
    await world.check_index()


@pytest.mark.parametrize("scope", ["route:r", "tenant:a", "provider:p"])
@pytest.mark.parametrize("class_name", ["otp", "marketing"])
async def test_a_backlog_of_long_messages_starves_nobody(index: Redis, scope: str, class_name: str) -> None:
    """Ten parts at 50/s reserve their room in the limit that they share; what is short has its turns between them: a
    class of more weight at once, another flow of the same class after one long message."""
    limits = {scope: (50.0, 50)}
    world = await World.create(index, limits)
    scopes = (scope,) if scope.startswith("route") else ()
    long, short = flow("p", "marketing", "a", *scopes), flow("p", class_name, "a", *scopes, band=1)
    await world.enqueue([Entry(long, world.reference(ttl_ms=3_600_000, segments=10)) for _ in range(400)])
    waits, sent = [], 0
    for tick in range(300):
        world.clock.at += 20
        if tick > 100 and tick % 25 == 0:
            await world.enqueue([Entry(short, world.reference(ttl_ms=3_600_000))])
        for item in (await world.send(LeaseAsk("p", "s1", 50))).items:
            sent += item.reference.segments
            if item.reference.segments == 1:
                waits.append(world.clock.at - item.reference.queued_at)
    assert len(waits) >= 6 and max(waits) <= (100 if class_name == "otp" else 500), waits
    assert sent >= 0.95 * 50 * 6
    world.check_limits()
    await world.check_index()


async def test_a_refusal_counts_what_was_let_in_before_it_in_the_same_call(index: Redis) -> None:
    """What is refused again and again in a call hears the same, until something is let in in between."""
    world = await World.create(index, {"route:r": (1.0, 1)})
    way = flow("p", "marketing", "a", "route:r")
    await world.enqueue([Entry(way, world.reference(ttl_ms=3_600_000)) for _ in range(20)])
    tight, wide = (
        [Ask((way,), 1, 14_400_000, limit_ms, 3_600_000, bytes([part, n] * 4)) for n in range(5)]
        for part, limit_ms in ((1, 5_000), (2, 1_800_000))
    )
    told = await world.scheduler.admit([*tight[:3], *wide, *tight[3:]])
    assert [one.accepted for one in told] == [False] * 3 + [True] * 5 + [False] * 2
    assert len({one.predicted_wait_ms for one in told[:3]}) == 1
    assert told[8].predicted_wait_ms >= told[0].predicted_wait_ms + 4_000
    assert [one.retry_after_s for one in told[:3]] == sorted({one.retry_after_s for one in told[:3]})
