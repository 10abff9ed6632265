"""Each scope and each cause of a refusal, live over HTTP: what binds is named, and nothing else is closed by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from scheduler.core.asks import LeaseAsk, Outcomes
from scheduler.store.scheduler import Scheduler
from tests.integration.api.conftest import Gateway, Reply, running

SLOW = "{rate_per_s: 0.05, burst: 1}"
POLICY = """
classes:
  otp: {wait_budget: 4s, ttl: {default: 2m, max: 10m}, weight: 60, quantum: 1, unconfirmed: resend_once, max_attempts: 3}
  transactional: {wait_budget: 2m, ttl: {default: 1h, max: 24h}, weight: 25, quantum: 4, unconfirmed: hold, max_attempts: 5}
  marketing: {wait_budget: 4h, ttl: {default: 12h, max: 48h}, weight: 10, quantum: 32, when_full: defer, unconfirmed: fail, max_attempts: 5}
tenant_defaults: {limits: {rate_per_s: 1000, burst: 1000}, requests: {rate_per_s: 10000, burst: 10000}, classes: [otp, transactional, marketing], default_class: otp}
tenants:
  acme: {default_sender: ACME, senders: {ACME: {}, SLOWSENDER: {limits: SLOW}}, applications: {sale: {limits: SLOW}}}
  other: {default_sender: OTHER}
  tight: {default_sender: TIGHT, limits: SLOW}
destinations:
  italy: {prefixes: ["+39"], limits: SLOW}
  france: {prefixes: ["+33"], per_number: SLOW}
providers:
  wide: {sessions: {w1: {host: 127.0.0.1, port: 2775, system_id: a, password: b, bind: transceiver, window: 10}}}
  narrow: {limits: SLOW, sessions: {n1: {host: 127.0.0.1, port: 2776, system_id: a, password: b, bind: transceiver, window: 10}}}
  tied: {sessions: {t1: {host: 127.0.0.1, port: 2777, system_id: a, password: b, bind: transceiver, window: 10, limits: SLOW}}}
routes:
  all: {match: {prefixes: ["+44", "+39", "+33"]}, provider: wide}
  slow-road: {match: {prefixes: ["+49"]}, provider: wide, limits: SLOW}
  to-narrow: {match: {prefixes: ["+34"]}, provider: narrow}
  to-tied: {match: {prefixes: ["+351"]}, provider: tied}
