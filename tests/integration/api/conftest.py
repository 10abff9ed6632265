"""A real door on a real socket: api role, PostgreSQL and Valkey, an index that is ready, and no carrier."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from gateway.api.role import serve
from gateway.ledger import keys
from gateway.ledger.keys import KeyWish
from gateway.policy.rules.tuning import tuning_of
from gateway.runtime import Runtime
from gateway.settings import Settings
from scheduler.core.asks import LeaseAsk

POLICY = """\
classes:
  otp: {wait_budget: 10s, ttl: {default: 2m, max: 10m}, weight: 60, quantum: 1, when_full: refuse, unconfirmed: resend_once, max_attempts: 3, content: {max_segments: 1}}
  transactional: {wait_budget: 2m, ttl: {default: 1h, max: 24h}, weight: 25, quantum: 4, when_full: refuse, unconfirmed: hold, max_attempts: 5}
  marketing: {wait_budget: 4h, ttl: {default: 12h, max: 48h}, weight: 10, quantum: 32, when_full: defer, unconfirmed: fail, max_attempts: 5}
  non_priority: {wait_budget: 12h, ttl: {default: 24h, max: 72h}, weight: 5, quantum: 32, when_full: refuse, unconfirmed: fail, max_attempts: 3}
tenants:
  acme:
    classes: [otp, transactional, marketing, non_priority]
    default_class: transactional
    requests: {rate_per_s: 100000, burst: 100000}
  other:
    classes: [otp, transactional]
    default_class: transactional
    default_sender: OTHER
    requests: {rate_per_s: 100000, burst: 100000}
    accept_00_prefix: true
  tight:
    classes: [otp, transactional]
    default_class: transactional
    default_sender: TIGHT
    requests: {rate_per_s: 1, burst: 3}
    daily_segments: 5
    senders: {TIGHT: {}}
    destinations: ["+44"]
    tlvs: [dlt_entity_id]
providers:
  simulator:
    limits: {rate_per_s: 1000, burst: 1000}
    sessions:
      sim-1: {host: 127.0.0.1, port: 2775, system_id: demo, password: demo, bind: transceiver, window: 100}
  slow:
    limits: {rate_per_s: 1, burst: 1}
    sessions:
      slow-1: {host: 127.0.0.1, port: 2776, system_id: demo, password: demo, bind: transceiver, window: 10}
routes:
  everywhere: {match: {classes: [otp, transactional, non_priority], prefixes: ["+44", "+39", "+33"]}, provider: simulator}
  bulk: {match: {classes: [marketing, non_priority], prefixes: ["+44"]}, provider: slow, preference: 2}
  creeping: {match: {prefixes: ["+49"]}, provider: slow}
"""  # noqa: E501 - lines of YAML


@dataclass
class Gateway:
    """A running door and clients for its tenants."""

    rt: Runtime
    base: str
    session: aiohttp.ClientSession
    keys: dict[str, str] = field(default_factory=dict)

    async def call(self, method: str, path: str, tenant: str | None = "acme", **options: Any) -> Reply:
        """One request with a tenant's key (or with the text itself as key); `key` becomes the Idempotency-Key."""
        headers = dict(options.pop("headers", {}))
        if tenant is not None:
            headers.setdefault("Authorization", f"Bearer {self.keys.get(tenant, tenant)}")
        key = options.pop("key", None)
        if key is not None:
            headers["Idempotency-Key"] = key
        async with self.session.request(method, self.base + path, headers=headers, **options) as response:
            octets = await response.read()
            return Reply(response.status, {name.lower(): value for name, value in response.headers.items()}, octets)

    async def send(self, message: Any, tenant: str = "acme", key: str | None = None, **options: Any) -> Reply:
        """POST /v1/messages."""
        options |= {"data": message.encode()} if isinstance(message, str) else {"json": message}
        return await self.call("POST", "/v1/messages", tenant, key=key or uuid4().hex, **options)

    async def count(self, table: str = "messages") -> int:
        """Rows of a table."""
        return int(await self.rt.pool.fetchval(f"SELECT count(*) FROM {table}"))

    async def give_key(self, tenant: str | None, name: str, **wish: Any) -> str:
        """A new key, also kept under `name`."""
        async with self.rt.pool.acquire() as conn:
            made = await keys.create(conn, KeyWish(tenant, **wish), "test", self.rt.clock.now_at())
        self.keys[name] = made
        return made


@dataclass(frozen=True)
class Reply:
    """What a request got."""

    status: int
    headers: dict[str, str]
    octets: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.octets)

    @property
    def code(self) -> str:
        """The problem's code."""
        return str(self.json["code"])

    @property
    def pointers(self) -> list[str]:
        """Where the fields at fault stand."""
        return [fault["pointer"] for fault in self.json.get("errors", [])]


async def repeated(call: Callable[[], Awaitable[Reply]], seconds: float = 60.0) -> Reply:
    """What the call comes to, told again as a client should while the answer is 503: a store or a slow machine."""
    async with asyncio.timeout(seconds):
        while (reply := await call()).status == 503:
            await asyncio.sleep(0.1)
        return reply


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
    """Waits for a condition."""
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(
    database_url: str, redis_url: str, policy: str = POLICY, worker: str = "api-0", **settings: Any
) -> AsyncIterator[Gateway]:
    """The api role on a socket of its own."""

    async def first(rt: Runtime) -> None:
        await rt.applier.apply(policy, "test")

    made = Settings(database_url=database_url, redis_url=redis_url, **settings)
    async with AsyncExitStack() as stack:
        rt = await stack.enter_async_context(Runtime.open(made, "api", worker, first_policy=first))
        await rt.policies.ready()
        await open_index(rt)
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        serving = asyncio.create_task(serve(rt, [listener]))
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), skip_auto_headers=["Content-Type"])
        )
        gateway = Gateway(rt, f"http://127.0.0.1:{port}", session)
        for tenant in ("acme", "other", "tight"):
            await gateway.give_key(tenant, tenant)
        try:
            yield gateway
        finally:
            await session.close()
            rt.stopping.set()
            async with asyncio.timeout(60):
                await serving


async def open_index(rt: Runtime) -> None:
    """An empty index that serves, tuned to the policy."""
    if await rt.scheduler.epoch_state() != "ready" and (epoch := await rt.scheduler.begin_rebuild()) is not None:
        await rt.scheduler.finish_rebuild(epoch)
    await rt.scheduler.tune(tuning_of(rt.policies.current))
    # A provider that never had a session counts as away after seconds; these tests have no carrier and take longer.
    for provider in rt.policies.current.providers.values():
        await rt.scheduler.lease(LeaseAsk(provider.name, next(iter(provider.sessions)), 1))


@pytest.fixture
async def gateway(database_url: str, redis_url: str) -> AsyncIterator[Gateway]:
    """A running door with the tenants acme, other and tight."""
    async with running(database_url, redis_url) as made:
        yield made
