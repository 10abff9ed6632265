"""A ledger that fails a claim: the lease goes back at once, the work goes on when the ledger answers again."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.egress import claimer
from gateway.ledger.claims import claim
from smpp.simulator import SimulatorSettings
from tests.integration.egress.world import PolicyText, open_world, until

LEASE_S = 2.0


async def test_a_failed_claim_gives_its_lease_back_before_it_would_lapse(
    database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = True
    asked: list[int] = []

    async def unsteady(conn: Any, wanted: Any, *rest: Any) -> Any:
        asked.append(len(wanted))
        if away:
            raise ConnectionResetError
        return await claim(conn, wanted, *rest)

    monkeypatch.setattr(claimer, "claim", unsteady)
    carrier = SimulatorSettings(port=0, receipts=False, keep_submits=100, seed=7)
    async with open_world(database_url, redis_url, carrier, PolicyText) as world, world.egress():
        ids = await world.put(["one", "two", "three"])

        async def asked_again() -> bool:
            return len(asked) >= 2

        await until(asked_again, LEASE_S * 0.75)  # a lease that only lapses would come back after two seconds
        assert asked[:2] == [3, 3]
        away = False
        await world.until_status(ids, "sent")
        assert sorted(pdu.short_message for _, pdu in world.carrier.submits) == [b"one", b"three", b"two"]
        assert len(asked) < 10, "a ledger that is away is not asked without a rest"
