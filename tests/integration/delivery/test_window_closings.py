"""A queued message whose send window closed before its turn (contract section 3; design section 4)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.domain.message import timeline
from gateway.ledger import queries
from gateway.ledger.claims import Expired, Wanted, claim
from gateway.ledger.window_closings import classes_closed, turn_back
from gateway.policy.rules.parse import read_policy
from tests.integration.delivery.world import POLICY, SECRET, World

HOUR_MS = 3_600_000


def minute(now_at: int, shift_h: int) -> str:
    return (datetime.fromtimestamp(now_at / 1000, UTC) + timedelta(hours=shift_h)).strftime("%H:%M")


def closed_now(world: World) -> Any:
    """A policy whose marketing window to Britain opened two hours ago, closed an hour ago."""
    now_at = world.clock.now_at()
    window = f'from: "{minute(now_at, -2)}", to: "{minute(now_at, -1)}", timezone: UTC'
    destinations = (
        f'destinations: {{britain: {{prefixes: ["+44"], send_window: {{classes: [marketing], {window}}}}},'
        ' jersey: {prefixes: ["+441534"]}}\n'
    )
    return read_policy(destinations + POLICY.format(url="http://127.0.0.1:9/", secret=SECRET, events="[all]"))


@pytest.fixture
async def marketing(world: World) -> dict[str, Any]:
    now_at = world.clock.now_at()
    return {"class": "marketing", "expires_at": now_at + 40 * HOUR_MS, "submit_by": now_at + HOUR_MS}


async def turned(world: World, policy: Any, *ids: Any) -> list[Expired]:
    wanted = [Wanted(one.bytes, 0, "carrier-a", "a1") for one in ids]
    async with world.pool.acquire() as conn, conn.transaction():
        return await turn_back(conn, policy, wanted, world.clock.now_at())


async def test_it_goes_back_to_wait_for_the_next_opening(world: World, marketing: dict[str, Any]) -> None:
    policy = closed_now(world)
    late = await world.message(**marketing)
    code = await world.message(**{"class": "otp"})
    elsewhere = await world.message(recipient="+441534900123", **marketing)
    begun = await world.message(submit_begun=True, attempts_spent=1, **marketing)
    assert classes_closed(policy, world.clock.now_at()) == {"marketing"}
    assert await turned(world, policy, late, code, elsewhere, begun) == []
    row = await world.row(late)
    opening = row["not_before"]
    assert 20 * HOUR_MS < opening - world.clock.now_at() <= 22 * HOUR_MS
    assert (row["status"], row["next_slot"], row["version"]) == ("scheduled", 1, 2)
    assert row["submit_by"] == row["sweep_at"] == opening + 4 * HOUR_MS  # the class's wait budget
    assert row["expires_at"] == marketing["expires_at"]
    retry = await world.row(begun)
    assert (retry["status"], retry["next_slot"], retry["sweep_at"]) == ("queued", 1, retry["expires_at"])
    due = await world.pool.fetch("SELECT id, due_at, kind, class, provider, tenant_id, segments FROM due ORDER BY id")
    waiting = [
        (one, opening, "send_window", "marketing", "carrier-a", world.tenants["acme"], 1) for one in (late, begun)
    ]
    assert [tuple(one) for one in due] == sorted(waiting, key=lambda one: one[0])
    async with world.pool.acquire() as conn:
        wanted = [Wanted(one.bytes, 0, "carrier-a", "a1") for one in (late, code, elsewhere, begun)]
        won = await claim(conn, wanted, 1, world.clock.now_at())
        found = await queries.find(conn, world.tenants["acme"], late)
    assert {row["id"] for row in won} == {code, elsewhere}
    assert found is not None
    events = timeline(found.row, found.history)
    assert [(event["type"], event["cause"]) for event in events] == [("accepted", None), ("deferred", "send_window")]


async def test_what_is_over_before_the_window_opens_expires_at_once(world: World, marketing: dict[str, Any]) -> None:
    policy = closed_now(world)
    short = await world.message(**(marketing | {"expires_at": world.clock.now_at() + 2 * HOUR_MS}))
    assert await turned(world, policy, short) == [Expired("marketing", "send_window", "queued")]
    row = await world.row(short)
    assert (row["status"], row["expiry"]["cause"], row["expiry"]["stage"]) == ("expired", "send_window", "queued")
    assert await world.events(short) == [("message.expired", 2)]
    async with world.pool.acquire() as conn:
        found = await queries.find(conn, world.tenants["acme"], short)
    assert found is not None
    assert [event["type"] for event in timeline(found.row, found.history)] == ["accepted", "expired"]


async def test_who_claimed_first_has_it(world: World, marketing: dict[str, Any]) -> None:
    message = await world.message(**marketing)
    await world.attempt(message)
    assert await turned(world, closed_now(world), message) == []
    row = await world.row(message)
    assert (row["status"], row["next_slot"]) == ("queued", 0)
    assert await world.pool.fetchval("SELECT count(*) FROM due") == 0
