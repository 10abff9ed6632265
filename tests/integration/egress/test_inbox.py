"""What carriers deliver: kept, then answered (I28); policy changes rebind only what changed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from gateway.policy import versions
from smpp.protocol.pdu import DeliverSm
from smpp.simulator import SimulatorSettings
from tests.integration.egress.world import PolicyText, open_world, until


def _carrier(**settings: object) -> SimulatorSettings:
    return SimulatorSettings(port=0, receipt_delay_ms=50, seed=7, **settings)  # type: ignore[arg-type]


async def test_receipts_are_kept_before_they_are_answered(database_url: str, redis_url: str) -> None:
    async with open_world(database_url, redis_url, _carrier(), PolicyText) as world, world.egress():
        ids = await world.put([f"r {n}" for n in range(20)])
        await world.until_status(ids, "sent")

        async def answered() -> bool:
            return world.carrier.counters["receipts_taken"] == 20

        await until(answered)
        rows = await world.conn.fetch(
            "SELECT r.state, r.recipient, r.next_try_at, m.recipient AS number FROM receipts r "
            "JOIN carrier_ids c ON c.provider = r.provider AND c.carrier_id = r.carrier_id "
            "JOIN messages m ON m.day = c.day AND m.id = c.id"
        )
        assert len(rows) == 20
        assert {row["state"] for row in rows} == {"delivered"}
        assert all("+" + row["recipient"] == row["number"] for row in rows)
        assert all(row["next_try_at"] is not None for row in rows)


async def test_a_receipt_sent_twice_is_one_row(database_url: str, redis_url: str) -> None:
    receipt = DeliverSm(
        source_addr="393331234567", destination_addr="ACME", esm_class=0x04,
        short_message=b"id:77 sub:001 dlvrd:001 submit date:2611300900 done date:2611300901 stat:DELIVRD err:000 text:",
    )  # fmt: skip
    inbound = DeliverSm(source_addr="393331234567", destination_addr="60070", short_message=b"STOP")
    async with open_world(database_url, redis_url, _carrier(), PolicyText) as world, world.egress():

        async def bound() -> bool:
            return world.carrier.bound == 1

        await until(bound)
        for pdu in (receipt, replace(receipt), inbound, replace(inbound)):
            world.carrier.inject("acme", pdu)

        async def answered() -> bool:
            return world.carrier.counters["inbound_taken"] == 4

        await until(answered)
        assert await world.conn.fetchval("SELECT count(*) FROM receipts") == 1
        assert await world.conn.fetchval("SELECT count(*) FROM inbound_parts") == 2


async def test_r16_what_comes_in_one_read_with_the_binds_answer_is_kept_and_answered(
    database_url: str, redis_url: str
) -> None:
    """A carrier with a backlog does not wait: its first receipts are there before anybody knows of the bind."""
    async with open_world(database_url, redis_url, _carrier(), PolicyText) as world:
        backlog = [
            DeliverSm(source_addr="393331234567", destination_addr="60070", short_message=b"text %d" % number)
            for number in range(5)
        ]

        async def pour() -> None:
            while not world.carrier.bound:
                await asyncio.sleep(0)
            for pdu in backlog:
                world.carrier.inject("acme", pdu)

        pouring = asyncio.create_task(pour())
        async with world.egress():
            await pouring

            async def answered() -> bool:
                return world.carrier.counters["inbound_taken"] == len(backlog)

            await until(answered)
            assert await world.conn.fetchval("SELECT count(*) FROM inbound_parts") == len(backlog)


async def test_a_policy_change_rebinds_only_what_changed(database_url: str, redis_url: str) -> None:
    def text(port: int) -> PolicyText:
        return PolicyText(port, sessions=2)

    async with open_world(database_url, redis_url, _carrier(), text) as world, world.egress() as rt:

        async def both_bound() -> bool:
            return world.carrier.bound == 2

        await until(both_bound)
        source = PolicyText(world.carrier.port, sessions=2).yaml()
        changed = source.replace("s2: {host: '127.0.0.1'", "s2: {host: 'localhost'") + "# version 2\n"
        version = await versions.insert(world.conn, changed, "test", "", world.clock.now_at())
        await versions.activate(world.conn, version)

        async def rebound() -> bool:
            return world.carrier.counters["binds"] == 3 and world.carrier.bound == 2

        await until(rebound)
        assert rt.policies.current.version == version
        ids = await world.put([f"after {n}" for n in range(20)])
        await world.until_status(ids, "sent")
        assert world.carrier.counters["binds"] == 3
