"""A gateway with two carriers that can be told to misbehave, an endpoint for callbacks, and eyes on all of it."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
from prometheus_client.parser import text_string_to_metric_families

from gateway.supervisor.addresses import free_port
from tests.integration.running_gateway import ROOT, RunningGateway, ask, wait_for

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PATIENCE_S = 60.0
# Small budgets: what takes minutes in life takes seconds here.
POLICY = """
classes:
  otp: {{wait_budget: 6s, ttl: {{default: 60s, max: 10m}}, unconfirmed: resend_once}}
  transactional: {{wait_budget: 8s, ttl: {{default: 5m, max: 1h}}, unconfirmed: hold}}
  marketing: {{wait_budget: 10s, ttl: {{default: 1h, max: 4h}}, when_full: defer, unconfirmed: fail, consent: opt_out}}
  non_priority: {{wait_budget: 10s, ttl: {{default: 1h, max: 4h}}, unconfirmed: fail}}
retries: {{base: 200ms, max: 1s, share: {retry_share}}}
tenant_defaults:
  limits: {{rate_per_s: 1000, burst: 1000}}
  requests: {{rate_per_s: 1000, burst: 1000}}
  classes: [otp, transactional, marketing, non_priority]
  default_class: transactional
  default_sender: Sluicegate
tenants:
  bird:
    applications: {{spring: {{limits: {{rate_per_s: 500, burst: 500}}}}}}
    inbound_numbers: ["60070"]
    callbacks: {{url: "{sink}", secrets: [env:BIRD_CALLBACK_SECRET], events: [final], allow_private: true}}
destinations:
  britain: {{prefixes: ["+44"], limits: {{rate_per_s: 500, burst: 500}}}}
providers:
  north:
    breaker: {{errors: 1.0, of: 10000}}
    sessions:
      n1: {{host: 127.0.0.1, port: {north}, system_id: bird, password: pw, window: 20, response_timeout: 2s, bind: transceiver,
            reconnect: {{base: 200ms, max: 1s}}, limits: {{rate_per_s: 200, burst: 20}}}}
  south:
    breaker: {{errors: 1.0, of: 10000}}
    sessions:
      s1: {{host: 127.0.0.1, port: {south}, system_id: bird, password: pw, window: 10, response_timeout: 2s, bind: transceiver,
            reconnect: {{base: 200ms, max: 1s}}, limits: {{rate_per_s: 2, burst: 1}}}}
routes:
  britain: {{match: {{prefixes: ["+44"]}}, provider: north}}
  france: {{match: {{prefixes: ["+33"]}}, provider: south}}
