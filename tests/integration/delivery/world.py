"""A ledger with messages at any point of their life, and the parts of a runtime that the delivery role stands on."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import asyncpg
import redis.asyncio

from gateway.domain.ids import day_of, uuid7
from gateway.ledger.connect import open_pool
from gateway.policy.rules.parse import read_policy
from gateway.policy.rules.snapshot import Policy
from gateway.sealing import Sealer
from scheduler.store.scheduler import Scheduler

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
POLICY = """
tenants:
  acme: {{classes: [otp, transactional, marketing], callbacks: {{url: "{url}", secrets: ["{secret}"], events: {events}, allow_private: true}}}}
  beta: {{classes: [transactional]}}
providers:
  carrier-a:
    limits: {{rate_per_s: 100, burst: 100}}
    sessions:
      a1: {{host: 127.0.0.1, port: 2775, system_id: a, password: b, bind: transceiver, window: 10, limits: {{rate_per_s: 100, burst: 100}}}}
routes:
  main: {{match: {{}}, provider: carrier-a}}
callbacks: {{give_up: 3d, timeout: 2s, per_endpoint: 4}}
"""  # noqa: E501 - lines of YAML


def policy_of(url: str = "http://127.0.0.1:9/hooks", events: str = "[all]", version: int = 1) -> Policy:
    return read_policy(POLICY.format(url=url, secret=SECRET, events=events), version)


@dataclass(slots=True)
class WallClock:
    """The clock of the role, on this machine's time plus a shift."""

    shift_ms: int = 0
    doubtful: bool = False

    def now_at(self) -> int:
        return int(time.time() * 1000) + self.shift_ms

    def now_mono(self) -> float:
        return time.monotonic() + self.shift_ms / 1000


