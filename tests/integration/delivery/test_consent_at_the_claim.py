"""The last check before a submit: stop lists and consent, exact at the claim, one slot for one decision."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from gateway.domain.suppression import refusal, rules_of, suppress
from gateway.ledger import consents
from gateway.ledger.claims import PLANNER_SETTINGS, Wanted, claim
from gateway.ledger.outcomes import standing_of
from gateway.ledger.suppression import suppress_refused
from tests.integration.delivery.world import World

HANDSET = "+447700900123"


async def list_number(world: World, table: str, sender: str = "", tenant: str = "acme") -> None:
    async with world.pool.acquire() as conn:
        await consents.add(conn, table, world.tenants[tenant], [(HANDSET, sender)], ("api", 1))


async def claimed(world: World, *ids: UUID, slot: int = 0) -> set[UUID]:
    """What of these a session wins; the rest is closed as the claimer does."""
    wanted = [Wanted(one.bytes, slot, "carrier-a", "a1") for one in ids]
    now_at = world.clock.now_at()
    async with world.pool.acquire() as conn, conn.transaction():
        await conn.execute(PLANNER_SETTINGS.replace("SET ", "SET LOCAL "))
        rows = await claim(conn, wanted, 1, now_at, rules_of(world.policy))
        await suppress_refused(conn, world.policy, wanted, 1, now_at)
    return {row["id"] for row in rows}


def with_consent(world: World, **consent: str | None) -> None:
    classes = {name: replace(one, consent=consent.get(name, one.consent)) for name, one in world.policy.classes.items()}
    world.policy = replace(world.policy, classes=classes)


@pytest.mark.parametrize(
    ("listed", "sender", "stopped"),
    [
        ("", "ACME", True),
        ("", "+393330000001", True),
        ("+393330000001", "+393330000001", True),
        ("+393330000001", "393330000001", True),
        ("+393330000001", "ACME", True),  # nobody can answer a name: the number's stop covers it
        ("+393330000001", "60070", False),
        ("ACME", "ACME", True),
        ("ACME", "BETA", False),
        ("ACME", "60070", False),
    ],
)
async def test_which_senders_a_stop_covers(world: World, listed: str, sender: str, stopped: bool) -> None:
    await list_number(world, "opt_outs", listed)
    message = await world.message(**{"class": "marketing", "sender": sender})
    assert (await claimed(world, message) == set()) is stopped
    assert await world.status(message) == ("suppressed" if stopped else "queued")


async def test_a_suppressed_message_is_final_told_and_never_claimed(world: World) -> None:
    await list_number(world, "opt_outs")
    message = await world.message(**{"class": "marketing"})
    other = await world.message(**{"class": "marketing", "recipient": "+447700900999"})
    assert await claimed(world, message, other) == {other}
    row = await world.row(message)
    assert (row["status"], row["error"], row["sweep_at"]) == (
        "suppressed",
        {"code": "opted_out", "permanent": True},
        None,
    )
    assert row["final_at"] is not None and await world.events(message) == [("message.suppressed", row["version"])]
    attempt = await world.pool.fetchrow("SELECT kind, outcome FROM attempts WHERE id = $1", message)
    assert tuple(attempt) == ("suppress", "closed")
    await world.pool.execute("DELETE FROM opt_outs")
    assert await claimed(world, message) == set()


async def test_classes_without_consent_heed_no_list(world: World) -> None:
    await list_number(world, "opt_outs")
    for name in ("otp", "transactional"):
        message = await world.message(**{"class": name})
        assert await claimed(world, message) == {message}
    with_consent(world, transactional="opt_out")
    message = await world.message(**{"class": "transactional"})
    assert await claimed(world, message) == set()


async def test_opt_in_needs_an_entry_and_heeds_the_stop_list(world: World) -> None:
    with_consent(world, marketing="opt_in")
    first, second, third = [await world.message(**{"class": "marketing"}) for _ in range(3)]
    assert await claimed(world, first) == set()
    assert (await world.row(first))["error"]["code"] == "no_consent"
    await list_number(world, "opt_ins", "60070")
    assert await claimed(world, second) == {second}
    await list_number(world, "opt_outs", "60070")
    assert await claimed(world, third) == set()
    assert (await world.row(third))["error"]["code"] == "opted_out"


async def test_lists_are_the_tenants_own(world: World) -> None:
    await list_number(world, "opt_outs", tenant="beta")
    message = await world.message(**{"class": "marketing"})
    assert await claimed(world, message) == {message}


async def test_a_stop_that_comes_after_the_claim_changes_nothing(world: World) -> None:
    message = await world.message(**{"class": "marketing"})
    assert await claimed(world, message) == {message}
    await list_number(world, "opt_outs")
    assert await claimed(world, message) == set()
    assert await world.status(message) == "queued" and await world.events(message) == []


async def test_many_sessions_close_it_once(world: World) -> None:
    await list_number(world, "opt_outs")
    message = await world.message(**{"class": "marketing"})
    found = await asyncio.gather(*(claimed(world, message) for _ in range(5)))
    assert found == [set()] * 5
    assert len(await world.events(message)) == 1


async def test_what_an_earlier_submit_left_behind_is_told_as_it_is(world: World) -> None:
    """Nothing is called suppressed of which a carrier has, or may have, a part."""
    await list_number(world, "opt_outs")
    begun: dict[str, Any] = {"class": "marketing", "submit_begun": True, "next_slot": 1}
    partly = await world.message(**(begun | {"segments": 3}))
    await world.attempt(partly, outcome="throttled")
    await world.pool.execute("UPDATE attempts SET parts = $1 WHERE id = $2", {"accepted": [1]}, partly)
    doubtful = await world.message(**(begun | {"possible_duplicate": True}))
    refused = await world.message(**begun)
    assert await claimed(world, partly, doubtful, refused, slot=1) == set()
    assert [await world.status(one) for one in (partly, doubtful, refused)] == ["failed", "unconfirmed", "suppressed"]
    assert (await world.row(partly))["error"]["code"] == "parts_incomplete"
    assert (await world.row(doubtful))["sweep_at"] is not None


def test_the_rule_alone() -> None:
    assert refusal(None, opted_out=True, opted_in=False) is None
    assert refusal("opt_out", opted_out=True, opted_in=True) == "opted_out"
    assert refusal("opt_out", opted_out=False, opted_in=False) is None
    assert refusal("opt_in", opted_out=False, opted_in=False) == "no_consent"
    assert refusal("opt_in", opted_out=False, opted_in=True) is None


async def test_only_what_waits_is_suppressed(world: World) -> None:
    row = dict(await world.row(await world.message(status="sent")))
    assert suppress(standing_of(row), 0, "opted_out", 1) is None
