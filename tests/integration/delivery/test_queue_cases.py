"""Cases of kind `queue` on real stores."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time

import pytest

from gateway.admission.flows import entry_of
from gateway.delivery.sweeps import Sweeper
from gateway.domain.ids import day_of, uuid7
from gateway.ledger.claims import Wanted, claim
from gateway.ledger.promotions import ROUNDS_PER_S, promote_due
from gateway.policy.rules.parse import read_policy
from gateway.policy.rules.tuning import tuning_of
from gateway.telemetry import REGISTRY
from scheduler.core.asks import LeaseAsk
from tests.integration.delivery.world import POLICY, SECRET, World, index_of

COLUMNS = """day id tenant_id class status recipient sender body encoding segments route provider created_at submit_by
             expires_at sweep_at predicted_wait_ms policy_version"""
OUTAGE_MS, TTL_MS, BACKLOG = 3_600_000, 120_000, 3_000
_DUE_RETRY = """
INSERT INTO due (day, id, due_at, kind, class, provider, tenant_id, segments)
SELECT day, id, $1, 'retry', class, provider, tenant_id, segments"""


async def test_q04_five_thousand_retries_of_one_sender_do_not_hold_up_another(world: World) -> None:
    """One sender's retries all fall due before the other's: it is in the queue again after 20 rounds, two seconds."""
    now_at = world.clock.now_at()
    crowd = [await world.message(sender="SLOW", next_slot=1, attempts_spent=1, submit_begun=True)]
    template = dict(await world.row(crowd[0]))
    rows = []
    for _ in range(4_999):
        one = uuid7(now_at, os.urandom(10))
        rows.append(tuple((template | {"id": one, "day": day_of(one)}).values()))
    await world.pool.copy_records_to_table("messages", records=rows, columns=list(template))
    await world.pool.execute(f"{_DUE_RETRY} FROM messages", now_at - 60_000)
    other = await world.message(sender="QUICK", next_slot=1, attempts_spent=1, submit_begun=True)
    await world.pool.execute(f"{_DUE_RETRY} FROM messages WHERE id = $2", now_at, other)
    promoted: list[bytes] = []
    for _ in range(20):
        async with world.pool.acquire() as conn:
            found = await promote_due(conn, world.policy, b"p" * 32, now_at)
        promoted += [entry.reference.id for entry in found.entries]
        assert all(entry.retry for entry in found.entries)
        if other.bytes in promoted:
            break
    assert other.bytes in promoted and ROUNDS_PER_S >= 10


async def test_q08_what_grows_old_without_a_bind_is_told_to_its_tenant(world: World) -> None:
    """25 messages that were good for a minute, twenty minutes without a bind: each ends as ours, with its callback."""
    now_at = world.clock.now_at()
    created, ttl_ms = now_at - 1_225_000, 60_000
    ids = [
        await world.message(
            created_at=created, submit_by=created + ttl_ms, expires_at=created + ttl_ms, sweep_at=created + ttl_ms
        )
        for _ in range(25)
    ]
    before = _expired()
    sweeper = Sweeper(world.runtime())
    while await sweeper.deadlines() == 0.0:
        pass
    for one in ids:
        row = await world.row(one)
        assert (row["status"], row["delivery"], row["network_state"]) == ("expired", None, None)
        assert await world.events(one) == [("message.expired", 2)]
    assert _expired() - before == 25
    body = json.loads(await world.pool.fetchval("SELECT body FROM callbacks LIMIT 1"))["data"]
    assert (body["status"], body["origin"], body["delivery"]) == ("expired", "gateway", None)


def _expired() -> float:
    labels = {"class": "transactional", "cause": "ttl", "stage": "queued"}
    return REGISTRY.get_sample_value("sluicegate_expired_total", labels) or 0.0


@pytest.mark.timing
async def test_q16_after_an_outage_no_old_code_is_sent(world: World) -> None:
    """An hour without a carrier: all three thousand expire in the queue, at once, with their callbacks (I16, I17)."""
    now_at = world.clock.now_at()
    created = now_at - OUTAGE_MS
    ids = [uuid7(now_at, os.urandom(10)) for _ in range(BACKLOG)]
    columns = COLUMNS.split()
    rows = [
        (
            day_of(one), one, world.tenants["acme"], "otp", "queued", "+447700900123", "ACME", b"x", "gsm7", 1, "main",
            "carrier-a", created, created + 10_000, created + TTL_MS, created + 10_000, 0, 1,
        )
        for one in ids
    ]  # fmt: skip
    await world.pool.copy_records_to_table("messages", records=rows, columns=columns)
    async with world.pool.acquire() as conn:
        wanted = [Wanted(one.bytes, 0, "carrier-a", "a1") for one in ids]
        assert await claim(conn, wanted[:500], 1, now_at) == []
    began_mono = time.monotonic()
    sweeper = Sweeper(world.runtime())
    while await sweeper.deadlines() == 0.0:
        pass
    took_s = time.monotonic() - began_mono
    ended = await world.pool.fetch(
        "SELECT status, expiry ->> 'cause' AS cause, expiry ->> 'stage' AS stage, count(*) AS n FROM messages"
        " GROUP BY 1, 2, 3"
    )
    assert [tuple(row) for row in ended] == [("expired", "wait_budget", "queued", BACKLOG)]
    assert await world.pool.fetchval("SELECT count(*) FROM callbacks WHERE type = 'message.expired'") == BACKLOG
    assert await world.pool.fetchval("SELECT count(*) FROM attempts WHERE kind = 'submit'") == 0
    assert took_s < 15  # three seconds at a thousand a second, with fivefold slack


async def test_q16_the_boundary_is_exactly_the_deadline(world: World) -> None:
    """At the deadline itself nothing begins; a millisecond before, it may."""
    at = world.clock.now_at() + 60_000
    before, exactly = [await world.message(submit_by=at, expires_at=at, sweep_at=at) for _ in range(2)]
    async with world.pool.acquire() as conn:
        assert await claim(conn, [Wanted(exactly.bytes, 0, "carrier-a", "a1")], 1, at) == []
        won = await claim(conn, [Wanted(before.bytes, 0, "carrier-a", "a1")], 1, at - 1)
    assert [row["id"] for row in won] == [before]


@pytest.mark.timing
async def test_q19_a_limit_holds_on_every_path(world: World, redis_url: str) -> None:
    """One a second per number: a single message, a batch and a retry come through the same limit (I18)."""
    limited = "destinations: {uk: {prefixes: ['+44'], per_number: {rate_per_s: 1, burst: 1}}}\n"
    policy = read_policy(limited + POLICY.format(url="http://127.0.0.1:9/", secret=SECRET, events="[final]"))
    single = [await world.message() for _ in range(2)]
    batch = [await world.message() for _ in range(4)]
    retry = [await world.message(next_slot=1, attempts_spent=1, submit_begun=True) for _ in range(2)]
    async with index_of(redis_url) as (scheduler, _):
        epoch = await scheduler.begin_rebuild()
        assert epoch is not None
        await scheduler.finish_rebuild(epoch)
        await scheduler.tune(tuning_of(policy))
        await scheduler.session_up("carrier-a", "a1")
        for n, some in enumerate(([single[0]], [single[1]], batch, retry)):
            rows = [await world.row(one) for one in some]
            entries = [entry_of(policy, b"p" * 32, "acme", row) for row in rows]
            await scheduler.enqueue(bytes([n]) * 16, entries)
        leased: list[float] = []
        end_mono = time.monotonic() + 4.0
        while time.monotonic() < end_mono:
            answer = await scheduler.lease(LeaseAsk("carrier-a", "a1", 100))
            leased += [time.monotonic()] * len(answer.items)
            await scheduler.ack(answer.lease_id)
            await asyncio.sleep(0.05)
    assert 2 <= len(leased) <= 5
    assert all(later - earlier > 0.75 for earlier, later in itertools.pairwise(leased))