@dataclass(slots=True)
class World:
    """One database, and ways to put rows into it."""

    url: str
    pool: asyncpg.Pool[Any]
    policy: Policy = field(default_factory=policy_of)
    clock: WallClock = field(default_factory=WallClock)
    sealer: Sealer = field(default_factory=lambda: Sealer({1: bytes(range(32))}, 1))
    tenants: dict[str, int] = field(default_factory=dict)
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    async def message(self, **values: Any) -> UUID:
        """A message row; `queued` and one segment unless said otherwise."""
        now_at = self.clock.now_at()
        message_id = values.pop("id", None) or uuid7(now_at, os.urandom(10))
        tenant = values.pop("tenant", "acme")
        row: dict[str, Any] = {
            "day": day_of(message_id),
            "id": message_id,
            "tenant_id": self.tenants[tenant],
            "class": "transactional",
            "status": "queued",
            "recipient": "+447700900123",
            "sender": "ACME",
            "body": b"hello",
            "encoding": "gsm7",
            "segments": 1,
            "extras": None,
            "route": "main",
            "provider": "carrier-a",
            "created_at": now_at,
            "submit_by": now_at + 120_000,
            "expires_at": now_at + 3_600_000,
            "sweep_at": now_at + 120_000,
            "predicted_wait_ms": 0,
            "policy_version": 1,
        }
        row.update(values)
        names = ", ".join(row)
        marks = ", ".join(f"${n}" for n in range(1, len(row) + 1))
        await self.pool.execute(f"INSERT INTO messages ({names}) VALUES ({marks})", *row.values())
        return message_id

    async def sent(self, carrier_id: str = "C1", **values: Any) -> UUID:
        """A message whose only part a carrier took under `carrier_id`."""
        now_at = self.clock.now_at()
        defaults = {"status": "sent", "submit_begun": True, "attempts_spent": 1, "sweep_at": now_at + 259_200_000}
        message_id = await self.message(**(defaults | values))
        await self.attempt(message_id, outcome="accepted")
        recipient = values.get("recipient", "+447700900123")
        await self.carrier_id(message_id, carrier_id, recipient=recipient)
        return message_id

    async def attempt(self, message_id: UUID, slot: int = 0, outcome: str | None = None, owner: int = 1) -> None:
        now_at = self.clock.now_at()
        await self.pool.execute(
            "INSERT INTO attempts"
            " (day, id, slot, kind, owner_id, provider, session, claimed_at, written_at, outcome, outcome_at)"
            " VALUES ($1, $2, $3, 'submit', $4, 'carrier-a', 'a1', $5, $5, $6, $7)",
            day_of(message_id), message_id, slot, owner, now_at, outcome, None if outcome is None else now_at,
        )  # fmt: skip

    async def carrier_id(
        self,
        message_id: UUID,
        carrier_id: str,
        part: int = 1,
        *,
        provider: str = "carrier-a",
        recipient: str = "+447700900123",
        sent_at: int | None = None,
    ) -> None:
        at = self.clock.now_at() if sent_at is None else sent_at
        await self.pool.execute(
            "INSERT INTO carrier_ids VALUES ($1, $2, $3, $4, 0, $5, $6, $7)",
            provider, carrier_id, day_of(message_id), message_id, part, recipient, at,
        )  # fmt: skip

    async def receipt(self, state: str | None, carrier_id: str | None = "C1", **values: Any) -> int:
        """A receipt in the inbox; returns its row id."""
        now_at = self.clock.now_at()
        row: dict[str, Any] = {
            "provider": "carrier-a",
            "digest": str(next(self.numbers)).encode(),
            "session": "a1",
            "received_at": now_at,
            "carrier_id": carrier_id,
            "raw_id": carrier_id,
            "recipient": "447700900123",
            "sender": "ACME",
            "state": state,
            "error_code": "000",
            "done_at": now_at,
            "raw": b"",
            "next_try_at": now_at,
        }
        row.update(values)
        names = ", ".join(row)
        marks = ", ".join(f"${n}" for n in range(1, len(row) + 1))
        found: int = await self.pool.fetchval(
            f"INSERT INTO receipts ({names}) VALUES ({marks}) RETURNING id", *row.values()
        )
        return found

    async def row(self, message_id: UUID) -> asyncpg.Record:
        return await self.pool.fetchrow(
            "SELECT * FROM messages WHERE day = $1 AND id = $2", day_of(message_id), message_id
        )

    async def status(self, message_id: UUID) -> str:
        return str((await self.row(message_id))["status"])

    async def events(self, message_id: UUID) -> list[tuple[str, int]]:
        """(type, seq) of the callbacks owed for a message, in order."""
        rows = await self.pool.fetch("SELECT type, seq FROM callbacks WHERE message_id = $1 ORDER BY id", message_id)
        return [(row["type"], row["seq"]) for row in rows]

    def runtime(self, scheduler: Any = None) -> Any:
        """What of a runtime the delivery role asks for."""
        return SimpleNamespace(
            settings=SimpleNamespace(database_url=self.url),
            pool=self.pool,
            clock=self.clock,
            policies=SimpleNamespace(current=self.policy),
            scheduler=scheduler,
            pepper=b"p" * 32,
            sealer=self.sealer,
            process_id=1,
            stopping=asyncio.Event(),
        )


@asynccontextmanager
async def world_of(database_url: str) -> AsyncIterator[World]:
    pool = await open_pool(database_url, max_size=6)
    try:
        world = World(database_url, pool)
        for name in ("acme", "beta"):
            world.tenants[name] = await pool.fetchval(
                "INSERT INTO tenants (name, created_at) VALUES ($1, 0) RETURNING id", name
            )
        yield world
    finally:
        pool.terminate()


@asynccontextmanager
async def index_of(redis_url: str) -> AsyncIterator[tuple[Scheduler, redis.asyncio.Redis]]:
    client = redis.asyncio.Redis.from_url(redis_url)
    scheduler = Scheduler(client)
    try:
        yield scheduler, client
    finally:
        await scheduler.aclose()
        await client.aclose()


async def until(condition: Callable[[], Awaitable[bool]], patience_s: float = 60.0) -> None:
    """Wait for a condition; AssertionError when it does not come."""
    end = time.monotonic() + patience_s
    while not await condition():
        assert time.monotonic() < end, "the condition did not come"
        await asyncio.sleep(0.01)
