"""A small world around egress: real stores, the carrier simulator, messages put straight into ledger and index."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import redis.asyncio

from gateway.admission.flows import entry_of
from gateway.clock import Clock
from gateway.domain.ids import day_of, uuid7
from gateway.egress import role
from gateway.ledger.connect import connect
from gateway.policy import versions
from gateway.policy.rules.parse import read_policy
from gateway.policy.rules.snapshot import Policy
from gateway.policy.rules.tuning import tuning_of
from gateway.runtime import Runtime, open_redis
from gateway.settings import Settings
from scheduler.core.records import pack_batch
from scheduler.store.scheduler import Scheduler
from smpp.simulator import Simulator, SimulatorSettings
from smpp.text import measure

TENANT = "acme"
_ROOT = Path(__file__).parents[3]
_INSERT = """
INSERT INTO messages (day, id, tenant_id, class, status, recipient, sender, body, encoding, segments, route, provider,
                      created_at, submit_by, expires_at, sweep_at, predicted_wait_ms, policy_version)
SELECT $1, $2, t.id, $3, 'queued', $4, $5, $6, $7, $8, 'main', 'carrier', $9, $10, $11, $10, 0, 1
  FROM tenants t WHERE t.name = $12
"""


_CLOCKS_DIFFER_MS = 50


@dataclass
class PolicyText:
    """A policy whose numbers a test chooses."""

    port: int
    sessions: int = 1
    window: int = 10
    response_timeout: str = "10s"
    unconfirmed: str = "hold"
    max_attempts: int = 5
    dialect: str = "{}"
    retries: str = "{base: 100ms, max: 200ms, share: 1}"
    password: str = "secret"
    host: str = "127.0.0.1"
    binds: tuple[str, ...] = ()  # of each session; transceiver where it says nothing
    session: str = ""  # more members of every session
    provider: str = ""  # more members of the provider, a line each
    reconnect: str = "{base: 50ms, max: 500ms}"

    def yaml(self) -> str:
        more = f", {self.session}" if self.session else ""
        binds = self.binds or ("transceiver",) * self.sessions
        lines = "\n".join(
            f"      s{n}: {{host: '{self.host}', port: {self.port}, system_id: acme, password: {self.password},"
            f" window: {self.window}, response_timeout: {self.response_timeout}, bind: {bind},"
            f" reconnect: {self.reconnect}{more}}}"
            for n, bind in enumerate(binds, 1)
        )
        return (
            "classes:\n"
            "  transactional: {wait_budget: 1m, ttl: {default: 5m, max: 1h}, weight: 25, quantum: 4,"
            f" when_full: refuse, unconfirmed: {self.unconfirmed}, max_attempts: {self.max_attempts}}}\n"
            "  otp: {wait_budget: 10s, ttl: {default: 2m, max: 10m}, weight: 60, quantum: 1,"
            " when_full: refuse, unconfirmed: resend_once, max_attempts: 3}\n"
            f"retries: {self.retries}\n"
            "tenant_defaults: {weight: 1, limits: {rate_per_s: 10000, burst: 10000},"
            " requests: {rate_per_s: 1000, burst: 1000}, classes: [transactional, otp], default_class: transactional}\n"
            f"tenants:\n  {TENANT}: {{}}\n"
            f"providers:\n  carrier:\n    dialect: {self.dialect}\n    ramp: {{start: 1, double_every: 1s}}\n"
            f"{self.provider}"
            f"    sessions:\n{lines}\n"
            "routes:\n  main: {match: {}, provider: carrier}\n"
        )


@dataclass
class World:
    """One ledger, one index, one carrier; `conn` is the test's own view of the ledger."""

    database_url: str
    redis_url: str
    conn: asyncpg.Connection[Any]
    client: redis.asyncio.Redis
    scheduler: Scheduler
    clock: Clock
    carrier: Simulator
    policy: Policy
    pepper: bytes
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @asynccontextmanager
    async def egress(self, worker: str = "1") -> AsyncIterator[Runtime]:
        """One egress process of this world, inside this one; drained at the end."""
        settings = Settings(database_url=self.database_url, redis_url=self.redis_url, drain_s=8.0)
        async with Runtime.open(settings, "egress", worker) as rt:
            await rt.policies.ready()
            running = asyncio.create_task(role.run(rt))
            try:
                yield rt
            finally:
                rt.stopping.set()
                await _ended(running, 60)
        if rt.failure is not None:
            raise rt.failure

    async def put(
        self, texts: Sequence[str], *, class_name: str = "transactional", ttl_ms: int = 300_000
    ) -> list[UUID]:
        """Accepted messages: rows, then references in the index."""
        now_at = self.clock.now_at()
        budget_ms = self.policy.classes[class_name].wait_budget_ms
        ids = sorted(uuid7(now_at, os.urandom(10)) for _ in texts)  # in the order of the texts
        rows = []
        for number, (id_, text) in enumerate(zip(ids, texts, strict=True)):
            taken = measure(text)
            rows.append((
                day_of(id_), id_, class_name, f"+3933312{number:05d}", "ACME", text.encode(), taken.encoding,
                taken.segments, now_at, min(now_at + budget_ms, now_at + ttl_ms), now_at + ttl_ms, TENANT,
            ))  # fmt: skip
        await self.conn.executemany(_INSERT, rows)
        await self.enqueue(ids)
        return ids

    async def enqueue(self, ids: Sequence[UUID]) -> None:
        """References of waiting messages into the index, by the outbox as everybody does it."""
        rows = await self.conn.fetch("SELECT * FROM messages WHERE id = ANY ($1::uuid[]) ORDER BY id", list(ids))
        entries = [entry_of(self.policy, self.pepper, TENANT, row) for row in rows]
        batch = uuid4()
        assert pack_batch(entries)
        await self.scheduler.enqueue(batch.bytes, entries)

    async def promote(self) -> int:
        """Does the promoter's work for what is due, by any process's clock.

        A reference that comes a moment too early may end in `held`, and only delivery, which is not here, frees those.
        """
        due = "DELETE FROM due WHERE due_at <= $1 RETURNING id"
        rows = await self.conn.fetch(due, self.clock.now_at() - _CLOCKS_DIFFER_MS)
        if rows:
            await self.enqueue([row["id"] for row in rows])
        return len(rows)

    async def rows(self, ids: Sequence[UUID]) -> list[Mapping[str, Any]]:
        return list(await self.conn.fetch("SELECT * FROM messages WHERE id = ANY ($1::uuid[]) ORDER BY id", list(ids)))

    async def statuses(self, ids: Sequence[UUID]) -> set[str]:
        return {row["status"] for row in await self.rows(ids)}

    async def attempts(self, id_: UUID) -> list[Mapping[str, Any]]:
        return list(await self.conn.fetch("SELECT * FROM attempts WHERE id = $1 ORDER BY slot", id_))

    async def until_status(self, ids: Sequence[UUID], wanted: str, timeout_s: float = 60.0) -> None:
        async def reached() -> bool:
            return await self.statuses(ids) == {wanted}

        await until(reached, timeout_s, lambda: f"not {wanted}")


