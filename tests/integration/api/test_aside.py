"""Slow calls of one tenant take neither submits nor other tenants' calls their connections."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.api import aside
from tests.integration.api.conftest import Gateway

MESSAGE = {"to": "+447700900123", "from": "ACME", "text": "hello"}
SLOW = ("/v1/messages?to=%2B447700900123", "/v1/applications", "/v1/inbound", "/v1/usage")


async def test_slow_calls_hold_no_submit_up(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    free = asyncio.Event()

    async def held(*_arguments: Any, **_named: Any) -> Any:
        await free.wait()
        return []

    pool = gateway.rt.pool
    for conn in [await pool.acquire() for _ in range(pool.get_max_size() - 1)]:  # all are made before
        await pool.release(conn)
    await gateway.send(MESSAGE)
    mine = (await gateway.send(MESSAGE, "other")).headers["location"]
    monkeypatch.setattr(aside, "PATIENCE_S", 0.3)
    for place in ("queries.find_page", "inbound.find_page", "usage.count"):
        monkeypatch.setattr(f"gateway.ledger.{place}", held)
    monkeypatch.setattr("gateway.ledger.applications.counts", held)
    calls = [asyncio.create_task(gateway.call("GET", path)) for path in SLOW * 10]
    async with asyncio.timeout(60):  # all but those that have a place give up in the end
        while sum(call.done() for call in calls) < len(calls) / 2:
            await asyncio.sleep(0.05)
    assert [(await gateway.send(MESSAGE)).status for _ in range(5)] == [202] * 5
    assert (await gateway.call("GET", mine, "other")).status == 200
    free.set()
    replies = await asyncio.gather(*calls)
    refused = [reply for reply in replies if reply.status != 200]
    assert {(reply.status, reply.code) for reply in refused} == {(503, "capacity.overload")}
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)
    # Those that had a place, and a few that came last and were still waiting for one.
    assert aside.OF_A_TENANT <= len(replies) - len(refused) <= len(calls) / 2
    assert (await gateway.call("GET", mine, "other")).status == 200
