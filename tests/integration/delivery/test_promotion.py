"""From the due table into the queue, the outbox, the rebuild and the drift check (design sections 2 and 3; I11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis.asyncio

from gateway.delivery.drift import DriftCheck, drift_of
from gateway.delivery.due_book import DueBook
from gateway.delivery.gauges import Gauges
from gateway.delivery.outbox import sweep_outbox
from gateway.delivery.promoter import Promoter
from gateway.delivery.rebuild import Rebuilder
from gateway.delivery.sweeps import Sweeper
from gateway.ledger.promotions import promote_due
from gateway.ledger.rebuild import LineCounts, rebuilder
from gateway.policy.rules.parse import read_policy
from gateway.policy.rules.tuning import tuning_of
from gateway.telemetry import REGISTRY
from scheduler.core.asks import LeaseAsk
from scheduler.core.records import Entry, Flow, Reference, unpack_batch
from scheduler.store.scheduler import Scheduler
from tests.integration.delivery.world import World, index_of

LINE = ("carrier-a", "transactional")
CARRIER = """
providers: {carrier-a: {sessions: {a1: {host: h, port: 1, system_id: a, password: b, bind: transceiver, window: 10}}}}
routes: {main: {match: {}, provider: carrier-a}}
"""


class Gateway:
    """A ledger, an index that was never filled, and the runtime over both."""

    def __init__(self, world: World, scheduler: Scheduler, client: redis.asyncio.Redis) -> None:
        self.world = world
        self.scheduler = scheduler
        self.client = client
        self.rt: Any = world.runtime(scheduler)
        self.rebuilder = Rebuilder(self.rt)

    async def due(self, message: Any, kind: str = "retry", due_in_ms: int = 0) -> None:
        await self.world.pool.execute(
            "INSERT INTO due SELECT day, id, $2, $3 FROM messages WHERE id = $1",
            message, self.world.clock.now_at() + due_in_ms, kind,
        )  # fmt: skip

    async def leased(self, want: int = 100) -> list[bytes]:
        """Ids of what a session of the carrier gets now."""
        await self.scheduler.session_up("carrier-a", "a1")
        await asyncio.sleep(1.2)  # buckets begin empty and fill by the server's clock
        leased = await self.scheduler.lease(LeaseAsk("carrier-a", "a1", want))
        return [item.reference.id for item in leased.items]


@pytest.fixture
async def gateway(world: World, redis_url: str) -> AsyncIterator[Gateway]:
    async with index_of(redis_url) as (scheduler, client):
        yield Gateway(world, scheduler, client)


async def test_an_index_that_was_never_filled_is_rebuilt_from_the_ledger(gateway: Gateway) -> None:
    world = gateway.world
    waiting = await world.message()
    code = await world.message(**{"class": "otp"})
    claimed = await world.message()
    await world.attempt(claimed)
    later = await world.message()
    await gateway.due(later, due_in_ms=60_000)
    await world.message(status="scheduled")
    await world.sent()
    assert await gateway.scheduler.epoch_state() == "lost"
    await gateway.rebuilder.turn()
    assert await gateway.scheduler.epoch_state() == "ready"
    assert await gateway.scheduler.counts() == {LINE: 1, ("carrier-a", "otp"): 1}
    assert set(await gateway.leased()) == {waiting.bytes, code.bytes}


async def test_flushall_is_noticed_and_repaired(gateway: Gateway) -> None:
    """P2: whatever Redis held may vanish; nothing is lost."""
    for _ in range(30):
        await gateway.world.message()
    await gateway.rebuilder.turn()
    await gateway.client.flushall()
    assert await gateway.scheduler.epoch_state() == "lost"
    await gateway.rebuilder.turn()
    assert await gateway.scheduler.counts() == {LINE: 30}


async def test_two_rebuilders_make_one_rebuild(gateway: Gateway) -> None:
    await gateway.world.message()
    other = Rebuilder(gateway.world.runtime(Scheduler(gateway.client)))
    done = await asyncio.gather(gateway.rebuilder.rebuild(), other.rebuild())
    assert sorted(done) == [False, True]
    assert await gateway.scheduler.counts() == {LINE: 1}


async def test_what_is_due_goes_into_the_queue_by_the_outbox(gateway: Gateway) -> None:
    world = gateway.world
    await gateway.rebuilder.turn()
    scheduled = await world.message(status="scheduled", not_before=world.clock.now_at() - 5)
    retry = await world.message(next_slot=1, attempts_spent=1, submit_begun=True)
    future = await world.message(next_slot=1)
    await gateway.due(scheduled, "send_at")
    await gateway.due(retry)
    await gateway.due(future, due_in_ms=60_000)
    await Promoter(gateway.rt).turn()
    row = await world.row(scheduled)
    assert (row["status"], row["version"], row["sweep_at"]) == ("queued", 2, row["submit_by"])
    assert (await world.row(retry))["version"] == 1
    events = await world.pool.fetch("SELECT id, type, cause FROM message_events")
    assert [tuple(event) for event in events] == [(scheduled, "released", "send_at")]
    assert await world.pool.fetch("SELECT id FROM due") == [(future,)]
    assert await world.pool.fetchval("SELECT count(*) FROM outbox") == 0
    assert set(await gateway.leased()) == {scheduled.bytes, retry.bytes}


async def test_due_rows_of_what_ended_go_and_those_out_of_time_stay_for_the_sweep(gateway: Gateway) -> None:
    world = gateway.world
    canceled = await world.message(status="canceled", sweep_at=None)
    over = await world.message(status="scheduled", submit_by=world.clock.now_at() - 1)
    await gateway.due(canceled)
    await gateway.due(over, "send_at")
    async with world.pool.acquire() as conn:
        promoted = await promote_due(conn, world.policy, b"p" * 32, world.clock.now_at())
    assert promoted.entries == () and promoted.outbox_id is None
    assert await world.pool.fetch("SELECT id FROM due") == [(over,)]
    assert await world.status(over) == "scheduled"


async def test_an_outbox_row_that_was_left_is_repeated_once_the_index_is_back(gateway: Gateway) -> None:
    world = gateway.world
    message = await world.message(next_slot=1)
    await gateway.due(message)
    await Promoter(gateway.rt).turn()
    payload = await world.pool.fetchval("SELECT payload FROM outbox")
    assert [entry.reference.id for entry in unpack_batch(payload)] == [message.bytes]
    later = world.clock.now_at() + 3_000
    async with world.pool.acquire() as conn:
        await sweep_outbox(gateway.rt, conn, world.clock.now_at())
        await sweep_outbox(gateway.rt, conn, later)
        kept = await conn.fetchrow("DELETE FROM outbox RETURNING *")
        await world.pool.execute("UPDATE messages SET status = 'canceled' WHERE id = $1", message)
        await gateway.rebuilder.turn()
        await conn.execute("INSERT INTO outbox VALUES ($1, $2, $3)", *kept)
        await sweep_outbox(gateway.rt, conn, later)
        assert await conn.fetchval("SELECT count(*) FROM outbox") == 0
    assert await gateway.scheduler.counts() == {LINE: 1}


async def test_a_rebuild_covers_what_stood_in_the_outbox(gateway: Gateway) -> None:
    world = gateway.world
    await gateway.due(await world.message(next_slot=1))
    await Promoter(gateway.rt).turn()
    assert await world.pool.fetchval("SELECT count(*) FROM outbox") == 1
    await gateway.rebuilder.turn()
    assert await world.pool.fetchval("SELECT count(*) FROM outbox") == 0
    assert await gateway.scheduler.counts() == {LINE: 1}


async def test_an_outbox_row_that_cannot_be_read_blocks_no_other(gateway: Gateway) -> None:
    world = gateway.world
    await gateway.rebuilder.turn()
    await world.pool.execute("INSERT INTO outbox VALUES (gen_random_uuid(), 0, 'junk')")
    async with world.pool.acquire() as conn:
        await sweep_outbox(gateway.rt, conn, world.clock.now_at())
        assert await conn.fetchval("SELECT count(*) FROM outbox") == 0


async def test_a_line_that_drifted_in_two_looks_is_rebuilt_alone(gateway: Gateway) -> None:
    """I11: a queued row absent from Redis is indexed again."""
    world = gateway.world
    await gateway.rebuilder.turn()
    check = DriftCheck(gateway.rt, gateway.rebuilder)
    await check.turn()
    message = await world.message()
    await world.message(**{"class": "otp"}, status="sent")
    await check.turn()
    assert await gateway.scheduler.counts() == {}
    assert REGISTRY.get_sample_value("sluicegate_index_drift", {"line": "carrier-a/transactional"}) == 1
    await check.turn()
    assert await gateway.scheduler.counts() == {LINE: 1}
    assert await gateway.leased() == [message.bytes]


@pytest.mark.parametrize(
    "limit",
    [
        "tenants: {acme: {limits: {rate_per_s: 0.01, burst: 1}}}",
        "tenants: {acme: {limits: null, senders: {ACME: {limits: {rate_per_s: 0.01, burst: 1}}}}}",
        "tenants: {acme: {limits: null}}\n"
        "destinations: {all: {prefixes: ['+4', '+3'], limits: {rate_per_s: 0.01, burst: 1}}}",
    ],
    ids=["tenant", "sender", "destination"],
)
async def test_a_limit_where_there_was_none_holds_what_waits_already(gateway: Gateway, limit: str) -> None:
    """Design section 3: a policy version that brings a limit to a new scope re-keys the lines that it touches."""
    gateway.rt.policies.current = read_policy(CARRIER + "tenants: {acme: {limits: null}}", 1)
    messages = {(await gateway.world.message(sender="ACME")).bytes for _ in range(5)}
    await gateway.rebuilder.turn()
    assert await gateway.scheduler.counts() == {LINE: 5}
    gateway.rt.policies.current = read_policy(CARRIER + limit, 2)
    await gateway.rebuilder.turn()
    assert await gateway.scheduler.counts() == {LINE: 5}
    assert await gateway.leased() == [], "a bucket that nobody knew is empty"
    gateway.rt.policies.current = read_policy(CARRIER + "tenants: {acme: {limits: null}}", 3)
    await gateway.rebuilder.turn()
    assert set(await gateway.leased()) == messages


async def test_a_limit_that_came_while_delivery_was_away_holds_what_waits_already(gateway: Gateway) -> None:
    """A policy that changes while no delivery process runs, or one that ends over it: the next one moves what waits."""
    gateway.rt.policies.current = read_policy(CARRIER + "tenants: {acme: {limits: null}}", 1)
    for _ in range(3):
        await gateway.world.message(sender="ACME")
    await gateway.rebuilder.turn()
    limited = CARRIER + "tenants: {acme: {limits: {rate_per_s: 0.01, burst: 1}}}"
    gateway.rt.policies.current = read_policy(limited, 2)
    heir = Rebuilder(gateway.rt)
    await heir.turn()
    assert await gateway.scheduler.counts() == {LINE: 3}
    assert await gateway.leased() == []
    gateway.rt.policies.current = read_policy(limited.replace("0.01", "50"), 3)
    await heir.turn()
    assert len(await gateway.leased()) == 1, "looked at again at the new rate"


async def test_lines_are_moved_again_where_another_process_was_rebuilding(gateway: Gateway) -> None:
    gateway.rt.policies.current = read_policy(CARRIER + "tenants: {acme: {limits: null}}", 1)
    await gateway.world.message(sender="ACME")
    await gateway.rebuilder.turn()
    gateway.rt.policies.current = read_policy(CARRIER + "tenants: {acme: {limits: {rate_per_s: 0.01, burst: 1}}}", 2)
    async with gateway.world.pool.acquire() as other, rebuilder(other) as won:
        assert won
        await gateway.rebuilder.turn()
    await gateway.rebuilder.turn()
    assert await gateway.leased() == []


async def test_references_without_a_row_go_with_the_rebuild_of_their_line(gateway: Gateway) -> None:
    world = gateway.world
    message = await world.message()
    await gateway.rebuilder.turn()
    await world.pool.execute("UPDATE messages SET status = 'canceled' WHERE id = $1", message)
    check = DriftCheck(gateway.rt, gateway.rebuilder)
    await check.turn()
    await check.turn()
    assert (await gateway.scheduler.counts()).get(LINE, 0) == 0


async def test_gauges_of_queues_receipts_callbacks_and_ages(gateway: Gateway) -> None:
    world = gateway.world
    await world.message(created_at=world.clock.now_at() - 5_000)
    await world.receipt("delivered", "NEVER", received_at=world.clock.now_at() - 7_000)
    await gateway.rebuilder.turn()
    gauges = Gauges(gateway.rt)
    for look in (gauges.queues, gauges.lines, gauges.ages, gauges.coverage):
        assert await look() > 0
    labels = {"class": "transactional", "provider": "carrier-a"}
    assert REGISTRY.get_sample_value("sluicegate_queue_depth", labels) == 1
    assert REGISTRY.get_sample_value("sluicegate_receipt_inbox_depth") == 1
    assert 6.5 < REGISTRY.get_sample_value("sluicegate_receipt_inbox_oldest_seconds") < 60  # type: ignore[operator]
    oldest = REGISTRY.get_sample_value("sluicegate_messages_oldest_seconds", {"status": "queued"})
    assert oldest is not None and 4.5 < oldest < 60


def test_the_allowance_of_the_drift_check() -> None:
    ledger = LineCounts({LINE: 10}, {LINE: 3}, 0)
    assert drift_of(LINE, ledger, {LINE: 10}, {LINE: 10}) == 0
    assert drift_of(LINE, ledger, {LINE: 13}, {LINE: 13}) == 0
    assert drift_of(LINE, ledger, {LINE: 14}, {LINE: 14}) == -4
    assert drift_of(LINE, ledger, {LINE: 5}, {LINE: 6}) == 0
    assert drift_of(LINE, ledger, {LINE: 4}, {LINE: 5}) == 5
    assert drift_of(LINE, LineCounts({LINE: 10}, {}, 1), {}, {}) == 0


async def _fill_lane(gateway: Gateway, count: int, **values: Any) -> list[Any]:
    """Scheduled messages of a tenant that fall due together."""
    now_at = gateway.world.clock.now_at()
    made = [await gateway.world.message(status="scheduled", not_before=now_at - 1000, **values) for _ in range(count)]
    await gateway.world.pool.execute(
        "INSERT INTO due SELECT day, id, $2, 'send_at', class, provider, tenant_id, 'flow-' || tenant_id, segments"
        " FROM messages WHERE id = ANY ($1)",
        made, now_at - 1000,
    )  # fmt: skip
    return made


async def test_nine_o_clock_is_released_paced_and_delays_nobody_else(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line takes its pace's worth a round, tenants in turn; one-time passwords and retries are all in the first."""
    world = gateway.world
    await gateway.rebuilder.turn()
    flood = await _fill_lane(gateway, 150, **{"class": "marketing"})
    other = await _fill_lane(gateway, 5, tenant="beta", **{"class": "marketing"})
    codes = await _fill_lane(gateway, 30, **{"class": "otp"})
    retries = [await world.message(next_slot=1, attempts_spent=1, submit_begun=True) for _ in range(30)]
    await world.pool.execute(
        "INSERT INTO due SELECT day, id, $2, 'retry', class, provider, tenant_id, 'f', 1"
        " FROM messages WHERE id = ANY ($1)",
        retries, world.clock.now_at() - 10,
    )  # fmt: skip
    book = DueBook(gateway.rt)
    await book.turn()
    promoter = Promoter(gateway.rt, book)
    assert await promoter.turn() == pytest.approx(0.1)
    left = {row["id"] for row in await world.pool.fetch("SELECT id FROM due")}
    assert not left & {*codes, *retries, *other}
    assert len(left & set(flood)) == 150 - 20  # 40 a round at 100/s, half of it each tenant's
    assert await promoter.turn() == pytest.approx(0.1)
    left = {row["id"] for row in await world.pool.fetch("SELECT id FROM due")}
    assert len(left) == 150 - 20 - 40
    ((_, buckets),) = [pair for pair in book._works.items() if pair[0] == f"flow-{world.tenants['acme']}"]
    assert sum(messages for messages, _ in buckets.values()) == len(left)  # what was released is taken off