""".replace("limits: SLOW", f"limits: {SLOW}").replace("per_number: SLOW", f"per_number: {SLOW}")  # noqa: E501 - YAML
FREE = "+447700900123"
SESSIONS = (("wide", "w1"), ("narrow", "n1"), ("tied", "t1"))


@pytest.fixture
async def gateway(database_url: str, redis_url: str) -> AsyncIterator[Gateway]:
    async with running(database_url, redis_url, POLICY) as made:
        for provider, session in SESSIONS:
            await made.rt.scheduler.session_up(provider, session)
        yield made


async def refused(gateway: Gateway, message: dict[str, Any], tenant: str = "acme") -> Reply:
    """The first refusal: a bucket that still held something lets a message in first."""
    for _ in range(3):
        reply = await gateway.send({"text": "hi", **message}, tenant)
        if reply.status != 202:
            return reply
    raise AssertionError("never refused")


def told(reply: Reply, code: str, scope: tuple[str, str], cause: str) -> None:
    problem = reply.json
    assert (problem["code"], problem["cause"]) == (code, cause), problem
    assert problem["scope"] == {"kind": scope[0], "name": scope[1]}, problem
    assert problem["class"] == "otp" and problem["wait_budget_ms"] == 4_000 and problem["door_limit_ms"] == 2_000
    assert problem["retry_after_s"] == int(reply.headers["retry-after"]) >= 1
    assert isinstance(problem["queue_age_ms"], int) and isinstance(problem["predicted_wait_ms"], int)
    if cause == "wait":
        assert problem["predicted_wait_ms"] > problem["door_limit_ms"]
    if cause == "age":
        assert problem["queue_age_ms"] > problem["door_limit_ms"]


@pytest.mark.parametrize(
    ("message", "tenant", "status", "scope"),
    [
        ({"to": FREE}, "tight", 429, ("tenant", "tight")),
        ({"to": FREE, "application": "sale"}, "acme", 429, ("application", "sale")),
        ({"to": FREE, "from": "SLOWSENDER"}, "acme", 503, ("sender", "SLOWSENDER")),
        ({"to": "+393331234567"}, "acme", 503, ("destination", "italy")),
        ({"to": "+33612345678"}, "acme", 503, ("number", "france")),
        ({"to": "+4915112345678"}, "acme", 503, ("route", "slow-road")),
        ({"to": "+34612345678"}, "acme", 503, ("provider", "narrow")),
        ({"to": "+351912345678"}, "acme", 503, ("session", "t1")),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
async def test_a_limit_that_is_too_slow_binds_alone(
    gateway: Gateway, message: dict[str, str], tenant: str, status: int, scope: tuple[str, str]
) -> None:
    reply = await refused(gateway, message, tenant)
    assert reply.status == status
    told(reply, "quota.backlog" if status == 429 else "capacity.class_budget_exceeded", scope, "wait")
    assert (await gateway.send({"text": "hi", "to": FREE}, "other")).status == 202, "others are not closed by it"


async def test_what_is_paused_by_hand_says_so(gateway: Gateway) -> None:
    for to, scope in (("+4915112345678", ("route", "slow-road")), ("+34612345678", ("provider", "narrow"))):
        await gateway.rt.scheduler.pause(":".join(scope))
        reply = await gateway.send({"text": "hi", "to": to})
        assert reply.status == 503
        told(reply, "capacity.class_budget_exceeded", scope, "paused")
    assert (await gateway.send({"text": "hi", "to": FREE})).status == 202


async def test_the_next_candidate_is_asked_before_anything_is_refused(gateway: Gateway) -> None:
    policy = POLICY.replace('all: {match: {prefixes: ["+44", "+39", "+33"]}', "all: {match: {}")
    await gateway.rt.applier.apply(policy, "test")
    routes = {(await gateway.send({"text": "hi", "to": "+4915112345678"})).json["route"] for _ in range(4)}
    assert "all" in routes, "the slow road's own limit refuses nobody while another road is free"


async def test_a_link_that_is_down_is_a_pause_of_its_provider(gateway: Gateway) -> None:
    await gateway.rt.scheduler.session_down("wide", "w1")

    async def closed() -> Reply | None:
        reply = await gateway.send({"text": "hi", "to": FREE})
        return reply if reply.status == 503 and reply.json["cause"] == "paused" else None

    async with asyncio.timeout(60):
        while (reply := await closed()) is None:
            await asyncio.sleep(0.2)
    told(reply, "capacity.class_budget_exceeded", ("provider", "wide"), "paused")
    await gateway.rt.scheduler.session_up("wide", "w1")
    scheduler = gateway.rt.scheduler
    async with asyncio.timeout(60):
        while (await gateway.send({"text": "hi", "to": FREE}, "other")).status != 202:
            leased = await scheduler.lease(LeaseAsk("wide", "w1", 50))
            await scheduler.ack(leased.lease_id)
            await scheduler.answered("wide", len(leased.items), "otp")
            await asyncio.sleep(0.1)


async def test_a_breaker_that_is_open_is_a_pause_too(gateway: Gateway) -> None:
    """Of the only session that is left, then of its whole provider, of which another session had done well."""
    scheduler = gateway.rt.scheduler
    await scheduler.session_up("wide", "w2")
    await scheduler.report_outcomes("wide", "w2", Outcomes(good=100, round_trip_ms=50, rate_per_s=100))
    await scheduler.session_down("wide", "w2")
    for errors, scope in ((30, ("session", "w1")), (200, ("provider", "wide"))):
        await scheduler.report_outcomes("wide", "w1", Outcomes(errors=errors, round_trip_ms=50, rate_per_s=100))
        reply = await gateway.send({"text": "hi", "to": FREE})
        told(reply, "capacity.class_budget_exceeded", scope, "paused")


async def test_what_waits_too_long_closes_its_class_by_age(gateway: Gateway) -> None:
    """First nothing of a class passes while others do and answers still come; then nothing at all: a silent carrier."""
    scheduler = gateway.rt.scheduler
    assert (await gateway.send({"text": "hi", "to": FREE})).status == 202
    reply: Reply | None = None
    async with asyncio.timeout(60):
        while reply is None or reply.status == 202 or reply.json["scope"]["kind"] != "class":
            # A class with a longer budget is not closed by it.
            assert (await gateway.send({"text": "hi", "to": FREE, "class": "transactional"})).status == 202
            await drained(scheduler, LeaseAsk("wide", "w1", 10, without=frozenset({"otp"})), "transactional")
            await scheduler.answered("wide", 20, "otp")
            reply = await gateway.send({"text": "hi", "to": FREE})
            await asyncio.sleep(0.1)
    told(reply, "capacity.class_budget_exceeded", ("class", "otp"), "age")
    assert reply.status == 503
    async with asyncio.timeout(60):
        while reply.status == 202 or reply.json["scope"]["kind"] != "provider":
            await asyncio.sleep(0.1)
            reply = await gateway.send({"text": "hi", "to": FREE})
    assert reply.json["cause"] == "age" and reply.json["scope"] == {"kind": "provider", "name": "wide"}


async def drained(scheduler: Scheduler, ask: LeaseAsk, class_name: str) -> None:
    """A session takes what it is given, and the carrier answers at once."""
    leased = await scheduler.lease(ask)
    if leased.items:
        await scheduler.ack(leased.lease_id)
        await scheduler.answered(ask.provider, len(leased.items), class_name)


async def test_more_than_a_class_can_drain_is_refused_by_class(gateway: Gateway) -> None:
    """Nothing limits but what the carrier was seen to take: one of the four messages of each round."""
    refusal: Reply | None = None
    async with asyncio.timeout(60):
        while refusal is None:
            for _ in range(4):
                reply = await gateway.send({"text": "hi", "to": FREE})
                if reply.status != 202 and (reply.json["cause"], reply.json["scope"]["kind"]) == ("wait", "class"):
                    refusal = reply
            await drained(gateway.rt.scheduler, LeaseAsk("wide", "w1", 1), "otp")
            await asyncio.sleep(0.1)
    assert refusal.status == 503
    told(refusal, "capacity.class_budget_exceeded", ("class", "otp"), "wait")


async def test_a_class_that_is_being_rebuilt_is_storage(gateway: Gateway) -> None:
    await gateway.rt.redis.flushall()
    reply = await gateway.send({"text": "hi", "to": FREE})
    assert (reply.status, reply.code) == (503, "capacity.storage")
    assert int(reply.headers["retry-after"]) >= 1


async def test_refusals_leave_no_trace(gateway: Gateway) -> None:
    await refused(gateway, {"to": "+393331234567"})
    rows = [await gateway.count(table) for table in ("messages", "idempotency", "outbox")]
    again = [await gateway.send({"text": "hi", "to": "+393331234567"}, key="same") for _ in range(3)]
    assert {one.status for one in again} == {503}
    assert [await gateway.count(table) for table in ("messages", "idempotency", "outbox")] == rows


async def test_a_full_class_that_defers_takes_it_in_for_later(gateway: Gateway) -> None:
    for _ in range(3):
        reply = await gateway.send({"text": "hi", "to": "+393331234567", "class": "marketing", "ttl": 40})
        if reply.status == 202 and reply.json["status"] == "scheduled":
            break
    assert reply.status in (202, 503)
    if reply.status == 202:
        assert reply.json["not_before"] is not None
