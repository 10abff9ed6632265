"""Policies with odd numbers, and questions at bad moments: nothing waits for ever, each gets an answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest

from scheduler.core.asks import Ask, LeaseAsk, Verdict
from tests.integration.api.conftest import Gateway, running, until

POLICY = """
classes:
  otp: {wait_budget: 10s, ttl: {default: 2m, max: 10m}, weight: 60, quantum: 1, unconfirmed: resend_once, max_attempts: 3}
  transactional: {wait_budget: 2m, ttl: {default: 1h, max: 24h}, weight: 25, quantum: 4, unconfirmed: hold, max_attempts: 5}
  marketing: {wait_budget: 4h, ttl: {default: 12h, max: 48h}, weight: 10, quantum: 32, when_full: refuse, unconfirmed: fail, max_attempts: 5}
tenant_defaults: {requests: {rate_per_s: 100000, burst: 100000}, limits: {rate_per_s: 100000, burst: 100000}, classes: [otp, transactional, marketing], default_class: marketing}
tenants:
  acme: {default_sender: ACME}
  other: {default_sender: OTHER}
  tight: {default_sender: TIGHT, limits: {rate_per_s: 0.01, burst: 1}}
providers:
  carrier: {sessions: {c1: {host: 127.0.0.1, port: 2775, system_id: a, password: b, bind: transceiver, window: 10}}}
routes:
  main: {match: {prefixes: ["+44"]}, provider: carrier}
"""  # noqa: E501 - lines of YAML
NUMBER = "+447700900123"
TEN_PARTS = "a" * (9 * 153 + 1)


@pytest.fixture
async def gateway(database_url: str, redis_url: str) -> AsyncIterator[Gateway]:
    async with running(database_url, redis_url, POLICY) as made:
        await made.rt.scheduler.session_up("carrier", "c1")
        yield made


async def test_ten_parts_under_one_in_a_hundred_seconds(gateway: Gateway) -> None:
    """A quarter of an hour to leave: a class that has the time takes some, and says when there is room for more."""
    message = {"to": NUMBER, "text": TEN_PARTS}
    replies = [await gateway.send(message, "tight") for _ in range(12)]
    statuses = [reply.status for reply in replies]
    taken = statuses.count(202)
    # The door of a budget of four hours closes at two: seven of a thousand seconds each.
    assert statuses == [202] * taken + [429] * (12 - taken), statuses
    assert 5 <= taken <= 8
    waits = [int(reply.headers["retry-after"]) for reply in replies[taken:]]
    assert waits == sorted(waits) and waits[0] >= 1, waits
    hasty = await gateway.send({"to": NUMBER, "text": "x", "class": "otp"}, "tight")
    assert (hasty.status, hasty.json["scope"]) == (429, {"kind": "tenant", "name": "tight"})
    assert (await gateway.send({"to": NUMBER, "text": "x", "class": "otp"}, "other")).status == 202
    leased = await gateway.rt.scheduler.lease(LeaseAsk("carrier", "c1", 100))
    assert [item.class_name for item in leased.items] == ["otp"], "the others pass it by"


async def test_questions_while_the_queue_says_nothing(gateway: Gateway) -> None:
    message_id = (await gateway.send({"to": NUMBER, "text": "x"})).json["id"]
    await gateway.rt.redis.execute_command("CLIENT", "PAUSE", "4000", "ALL")
    why = await gateway.call("GET", f"/v1/messages/{message_id}/explain")
    assert (why.status, why.json["waiting_for"]["scope"], why.json["position"]) == (200, "paused", None)
    assert (await gateway.call("GET", "/v1/capacity")).code == "capacity.storage"
    assert (await gateway.call("GET", f"/v1/messages/{message_id}")).status == 200


async def test_a_thousand_flows_of_one_tenant_hold_nobody_up(gateway: Gateway) -> None:
    for at in range(0, 1_000, 500):
        messages = [{"to": NUMBER, "text": "x", "application": f"app-{n}"} for n in range(at, at + 500)]
        reply = await gateway.call("POST", "/v1/messages/batch", key=f"b{at}", json={"messages": messages})
        assert Counter(one["status"] for one in reply.json["results"]) == {202: 500}
    code = await gateway.send({"to": NUMBER, "text": "x", "class": "otp"}, "other")
    assert code.status == 202 and code.json["predicted_wait_ms"] < 5_000
    leased = await gateway.rt.scheduler.lease(LeaseAsk("carrier", "c1", 200))
    assert Counter(item.class_name for item in leased.items) == {"otp": 1, "marketing": 199}


async def test_who_asks_for_a_large_capacity_all_the_time_asks_the_index_now_and_then(
    database_url: str, redis_url: str
) -> None:
    """Sixty routes and three classes: a question over 180 rows, by ten clients at once."""
    routes = "".join(f"  r{n}: {{match: {{prefixes: ['+44{n}']}}, provider: carrier}}\n" for n in range(100, 160))
    async with running(database_url, redis_url, POLICY + routes) as gateway:
        asked = []
        admit = gateway.rt.scheduler.admit

        async def counted(asks: Sequence[Ask]) -> list[Verdict]:
            asked.append(len(asks))
            return await admit(asks)

        gateway.rt.scheduler.admit = counted  # type: ignore[method-assign]
        replies = await asyncio.gather(*(gateway.call("GET", "/v1/capacity") for _ in range(10)))
        assert {len(reply.json["data"]) for reply in replies} == {183}
        assert sum(asked) < 10 * 183, "each asked for itself"
        await gateway.rt.scheduler.pause("provider:carrier", gateway.rt.clock.now_at() + 3_600_000)

        async def paused() -> bool:
            rows = (await gateway.call("GET", "/v1/capacity")).json["data"]
            return {row["verdict"] for row in rows if row["class"] == "otp"} == {"refuse"}

        await until(paused)
