"""What a callback costs: the sender alone against a sink that keeps its connections, in CPU seconds per 1,000.

Run it: python -m loadtests.callback_cost [--callbacks N] [--endpoints N] [--host NAME]. Rows are written before the
clock starts; the sink runs in a process of its own and is not counted. PostgreSQL is counted apart.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import orjson
import uvloop

from gateway.callbacks.client import Client
from gateway.callbacks.sender import Sender
from gateway.clock import Clock
from gateway.embedded import child
from gateway.embedded.home import Home
from gateway.embedded.postgres import PostgresServer
from gateway.ledger.callback_lines import TenantNotice, add_notices
from gateway.ledger.connect import open_pool
from gateway.ledger.migrate import migrate
from gateway.policy.rules.parse import read_policy
from gateway.policy.rules.snapshot import Policy
from gateway.sealing import Sealer

_TICKS = os.sysconf("SC_CLK_TCK")
_POLICY = """
tenants:
{tenants}
providers:
  carrier: {{sessions: {{c1: {{host: 127.0.0.1, port: 2775, system_id: a, password: b, bind: transceiver}}}}}}
routes:
  main: {{match: {{}}, provider: carrier}}
"""
_TENANT = (
    '  t{n}: {{callbacks: {{url: "http://{host}:{port}/hooks/{n}", events: [all],'
    " secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw], allow_private: true}}}}"
)
# As large as what a delivered message's callback carries.
_DATA = {
    "id": "msg_0199f3a6c1d27c3e8a4b5c6d7e8f9a0b", "status": "delivered", "final": True, "origin": "carrier",
    "class": "transactional", "to": "+447700900123", "from": "ACME", "segments": 1, "encoding": "gsm7",
    "created_at": "2030-01-31T09:00:00.000Z", "submit_by": "2030-01-31T09:02:00.000Z",
    "expires_at": "2030-01-31T10:00:00.000Z", "not_before": None, "route": "everywhere", "predicted_wait_ms": 12,
    "application": None, "client_ref": "order-4711", "metadata": {}, "policy_version": 7,
    "delivery": {"state": "delivered", "provider": "carrier", "error_code": "000",
                 "done_at": "2030-01-31T09:00:01.000Z", "received_at": "2030-01-31T09:00:01.100Z", "conflict": False},
    "expiry": None, "error": None, "possible_duplicate": False, "seq": 4,
}  # fmt: skip


class Sink(asyncio.Protocol):
    """Answers 200 to every request of a keep-alive connection with the headers that a web framework sends."""

    ANSWER = (
        b"HTTP/1.1 200 OK\r\ndate: Thu, 31 Jan 2030 09:00:01 GMT\r\nserver: sink\r\ncontent-length: 2\r\n"
        b"content-type: application/json\r\n\r\n{}"
    )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        self._transport: Any = transport
        self._held = b""

    def data_received(self, data: bytes) -> None:
        """Answers every whole request."""
        self._held += data
        while (head := self._held.find(b"\r\n\r\n")) >= 0:
            lowered = self._held[:head].lower()
            at = lowered.find(b"content-length:")
            size = int(lowered[at + 15 :].partition(b"\r\n")[0]) if at >= 0 else 0
            if len(self._held) < head + 4 + size:
                return
            self._held = self._held[head + 4 + size :]
            self._transport.write(self.ANSWER)


@dataclass
class _Policies:
    current: Policy


@dataclass
class _Settings:
    database_url: str


@dataclass
class _Runtime:
    """What of a runtime the sender asks for."""

    settings: _Settings
    pool: asyncpg.Pool[Any]
    clock: Clock
    policies: _Policies
    sealer: Sealer
    stopping: asyncio.Event = field(default_factory=asyncio.Event)


async def sink() -> None:
    """The sink's process: tells its port and serves until it is ended."""
    server = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def measure(database_url: str, pid: int, port: int, wanted: argparse.Namespace) -> dict[str, float]:
    """One run: seconds of CPU and of time per 1,000 callbacks."""
    tenants = "\n".join(_TENANT.format(n=n, host=wanted.host, port=port) for n in range(wanted.endpoints))
    policy = read_policy(_POLICY.format(tenants=tenants), 1)
    pool = await open_pool(database_url)
    rt = _Runtime(_Settings(database_url), pool, Clock(), _Policies(policy), Sealer({1: bytes(32)}, 1))
    await _fill(pool, policy, wanted)
    async with Client() as client:
        cpu_before, server_before, began = time.process_time(), _cpu_of(pid), time.monotonic()
        sender: Any = Sender(rt, client)  # type: ignore[arg-type]
        task = asyncio.create_task(sender.run())
        while await pool.fetchval("SELECT EXISTS (SELECT FROM callbacks)"):
            await asyncio.sleep(0.1)
        took, cpu, server = time.monotonic() - began, time.process_time() - cpu_before, _cpu_of(pid) - server_before
        rt.stopping.set()
        await task
    await pool.close()
    thousands = wanted.callbacks / 1000
    return {
        "cpu_s_per_1000": round(cpu / thousands, 4),
        "postgres_cpu_s_per_1000": round(server / thousands, 4),
        "callbacks_per_s": round(wanted.callbacks / took, 1),
    }


async def _fill(pool: asyncpg.Pool[Any], policy: Policy, wanted: argparse.Namespace) -> None:
    async with pool.acquire() as conn:
        ids = []
        for n in range(wanted.endpoints):
            await conn.execute("INSERT INTO tenants (name, created_at) VALUES ($1, 0) ON CONFLICT DO NOTHING", f"t{n}")
            ids.append(await conn.fetchval("SELECT id FROM tenants WHERE name = $1", f"t{n}"))
        about = await conn.fetchval("SELECT gen_random_uuid()")
        for begin in range(0, wanted.callbacks, 500):
            notices = [
                TenantNotice(ids[n % wanted.endpoints], "message.delivered", about, _DATA)
                for n in range(begin, min(begin + 500, wanted.callbacks))
            ]
            await add_notices(conn, policy, notices, int(time.time() * 1000))


def _cpu_of(pid: int) -> float:
    """CPU seconds of a process and everything below it, the ended ones included."""
    total = 0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(entry.parent.name) == pid:
            total += sum(map(int, words[11:15]))
        elif int(words[1]) == pid:
            total += int(words[11]) + int(words[12])
    return total / _TICKS


def main() -> None:
    """Three runs, the median one shown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--callbacks", type=int, default=10_000)
    parser.add_argument("--endpoints", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--host", default="localhost", help="a name is looked up, an address is not")
    parser.add_argument("--sink", action="store_true", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.sink:
        uvloop.run(sink())
        return
    other = subprocess.Popen(
        [sys.executable, "-m", "loadtests.callback_cost", "--sink"], stdout=subprocess.PIPE, text=True
    )
    home = Home(Path(tempfile.mkdtemp(prefix="callback-cost-")))
    home.hold()
    server = PostgresServer(home)
    server.start()
    try:
        assert other.stdout is not None and server.child is not None
        port = int(other.stdout.readline())
        uvloop.run(server.ready())
        url = server.url("sluicegate")
        uvloop.run(migrate(url))
        runs = [uvloop.run(measure(url, server.child.pid, port, wanted)) for _ in range(wanted.runs)]
        runs.sort(key=lambda run: run["cpu_s_per_1000"])
        print(orjson.dumps(runs[len(runs) // 2] | vars(wanted), option=orjson.OPT_INDENT_2).decode())
    finally:
        other.kill()
        if server.child is not None:
            child.stop_now(server.child, signal.SIGINT)
        home.release()


if __name__ == "__main__":
    main()