logs: {{level: {level}}}
"""  # noqa: E501 - lines of YAML
CARRIER = "{{commands: true, answer_delay_ms: 5, receipt_delay_ms: 30, journal: {journal}}}\n"


class Sink(BaseHTTPRequestHandler):
    """Takes callbacks, or says 500 while `broken`."""

    broken = False
    taken = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        kind = type(self)
        self.send_response(500 if kind.broken else 204)
        self.end_headers()
        kind.taken += not kind.broken

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


class Carrier:
    """A simulator in a process of its own that takes orders."""

    def __init__(self, folder: Path, name: str) -> None:
        self.port = free_port()
        self._script = folder / f"{name}.yaml"
        self._journal = folder / f"{name}.jsonl"
        self._script.write_text(CARRIER.format(journal=self._journal))
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Opens its port."""
        words = ["carrier-sim", "--port", str(self.port), "--script", str(self._script)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gateway.cli", *words],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None and self._process.stdout.readline()

    def order(self, **words: Any) -> Any:
        """One line of the simulator's own language; returns what it says."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(words).encode() + b"\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    def stop(self) -> None:
        """Ends without an unbind, as a machine does that fails."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def submits(self) -> list[dict[str, Any]]:
        """What it was given, from its journal."""
        if not self._journal.exists():
            return []
        lines = self._journal.read_bytes().splitlines()
        return [one for line in lines if (one := json.loads(line))["event"] == "submit"]


Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Page:
    """One look at /metrics."""

    samples: dict[tuple[str, Labels], float]

    def values(self, name: str, **labels: str) -> list[float]:
        """Of all processes, those with these labels, numbers only."""
        wanted = labels.items()
        return [
            value
            for (each, has), value in self.samples.items()
            if each == f"sluicegate_{name}" and wanted <= set(has) and not math.isnan(value)
        ]

    def total(self, name: str, **labels: str) -> float:
        """The sum over all processes and other labels."""
        return sum(self.values(name, **labels))

    def largest(self, name: str, **labels: str) -> float:
        """The largest, 0 where there is none."""
        return max(self.values(name, **labels), default=0.0)

    def by(self, name: str, *labels: str) -> Counter[tuple[str, ...]]:
        """Sums by some labels, those that are 0 left out."""
        found: Counter[tuple[str, ...]] = Counter()
        for (each, has), value in self.samples.items():
            if each == f"sluicegate_{name}" and value:
                own = dict(has)
                found[tuple(own[label] for label in labels)] += int(value)
        return found


@dataclass
class Scene:
    """Everything that an incident takes place in."""

    gateway: RunningGateway
    folder: Path
    north: Carrier
    south: Carrier
    sink: type[Sink]
    key: str = ""
    sent: int = 0
    answers: Counter[tuple[int, str]] = field(default_factory=Counter)  # (status, problem code)
    policy: dict[str, Any] = field(default_factory=dict)
    differs: str = ""

    @property
    def policy_file(self) -> Path:
        """The file that was named at the start."""
        return self.folder / "policy.yaml"

    def send(self, to: str, text: str = "hello", **fields: Any) -> Any:
        """One message; what was answered is counted."""
        self.sent += 1
        return self.post({"to": to, "text": text} | fields, f"key-{self.sent}")

    def post(self, body: Any, key: str, path: str = "/v1/messages") -> Any:
        """A submit call with a key of one's own."""
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json", "Idempotency-Key": key}
        status, answer = ask("POST", self.gateway.api_url + path, json.dumps(body).encode(), headers)
        self.answers[status, answer.get("code", "") if isinstance(answer, dict) else ""] += 1
        return answer

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Any other call of the tenant."""
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        return ask(method, self.gateway.api_url + path, None if body is None else json.dumps(body).encode(), headers)

    def page(self) -> Page:
        """/metrics of all processes."""
        status, text = ask("GET", f"{self.gateway.operators_url}/metrics")
        assert status == 200
        found = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found[sample.name, frozenset(sample.labels.items())] = sample.value
        return Page(found)

    def sql(self, query: str, *arguments: Any) -> list[Any]:
        """Rows of the ledger."""

        return asyncio.run(_fetch(self._run()["database_url"], [query], arguments))

    def sql_all(self, queries: list[str]) -> None:
        """Several statements on one connection."""
        asyncio.run(_fetch(self._run()["database_url"], queries, ()))

    def sql_at(self, database: str, query: str, *arguments: Any) -> None:
        """A statement in another database of the server."""
        url = urlsplit(self._run()["database_url"])._replace(path=f"/{database}")
        asyncio.run(_fetch(url.geturl(), [query], arguments))

    def number(self, query: str, *arguments: Any) -> int:
        """One number of the ledger."""
        return int(self.sql(query, *arguments)[0][0] or 0)

    def counts(self, query: str) -> Counter[tuple[str, ...]]:
        """Rows of words with a count at the end."""
        return Counter({tuple(str(word) for word in row[:-1]): row[-1] for row in self.sql(query) if row[-1]})

    def until(self, look: Any, patience_s: float = PATIENCE_S) -> Any:
        """The first true answer."""
        return wait_for(look, patience_s, lambda: f"{self.differs}\n{self.gateway.tell()}")

    def same(self, shown: Any, expected: Any) -> bool:
        """Whether they are equal; what was different last is told when a wait ends in vain."""
        self.differs = "" if shown == expected else f"{shown} is not {expected}"
        return bool(shown == expected)

    def settled(self) -> bool:
        """Nothing waits and nothing is on its way."""
        return not self.number(
            "SELECT count(*) FROM messages WHERE status IN ('queued', 'scheduled')"
        ) and not self.number("SELECT count(*) FROM attempts WHERE outcome IS NULL")

    def lines(self, worker: str, event: str, message_id: str) -> list[Any]:
        """A process's log lines of one event about one message."""
        text = (self.gateway.data_dir / "logs" / f"{worker}.log").read_text(encoding="utf-8", errors="replace")
        found = [json.loads(line) for line in text.splitlines() if message_id in line]
        return [line for line in found if line["event"] == event]

    def pids(self, role: str) -> list[int]:
        """Processes of a role."""
        return [pid for name, pid in self._run()["processes"].items() if name.startswith(role)]

    def _run(self) -> Any:
        return json.loads((self.gateway.data_dir / "run.json").read_text())

    def write_policy(self, **changes: Any) -> None:
        """The policy file, which the gateway watches, with these changes for good."""
        self.policy |= changes
        self.policy_file.write_text(POLICY.format(**self.policy))


async def _fetch(url: str, queries: list[str], arguments: tuple[Any, ...]) -> list[Any]:
    conn = await asyncpg.connect(url)
    try:
        rows: list[Any] = []
        for query in queries:
            rows = list(await conn.fetch(query, *arguments))
        return rows
    finally:
        await conn.close()


@contextmanager
def open_scene(clock: str = "") -> Iterator[Scene]:
    """A running gateway between its carriers; everything ends with the context.

    `clock`: source that Python processes of the gateway run at their start, `{flag}` being a file of the scene.
    """
    folder = Path(tempfile.mkdtemp(prefix="sluicegate-incident-"))
    folder.chmod(0o711)
    sink = type("SinkOfThisScene", (Sink,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    north, south = Carrier(folder, "north"), Carrier(folder, "south")
    environment = {"BIRD_CALLBACK_SECRET": SECRET}
    if clock:
        (folder / "clock").mkdir()
        (folder / "clock" / "sitecustomize.py").write_text(clock.format(flag=str(folder / "ahead")))
        environment["PYTHONPATH"] = str(folder / "clock")
    gateway = RunningGateway(folder / "data", "--policy", str(folder / "policy.yaml"), environment=environment)
    scene = Scene(gateway, folder, north, south, sink)
    scene.write_policy(
        north=north.port,
        south=south.port,
        sink=f"http://127.0.0.1:{server.server_port}/",
        retry_share="0.1",
        level="info",
    )
    try:
        gateway.start()
        words = ("key", "create", "bird", "--scope", "send", "--scope", "read", "--scope", "manage")
        scene.key = gateway.command(*words).stdout.strip()
        scene.until(lambda: scene.page().total("session_state", state="bound") == 2)
        scene.until(lambda: ask("GET", f"{gateway.operators_url}/readyz")[0] == 200)
        yield scene
    finally:
        gateway.stop(signal.SIGTERM)
        for carrier in (north, south):
            carrier.stop()
        server.shutdown()
        server.server_close()
        shutil.rmtree(folder, ignore_errors=True)
