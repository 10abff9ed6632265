"""POST /v1/messages/batch: one key, many messages, one result each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.api import batches
from tests.integration.api.conftest import Gateway, Reply, until

MESSAGE = {"to": "+447700900123", "from": "ACME", "text": "hi", "class": "non_priority"}


async def batch(gateway: Gateway, body: Any, key: str = "b", tenant: str = "acme") -> Reply:
    return await gateway.call("POST", "/v1/messages/batch", tenant, key=key, json=body)


async def test_a_thousand_messages_are_one_call(gateway: Gateway) -> None:
    messages = [{"to": f"+4477009{n:05d}", "text": f"hello {n}"} for n in range(1000)]
    reply = await batch(gateway, {"defaults": {"from": "ACME", "class": "non_priority"}, "messages": messages})
    assert reply.status == 202
    results = reply.json["results"]
    assert [result["message"]["to"] for result in results] == [message["to"] for message in messages]
    assert await gateway.count() == 1000
    assert await gateway.count("idempotency") == 1
    again = await batch(gateway, {"messages": messages, "defaults": {"class": "non_priority", "from": "ACME"}})
    assert again.octets == reply.octets
    assert again.headers["idempotent-replayed"] == "true"
    assert await gateway.count() == 1000

    async def queued() -> bool:
        counts = await gateway.rt.scheduler.counts()
        return counts.get(("simulator", "non_priority")) == 1000 and await gateway.count("outbox") == 0

    await until(queued)


async def test_frames_that_are_wrong(gateway: Gateway) -> None:
    for body, pointer in [
        ({}, "/messages"),
        ({"messages": []}, "/messages"),
        ({"messages": [MESSAGE] * 1001}, "/messages"),
        ({"messages": {}}, "/messages"),
        ({"messages": [MESSAGE], "defaults": []}, "/defaults"),
        ({"messages": [MESSAGE], "to": "x"}, "/to"),
    ]:
        reply = await batch(gateway, body)
        assert (reply.status, reply.code, reply.pointers) == (422, "request.invalid", [pointer])
    assert (
        await gateway.call("POST", "/v1/messages/batch", json={"messages": [MESSAGE]})
    ).code == "idempotency.missing"
    assert await gateway.count("idempotency") == 0


async def test_faults_of_the_defaults_point_at_the_defaults(gateway: Gateway) -> None:
    reply = await batch(
        gateway, {"defaults": {"from": "A" * 12, "text": "hi"}, "messages": [{"to": "+447700900123"}, 5]}
    )
    assert (reply.status, reply.code) == (422, "request.invalid")
    results = reply.json["results"]
    assert [error["pointer"] for error in results[0]["problem"]["errors"]] == ["/defaults/from"]
    assert [error["pointer"] for error in results[1]["problem"]["errors"]] == ["/messages/1"]


async def test_none_accepted_with_one_that_may_be_repeated_is_503(gateway: Gateway) -> None:
    await gateway.rt.scheduler.pause("provider:simulator")
    bad, later = MESSAGE | {"to": "12"}, MESSAGE | {"class": "otp"}
    mixed = await batch(gateway, {"messages": [bad, later]})
    assert (mixed.status, mixed.code) == (503, "batch.refused")
    assert [result["status"] for result in mixed.json["results"]] == [422, 503]
    assert int(mixed.headers["retry-after"]) >= 1
    common = await batch(gateway, {"messages": [later, later]})
    assert (common.status, common.code) == (503, "capacity.class_budget_exceeded")
    assert len(common.json["results"]) == 2
    await gateway.rt.scheduler.resume("provider:simulator")
    taken = await batch(gateway, {"messages": [bad, later]})
    assert (taken.status, [result["status"] for result in taken.json["results"]]) == (202, [422, 202])


async def test_a_batch_costs_as_many_as_it_holds(gateway: Gateway) -> None:
    message = {"to": "+447700900123", "text": "hi"}
    first = await batch(gateway, {"messages": [message] * 3}, "c1", "tight")
    assert first.status == 202
    assert (await batch(gateway, {"messages": [message]}, "c2", "tight")).code == "quota.rate"


async def test_what_a_batch_owes_is_told_in_full(gateway: Gateway) -> None:
    """A batch that is larger than the burst passes and is owed for: Retry-After says until when."""
    batch_of_200 = {"messages": [{"to": "+447700900123", "text": "hi"}] * 200}
    assert (await batch(gateway, batch_of_200, "c1", "tight")).status == 202
    single = await gateway.send(MESSAGE, "tight")
    assert single.code == "quota.rate" and 100 <= int(single.headers["retry-after"]) <= 198


async def test_the_daily_cap_cuts_inside_a_batch(gateway: Gateway) -> None:
    message = {"to": "+447700900123", "text": "hi"}
    reply = await batch(gateway, {"messages": [message] * 7}, "c1", "tight")
    assert reply.status == 202
    assert [result["status"] for result in reply.json["results"]] == [202] * 5 + [429] * 2
    assert reply.json["results"][5]["problem"]["code"] == "quota.daily"


async def test_each_message_of_a_refused_batch_has_a_place_in_the_line(gateway: Gateway) -> None:
    """Twenty that were refused together are twenty seconds of a route that does one: the next one is told so."""
    full = MESSAGE | {"to": "+4915112345678", "class": "otp"}
    for _ in range(20):
        reply = await gateway.send(full)
        if reply.status == 503:
            break
    batch = {"messages": [full] * 20}
    refused = await gateway.call("POST", "/v1/messages/batch", key="line", json=batch)
    assert refused.status == 503
    waits = [one["problem"]["retry_after_s"] for one in refused.json["results"]]
    assert waits[-1] - waits[0] >= 15 and int(refused.headers["retry-after"]) == max(waits)
    again = await gateway.call("POST", "/v1/messages/batch", key="line", json=batch)
    # The measured drain falls from call to call, since no carrier answers: only waits of one call are compared. Behind
    # themselves they would have the places 21 to 40, the last of them not even twice the first.
    waits = [one["problem"]["retry_after_s"] for one in again.json["results"]]
    assert max(waits) > 2.5 * min(waits), "the same call stands in the line twice"


async def test_many_batches_at_once_are_worked_a_chunk_at_a_time(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two turns of the loop at most one chunk: a single message does not wait for all of the batches."""
    worked, longest, real, decide = 0, 0, batches.judge, batches.decide

    def counting(*given: Any) -> Any:
        nonlocal worked
        worked += 1
        return real(*given)

    def counting_too(*given: Any) -> Any:
        nonlocal worked
        worked += 1
        return decide(*given)

    monkeypatch.setattr(batches, "judge", counting)
    monkeypatch.setattr(batches, "decide", counting_too)
    calls = [asyncio.create_task(batch(gateway, {"messages": [MESSAGE] * 200}, key=f"crowd{n}")) for n in range(10)]
    while not all(call.done() for call in calls):
        before = worked
        await asyncio.sleep(0)
        longest = max(longest, worked - before)
    # Each message is judged once and, where the index answered in time (it may not on a starved machine), decided once.
    answers = {call.result().status for call in calls}
    assert 202 in answers and answers <= {202, 503}
    assert 2_000 < worked <= 2 * 2_000 and 0 < longest <= batches.CHUNK
