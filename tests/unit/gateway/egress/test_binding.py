"""How long a session waits before it tries again, and whose turn it is to bind."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gateway.egress.accounts import Accounts
from gateway.egress.binding import Patience
from gateway.policy.rules.snapshot import Session
from smpp.protocol.errors import RALYBND, RBINDFAIL

SESSION = Session(
    "s1", "carrier", "smsc.example", 2775, None, "acme", "env:A", "", "transceiver", 10, None, 15_000, 10_000, 60_000,
    1_000, 30_000,
)  # fmt: skip


class _Owner:
    """Locks of a process as the ledger keeps them: one connection may take the same one again and again."""

    def __init__(self) -> None:
        self.asked = 0

    def may_write(self) -> bool:
        return True

    async def take_account(self, account: str) -> bool:
        self.asked += 1
        await asyncio.sleep(0)
        return True

    async def release_account(self, account: str) -> None:
        await asyncio.sleep(0)


def test_full_jitter_from_the_first_try_on_up_to_the_cap() -> None:
    patience = Patience(1_000, 30_000)
    assert (patience.wait_s(0.0), patience.wait_s(1.0)) == (0.0, 1.0)
    ceilings = []
    for _ in range(7):
        patience.failed()
        ceilings.append(patience.wait_s(1.0))
    assert ceilings == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    patience.bound()
    assert patience.wait_s(1.0) == 1.0


def test_s20_an_account_that_is_still_bound_is_given_time() -> None:
    patience = Patience(1_000, 60_000)
    waits = []
    for _ in range(5):
        patience.failed(RALYBND)
        waits.append((patience.wait_s(0.0), patience.wait_s(1.0)))
    assert waits == [(2.5, 5.0), (5.0, 10.0), (10.0, 20.0), (20.0, 40.0), (30.0, 60.0)]
    assert patience.held == 5
    patience.failed(RBINDFAIL)
    assert patience.held == 0 and patience.wait_s(0.0) == 0.0


async def test_one_attempt_at_a_time_per_account_inside_one_process_too() -> None:
    accounts, running, most = Accounts(_Owner()), 0, 0  # type: ignore[arg-type]

    async def attempt(session: Session) -> None:
        nonlocal running, most
        async with accounts.turn(session, lambda: False) as granted:
            assert granted
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1

    await asyncio.gather(*(attempt(replace(SESSION, name=f"s{n}")) for n in range(4)))
    assert most == 1
    other = replace(SESSION, system_id="other")
    async with accounts.turn(SESSION, lambda: False), accounts.turn(other, lambda: False) as granted:
        assert granted, "another account need not wait"


async def test_who_leaves_does_not_wait_for_its_turn() -> None:
    accounts = Accounts(_Owner())  # type: ignore[arg-type]
    async with accounts.turn(SESSION, lambda: True) as granted:
        assert not granted


@pytest.mark.parametrize("change", [{"password": "env:B"}, {"system_id": "b"}, {"system_type": "VMA"}, {"port": 2776}])
def test_a_refusal_concerns_these_credentials_alone(change: dict[str, object]) -> None:
    accounts = Accounts(_Owner())  # type: ignore[arg-type]
    accounts.refuse(SESSION)
    assert accounts.is_refused(replace(SESSION, name="s2"))
    assert not accounts.is_refused(replace(SESSION, **change))  # type: ignore[arg-type]
    accounts.forgive(SESSION)
    assert not accounts.is_refused(SESSION)
