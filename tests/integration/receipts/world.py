"""Several simulated carriers, egress and merger on real stores: what becomes of receipts on the whole road."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from gateway.domain.ids import day_of, uuid7
from gateway.receipts.merger import Merger
from gateway.runtime import Runtime
from smpp.simulator import Simulator, SimulatorSettings
from smpp.text import measure
from tests.integration.egress.world import World, open_world, until

_INSERT = """
INSERT INTO messages (day, id, tenant_id, class, status, recipient, sender, body, encoding, segments, route, provider,
                      created_at, submit_by, expires_at, sweep_at, predicted_wait_ms, policy_version)
SELECT $1, $2, t.id, 'transactional', 'queued', $3, '60070', $4, $5, $6, $7, $7, $8::bigint, $8::bigint + 60000,
       $8::bigint + 300000, $8::bigint + 60000, 0, 1
  FROM tenants t WHERE t.name = 'acme'
"""


@dataclass(frozen=True)
class Carrier:
    """A carrier, how it behaves and what the policy says of it. `sessions` are binds of one account."""

    settings: SimulatorSettings = field(default_factory=lambda: SimulatorSettings(port=0, receipt_delay_ms=20))
    dialect: str = "{}"
    sessions: int = 1
    bind: str = "transceiver"
    extra: str = ""  # a line for one more session
    window: int = 50


@dataclass
class PolicyOfCarriers:
    """The policy of a world; `cutoff` and class as given."""

    carriers: Mapping[str, tuple[Carrier, int]]
    cutoff: str = "72h"

    def yaml(self) -> str:
        providers, routes = [], []
        for name, (carrier, port) in self.carriers.items():
            common = f"host: 127.0.0.1, port: {port}, system_id: acme, password: secret, window: {carrier.window}"
            reconnect = "reconnect: {base: 50ms, max: 500ms}"
            sessions = [
                f"      {name}-{n}: {{{common}, bind: {carrier.bind}, {reconnect}}}"
                for n in range(1, carrier.sessions + 1)
            ]
            if carrier.extra:
                sessions.append(f"      {name}-rx: {{{common}, bind: {carrier.extra}, {reconnect}}}")
            lines = "\n".join(sessions)
            providers.append(
                f"  {name}:\n    dialect: {carrier.dialect}\n    ramp: {{start: 1, double_every: 1s}}\n"
                f"    sessions:\n{lines}\n"
            )
            routes.append(f"  {name}: {{match: {{}}, provider: {name}}}\n")
        return (
            "classes:\n"
            "  transactional: {wait_budget: 1m, ttl: {default: 5m, max: 1h}, weight: 25, quantum: 4,"
            " when_full: refuse, unconfirmed: hold, max_attempts: 5}\n"
            "tenant_defaults: {weight: 1, limits: {rate_per_s: 10000, burst: 10000},"
            " requests: {rate_per_s: 1000, burst: 1000}, classes: [transactional], default_class: transactional}\n"
            'tenants:\n  acme: {callbacks: {url: "http://127.0.0.1:9/", '
            'secrets: ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],'
            " events: [all], allow_private: true}}\n"
            f"receipts: {{cutoff: {self.cutoff}, inbox_retention: 14d}}\n"
            "providers:\n" + "".join(providers) + "routes:\n" + "".join(routes)
        )


@dataclass
class Road:
    """Carriers by name and one gateway process that sends, receives and merges."""

    world: World
    carriers: dict[str, Simulator]
    rt: Runtime

    async def put(self, carrier: str, count: int = 1, text: str = "hello", first: int = 0) -> list[UUID]:
        """Accepted messages for one carrier, each to a handset of its own, in the index."""
        now_at = self.world.clock.now_at()
        ids = [uuid7(now_at, os.urandom(10)) for _ in range(count)]
        taken = measure(text)
        rows = [
            (
                day_of(id_),
                id_,
                f"+4477009{first + n:05d}",
                text.encode(),
                taken.encoding,
                taken.segments,
                carrier,
                now_at,
            )
            for n, id_ in enumerate(ids)
        ]
        await self.world.conn.executemany(_INSERT, rows)
        await self.world.enqueue(ids)
        return ids

    async def reach(self, ids: Sequence[UUID], status: str, timeout_s: float = 60.0) -> None:
        """Waits until these messages have a status."""
        await self.world.until_status(ids, status, timeout_s)

    async def row(self, id_: UUID) -> Mapping[str, Any]:
        (row,) = await self.world.rows([id_])
        return row

    async def bound(self, count: int) -> None:
        """Waits for binds, over all carriers."""

        async def reached() -> bool:
            return sum(carrier.bound for carrier in self.carriers.values()) >= count

        await until(reached, 60, lambda: "not bound")

    async def events(self, id_: UUID) -> list[str]:
        """Types of the callbacks owed for a message, in order."""
        rows = await self.world.conn.fetch("SELECT type FROM callbacks WHERE message_id = $1 ORDER BY id", id_)
        return [row["type"] for row in rows]


@asynccontextmanager
async def open_road(
    database_url: str, redis_url: str, carriers: Mapping[str, Carrier], cutoff: str = "72h"
) -> AsyncIterator[Road]:
    """Everything up and bound."""
    async with AsyncExitStack() as stack:
        simulators: dict[str, Simulator] = {}
        for name, carrier in carriers.items():
            simulators[name] = await Simulator(carrier.settings).start()
            stack.push_async_callback(simulators[name].stop)
        policy = PolicyOfCarriers({n: (c, simulators[n].port) for n, c in carriers.items()}, cutoff)
        idle = SimulatorSettings(port=0)
        world = await stack.enter_async_context(open_world(database_url, redis_url, idle, lambda _: policy))  # type: ignore[arg-type, return-value]
        rt = await stack.enter_async_context(world.egress())
        merger = asyncio.create_task(Merger(rt).run())
        road = Road(world, simulators, rt)
        try:
            await road.bound(sum(c.sessions + bool(c.extra) for c in carriers.values()))
            yield road
        finally:
            merger.cancel()
            await asyncio.gather(merger, return_exceptions=True)