async def _ended(running: asyncio.Task[None], timeout_s: float) -> None:
    """Waits for the role's end; one that hangs tells where."""
    await asyncio.wait({running}, timeout=timeout_s)
    if not running.done():
        for task in asyncio.all_tasks():
            task.print_stack(file=sys.stdout)
        running.cancel()
        raise AssertionError(f"the role did not end within {timeout_s} s")
    await running


async def until(
    condition: Callable[[], Awaitable[bool]], timeout_s: float = 60.0, say: Callable[[], str] = str
) -> None:
    """Waits for a condition on the stores."""
    end = time.monotonic() + timeout_s
    while not await condition():
        assert time.monotonic() < end, f"not within {timeout_s} s: {say()}"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def open_world(
    database_url: str, redis_url: str, carrier: SimulatorSettings, text: Callable[[int], PolicyText]
) -> AsyncIterator[World]:
    """A world with its policy in force and an empty index that is ready."""
    simulator = await Simulator(carrier).start()
    conn = await connect(database_url)
    client = open_redis(redis_url)
    try:
        clock = Clock()
        await clock.measure(client)
        source = text(simulator.port).yaml()
        version = await versions.insert(conn, source, "test", "", clock.now_at())
        await versions.activate(conn, version)
        await versions.create_tenants(conn, [TENANT], clock.now_at())
        policy = read_policy(source, version)
        scheduler = Scheduler(client)
        await scheduler.tune(tuning_of(policy))
        epoch = await scheduler.begin_rebuild()
        assert epoch is not None
        await scheduler.finish_rebuild(epoch)
        pepper = await conn.fetchval("SELECT pepper FROM instance")
        today = day_of(uuid7(clock.now_at(), os.urandom(10)))
        await conn.execute("SELECT ensure_partitions($1, 2)", today)
        yield World(database_url, redis_url, conn, client, scheduler, clock, simulator, policy, bytes(pepper))
        await scheduler.aclose()
    finally:
        await conn.close()
        await client.aclose()
        await simulator.stop()


class Process:
    """An egress role in a process of its own, to be killed."""

    def __init__(self, world: World, worker: str) -> None:
        self._world = world
        self._worker = worker
        self._child: asyncio.subprocess.Process | None = None

    async def start(self) -> Process:
        """Starts it; returns at once."""
        environment = {
            **os.environ,
            "SLUICEGATE_DATABASE_URL": self._world.database_url,
            "SLUICEGATE_REDIS_URL": self._world.redis_url,
            "SLUICEGATE_LOG_LEVEL": "warning",
        }
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.integration.egress.process", self._worker, env=environment, cwd=_ROOT
        )
        return self

    async def kill(self) -> None:
        """SIGKILL: nothing is tidied up."""
        assert self._child is not None
        if self._child.returncode is None:
            self._child.kill()
        await self._child.wait()

    async def terminate(self) -> int:
        """SIGTERM, then its exit status."""
        assert self._child is not None
        self._child.terminate()
        return await asyncio.wait_for(self._child.wait(), 20)
