"""Ids that collide between carriers and tenants; receipts that claim to be about another's message (I28, I31)."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from gateway.ledger.merges import merge_batch
from tests.integration.delivery.world import World

PROVIDERS = ("carrier-a", "carrier-b")


async def merge_all(world: World) -> None:
    async with world.pool.acquire() as conn:
        while (await merge_batch(conn, world.policy, world.clock.now_at() + 1)).merged:
            pass


async def sent(world: World, provider: str, carrier_id: str, **values: Any) -> UUID:
    message_id = await world.message(
        status="sent", submit_begun=True, provider=provider, sweep_at=world.clock.now_at() + 10**8, **values
    )
    await world.attempt(message_id, outcome="accepted")
    await world.carrier_id(message_id, carrier_id, provider=provider, recipient=values["recipient"])
    return message_id


@pytest.mark.parametrize("seed", range(4))
async def test_every_receipt_is_of_its_own_carrier_and_handset(world: World, seed: int) -> None:
    """Two carriers give the same few ids to the messages of two tenants; receipts of all of them come in any order."""
    chance = random.Random(seed)
    world.policy = replace(
        world.policy, providers={**world.policy.providers, "carrier-b": world.policy.providers["carrier-a"]}
    )
    messages: dict[UUID, tuple[str, str]] = {}
    for n, (provider, tenant, carrier_id) in enumerate(
        itertools.product(PROVIDERS, ("acme", "beta"), ("1", "0A", "10", "ffff"))
    ):
        recipient = f"+44770090{n:04d}"
        message_id = await sent(world, provider, carrier_id, tenant=tenant, recipient=recipient)
        messages[message_id] = (provider, recipient)
    asked = [
        (provider, carrier_id, recipient)
        for provider in PROVIDERS
        for carrier_id in ("1", "0A", "10", "ffff", "0", "", None)
        for _, recipient in (*messages.values(), ("", "+447700999999"), ("", ""))
    ]
    chance.shuffle(asked)
    for provider, carrier_id, recipient in asked:
        # Who is meant is written where the tenant would read it; a forged reference names any message at all.
        code = f"{provider[-1]}{recipient[-4:]}"
        reference = chance.choice([None, chance.choice(list(messages)).hex])
        await world.receipt(
            "delivered", carrier_id, provider=provider, recipient=recipient.removeprefix("+"), error_code=code,
            own_reference=reference,
        )  # fmt: skip
    await merge_all(world)
    rows = await world.pool.fetch(
        "SELECT m.id AS message, m.provider AS ours, r.provider AS theirs, m.recipient, r.recipient AS told,"
        " r.carrier_id, r.own_reference FROM receipts r JOIN messages m ON m.id = r.message_id"
    )
    assert {row["message"] for row in rows} == set(messages)
    for row in rows:
        assert row["ours"] == row["theirs"]
        assert row["told"] in ("", row["recipient"].removeprefix("+"))
    for message_id, (provider, recipient) in messages.items():
        delivery = (await world.row(message_id))["delivery"]
        assert delivery["provider"] == provider
        assert delivery["error_code"] in {f"{provider[-1]}{recipient[-4:]}", provider[-1]}


async def test_what_another_tenant_is_told_never_names_a_foreign_message(world: World) -> None:
    """Callbacks go to the tenant of the message that the receipt was matched with, whoever the carrier meant."""
    ours = await sent(world, "carrier-a", "SAME", tenant="acme", recipient="+447700900001")
    theirs = await sent(world, "carrier-a", "SAME", tenant="beta", recipient="+447700900002")
    await world.receipt("delivered", "SAME", recipient="447700900002")
    await merge_all(world)
    assert await world.status(ours) == "sent" and await world.status(theirs) == "delivered"
    owners = await world.pool.fetch("SELECT tenant_id, message_id FROM callbacks")
    assert all(row["message_id"] == theirs and row["tenant_id"] == world.tenants["beta"] for row in owners)
