"""Cancel, expiry, stop and submit after the same messages at once, with the real queue (I12; design section 4)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from uuid import UUID, uuid4

import orjson

from gateway.ledger import consents
from gateway.ledger.cancellation import Canceled, cancel
from gateway.ledger.connect import connect
from gateway.ledger.expiries import expire_due
from gateway.ledger.resumptions import free_holders, release_held
from scheduler.core.asks import LeaseAsk
from smpp.simulator import SimulatorSettings
from tests.integration.egress.world import PolicyText, World, open_world, until

MESSAGES = 200
STATUS_OF = {"submit": "sent", "cancel": "canceled", "expire": "expired", "suppress": "suppressed"}


class Heeding(PolicyText):
    """A class that heeds the stop list, at a carrier that takes the messages over two or three seconds."""

    def yaml(self) -> str:
        return super().yaml().replace("transactional: {", "transactional: {consent: opt_out, ", 1)


def policy_text(port: int) -> PolicyText:
    return Heeding(port, sessions=2, provider="    limits: {rate_per_s: 60, burst: 1}\n")


class Bidders:
    """Everybody who may decide a message, each on a connection of its own."""

    def __init__(self, world: World, ids: list[UUID], numbers: dict[UUID, str]) -> None:
        self.world = world
        self.ids = ids
        self.numbers = numbers
        self.chance = random.Random(200)
        self.over = asyncio.Event()
        self.canceled: set[UUID] = set()
        self.stopped: set[UUID] = set()

    async def canceler(self, tenant: int) -> None:
        conn = await connect(self.world.database_url)
        for one in self.chance.sample(self.ids, MESSAGES // 2):
            if isinstance(await cancel(conn, tenant, one, self.world.clock.now_at()), Canceled):
                self.canceled.add(one)
                await self.world.scheduler.tombstone([one.bytes], 60_000)
            await asyncio.sleep(self.chance.random() * 0.02)
        await conn.close()

    async def stopper(self, tenant: int) -> None:
        conn = await connect(self.world.database_url)
        for one in self.chance.sample(self.ids, MESSAGES // 3):
            await consents.add(conn, consents.OPT_OUTS, tenant, [(self.numbers[one], "")], ("api", 1))
            self.stopped.add(one)
            await asyncio.sleep(self.chance.random() * 0.03)
        await conn.close()

    async def expirer(self) -> None:
        conn = await connect(self.world.database_url)
        while not self.over.is_set():
            await expire_due(conn, self.world.policy, self.world.clock.now_at())
            for holder in await free_holders(conn):  # delivery's part: what a claim could not decide comes back
                now_at = self.world.clock.now_at()
                back = await release_held(conn, self.world.policy, self.world.pepper, holder, now_at)
                if back.entries:
                    await self.world.scheduler.enqueue(uuid4().bytes, back.entries)
            await asyncio.sleep(0.01)
        await conn.close()


async def test_two_hundred_messages_are_decided_once_each(database_url: str, redis_url: str, tmp_path: Path) -> None:
    journal = tmp_path / "carrier.jsonl"
    settings = SimulatorSettings(receipts=False, journal=str(journal), answer_delay_ms=20)
    async with open_world(database_url, redis_url, settings, policy_text) as world:
        ids = await world.put([f"r{n}" for n in range(MESSAGES)])
        numbers = {row["id"]: row["recipient"] for row in await world.rows(ids)}
        tenant = await world.conn.fetchval("SELECT id FROM tenants WHERE name = 'acme'")
        bidders = Bidders(world, ids, numbers)
        # Half of them are out of time at some instant while the others are after them.
        late = [(one, world.clock.now_at() + n * 3_000 // MESSAGES) for n, one in enumerate(ids) if n % 2]
        await world.conn.executemany("UPDATE messages SET submit_by = $2, sweep_at = $2 WHERE id = $1", late)

        async def decided() -> bool:
            return not await world.statuses(ids) & {"queued", "sending", "scheduled"}

        async with world.egress("1"), asyncio.TaskGroup() as group:
            others = [group.create_task(one) for one in (bidders.canceler(tenant), bidders.stopper(tenant))]
            expiring = group.create_task(bidders.expirer())
            await asyncio.gather(*others)
            await until(decided)

            async def empty() -> bool:
                return sum((await world.scheduler.counts()).values()) == 0

            await until(empty, say=lambda: "references are left in the index")
            bidders.over.set()
            await expiring

        # A claim whose deadline passed before its first octet left decides too: it ends the message as expired.
        attempts = await world.conn.fetch(
            "SELECT id, CASE WHEN kind = 'submit' AND written_at IS NULL THEN 'expire' ELSE kind END AS kind"
            " FROM attempts"
        )
        kinds = {row["id"]: row["kind"] for row in attempts}
        assert len(attempts) == len(kinds) == MESSAGES, "a message was decided twice, or never"
        rows = await world.rows(ids)
        assert {row["id"]: row["status"] for row in rows} == {one: STATUS_OF[kind] for one, kind in kinds.items()}
        assert {one for one, kind in kinds.items() if kind == "cancel"} == bidders.canceled
        assert {one for one, kind in kinds.items() if kind == "suppress"} <= bidders.stopped
        assert {one for one, kind in kinds.items() if kind == "expire"} <= {one for one, _ in late}
        assert set(kinds.values()) == set(STATUS_OF), "every bidder had some of them"
        told = [orjson.loads(line) for line in journal.read_bytes().splitlines()]
        written = Counter(line["destination"] for line in told if line.get("event") == "submit")
        sent = {numbers[one].lstrip("+") for one, kind in kinds.items() if kind == "submit"}
        assert written == Counter(sent), "the carrier saw each of them once, and no other"
        left = [await world.conn.fetchval(f"SELECT count(*) FROM {table}") for table in ("outbox", "due", "held")]
        assert left == [0, 0, 0]
        session = await world.scheduler.lease(LeaseAsk("carrier", "s1", 10))
        assert not session.items and not session.expired