async def test_the_index_is_told_what_falls_due(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[Any, bool]] = []

    async def due_work(works: Any, complete: bool) -> None:
        told.append((works, complete))

    monkeypatch.setattr(gateway.scheduler, "due_work", due_work)
    await _fill_lane(gateway, 3, segments=2)
    book = DueBook(gateway.rt)
    await book.turn()
    flow = f"flow-{gateway.world.tenants['acme']}"
    (works, complete) = told[0]
    assert complete and [(messages, segments) for _, messages, segments in works[flow]] == [(3, 6)]
    book.released([(flow, works[flow][0][0], 2)])
    await book.turn()
    assert told[1][1] is False and [tuple(one[1:]) for one in told[1][0][flow]] == [(2, 4)]
    await book.turn()
    assert len(told) == 2  # nothing changed, nothing is told


async def test_what_ended_leaves_the_index_where_no_session_comes_by(gateway: Gateway) -> None:
    epoch = await gateway.scheduler.begin_rebuild()
    assert epoch is not None
    await gateway.scheduler.finish_rebuild(epoch)
    await gateway.scheduler.tune(tuning_of(gateway.rt.policies.current))
    now_at = gateway.world.clock.now_at()
    way = Flow("carrier-a", "transactional", "acme", (), 1)
    references = [Reference(bytes([n] * 16), 0, 1, now_at + (60_000 if n else -1), now_at - 60_000) for n in range(3)]
    await gateway.scheduler.enqueue(b"batch", [Entry(way, one) for one in references])
    await gateway.scheduler.tombstone([references[1].id], 60_000)
    sweeper = Sweeper(gateway.rt)
    assert await sweeper.ended_in_index() > 0
    assert (await gateway.scheduler.counts())[LINE] == 1
    gateway.world.clock.doubtful = True
    await gateway.scheduler.tombstone([references[2].id], 60_000)
    await sweeper.ended_in_index()
    assert (await gateway.scheduler.counts())[LINE] == 1
