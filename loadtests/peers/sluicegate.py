"""Sluicegate for the bench: a whole gateway with the stores that come along, every commit on disk before its 202."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

from gateway.ledger import keys, tenants
from gateway.ledger.connect import open_pool
from loadtests.bench import cpu_s
from loadtests.peers.loads import Load
from loadtests.peers.processes import Processes
from loadtests.world import Shape, World, free_port

_POLICY: Final = """\
classes:
  otp:
    {{wait_budget: 10s, ttl: {{default: 5m, max: 10m}}, weight: 60, quantum: 1, unconfirmed: resend_once,
     max_attempts: 3}}
  transactional:
    {{wait_budget: 10m, ttl: {{default: 1h, max: 24h}}, weight: 25, quantum: 4, unconfirmed: hold, max_attempts: 5}}
  marketing:
    {{wait_budget: {budget}, ttl: {{default: 48h, max: 72h}}, weight: 10, quantum: 32, when_full: refuse,
     unconfirmed: fail, max_attempts: 5}}
tenant_defaults:
  limits: {{rate_per_s: 50000, burst: 50000}}
  requests: {{rate_per_s: 50000, burst: 100000}}
  classes: [otp, transactional, marketing]
  default_class: transactional
  default_sender: "60070"
{callbacks}providers:
  carrier:
    dialect: {{register: {register}}}
    sessions:
      c1: {{host: 127.0.0.1, port: {port}, system_id: load, password: secret, bind: transceiver, window: {window}}}
routes:
  everything: {{match: {{}}, provider: carrier}}
"""
_CALLBACKS: Final = (
    '  callbacks: {{url: "{url}", secrets: ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], events: [{events}],'
    " allow_private: true}}\n"
)
_BODY: Final = '{"to":"+{to}","class":"{class}","text":"{text}"}'


class _Gateway(World):
    """A world whose carrier is the bench's own."""

    def start_carrier(self) -> None:
        """Nothing: it listens already."""

    async def stop_carrier(self) -> None:
        """Nothing: the bench ends it."""


class Sluicegate:
    """One Sluicegate of a run."""

    name = "Sluicegate"
    tenants_max = 1_000_000
    batches = True

    def __init__(self, home: Path, processes: Processes) -> None:
        self._home, self._processes = home, processes
        self._keys = home / "keys"
        self._batch = 1
        self._world: World | None = None

    @staticmethod
    def why_absent() -> str:
        """It is here."""
        return ""

    def start(self, load: Load, carrier_port: int, callback_url: str, callbacks: int) -> None:
        """Brings it up for a load; two callbacks per message where asked: the carrier's answer, then the receipt."""
        self._batch = load.batch
        events = "final" if callbacks == 1 else "message.sent, message.delivered"
        policy = _POLICY.format(
            budget="72h" if load.backlog else "10s" if load.overload else "4h",
            callbacks=_CALLBACKS.format(url=callback_url, events=events) if load.receipts else "",
            register="final" if load.receipts else "none",
            port=carrier_port,
            window=load.window,
        )
        self._world = _Gateway(self._home, Shape(), policy)
        self._world.port, self._world.admin_port = free_port(), free_port()
        asyncio.run(self._world.start())
        asyncio.run(self._make_keys(load.tenants))

    async def _make_keys(self, count: int) -> None:
        assert self._world is not None
        pool = await open_pool(self._world.database_url())
        try:
            async with pool.acquire() as conn:
                now_at = time.time_ns() // 1_000_000
                written = []
                for n in range(count):
                    await tenants.create(conn, f"tenant-{n}", "bench", now_at)
                    written.append(await keys.create(conn, keys.KeyWish(tenant=f"tenant-{n}"), "bench", now_at))
        finally:
            await pool.close()
        self._keys.write_text("\n".join(written) + "\n")

    def door(self, traffic_class: str, batch: int = 0) -> list[str]:
        """How the client sends messages of a class."""
        assert self._world is not None
        words = [
            *("--port", str(self._world.port), "--keys", str(self._keys), "--class", traffic_class),
            *("--header", "Authorization: Bearer {key}", "--header", "Idempotency-Key: {class}-{seq}"),
        ]
        size = batch or self._batch
        if size == 1:
            return [*words, "--path", "/v1/messages", "--body", _BODY]
        items = ["--batch", str(size), "--item", _BODY, "--body", '{"messages":[{items}]}']
        return [*words, "--path", "/v1/messages/batch", *items]

    def pids(self) -> list[int]:
        """All that counts as the gateway."""
        assert self._world is not None
        return [self._world.root_pid]

    def cpu_s_by_part(self) -> dict[str, float]:
        """Roles and stores."""
        assert self._world is not None
        return cpu_s(self._world)

    def stop(self) -> None:
        """Ends it."""
        if self._world is not None:
            asyncio.run(self._world.stop())
