"""A whole gateway of one's own for a run: `sluicegate up`, a carrier with a journal, a tenant with a key."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import redis

READY_WITHIN_S = 400.0  # migrations and three roles on a machine that does much else: minutes at a load of 30
ROOT = Path(__file__).resolve().parent.parent
SHIFTED_CLOCK = ROOT / "loadtests/shifted_clock"
SLUICEGATE = Path(sys.executable).with_name("sluicegate")

# The classes, and the one tenant of a load.
LOAD = """\
classes:
  otp:
    {{wait_budget: {otp_wait_budget_s}s, ttl: {{default: 2m, max: 10m}}, weight: 60, quantum: 1,
     unconfirmed: resend_once, max_attempts: 3}}
  transactional:
    {{wait_budget: 2m, ttl: {{default: 1h, max: 24h}}, weight: 25, quantum: 4, unconfirmed: hold, max_attempts: 5}}
  marketing:
    {{wait_budget: 4h, ttl: {{default: 12h, max: 48h}}, weight: 10, quantum: 32, when_full: refuse,
     unconfirmed: fail, max_attempts: 5}}
tenants:
  load:
    limits: {{rate_per_s: 5000, burst: 5000}}
    requests: {{rate_per_s: 5000, burst: 10000}}
    classes: [otp, transactional, marketing]
    default_class: transactional
    default_sender: "60070"
"""
POLICY = f"""{LOAD}{{callbacks}}providers:
  carrier:
    sessions:
{{sessions}}
routes:
  everything: {{{{match: {{{{}}}}, provider: carrier}}}}
"""
# The secret signs what goes to a sink of the run's own.
CALLBACKS = (
    '    callbacks: {{url: "{url}", secrets: ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], events: [final],'
    " allow_private: true}}\n"
)
SESSION = (
    "      {name}: {{host: 127.0.0.1, port: {port}, system_id: load, password: secret, bind: transceiver, "
    "window: {window}, response_timeout: {response_timeout_ms}ms, reconnect: {{base: 200ms, max: 2s}}}}"
)


def free_port() -> int:
    """A TCP port of loopback that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def wait_for(true: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Wait until a condition holds; raises TimeoutError naming it."""
    end = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        await asyncio.sleep(0.05)


@dataclass(frozen=True, slots=True)
class Shape:
    """What kind of world: sessions, windows, processes, the carrier's manners (`carrier`: more lines of its script).

    The carrier takes its time with answers, so that at 200 messages a second dozens are in flight at any moment.
    `egress` processes run under the supervisor, `strays` more without one: their death is noticed by others alone.
    """

    sessions: int = 2
    window: int = 50
    response_timeout_ms: int = 10_000
    otp_wait_budget_s: int = 10
    answer_delay_ms: int = 120
    receipt_delay_ms: int = 200
    egress: int = 1
    strays: int = 0
    carrier: tuple[tuple[str, str], ...] = ()
    shifting_clock: bool = False  # the wall clock of the gateway's processes can be stepped
    callbacks: str = ""  # URL of the tenant's endpoint, on loopback


@dataclass(frozen=True, slots=True)
class Holder:
    """A living egress process and the sessions that it says it holds."""

    process_id: int
    pid: int
    holds: frozenset[str]


class World:
    """Processes of one run, in a directory of its own."""

    def __init__(self, home: Path, shape: Shape | None = None, policy: str = "") -> None:
        """`policy`: a whole policy instead of the usual one; it names the carrier's port as {port}."""
        self.home = home
        self._own_policy = policy
        self.shape = shape or Shape()
        self.port, self.admin_port, self.carrier_port = free_port(), free_port(), free_port()
        self.journal_path = home / "carrier.jsonl"
        self.url = f"http://127.0.0.1:{self.port}"
        self.bind_port = self.carrier_port  # where sessions connect: a proxy may stand before the carrier
        self.key = ""
        self.settings: dict[str, str] = {}
        """More of the gateway's environment."""
        self.ledger_url = ""
        """Where the ledger is, if the gateway is led to it another way."""
        self._up: subprocess.Popen[bytes] | None = None
        self._carrier: subprocess.Popen[bytes] | None = None
        self._strays: list[subprocess.Popen[bytes]] = []

    @property
    def root_pid(self) -> int:
        """The supervisor, from which every process of the gateway and its stores descends."""
        assert self._up is not None
        return self._up.pid

    @property
    def data_dir(self) -> Path:
        """Where the embedded stores of this run live."""
        return self.home / "data"

    def _spawn(self, name: str, *words: str, **settings: str) -> subprocess.Popen[bytes]:
        env = {k: v for k, v in os.environ.items() if not k.startswith("SLUICEGATE_")} | settings
        if self.shape.shifting_clock and name != "carrier":
            env |= {"PYTHONPATH": str(SHIFTED_CLOCK), "SHIFTED_CLOCK_FILE": str(self._clock_file)}
        with (self.home / f"{name}.log").open("ab") as log:
            return subprocess.Popen([str(SLUICEGATE), *words], stdout=log, stderr=log, env=env, cwd=self.home)

    @property
    def _clock_file(self) -> Path:
        return self.home / "clock"

    def step_clock(self, seconds: float) -> None:
        """How far the wall clock of the gateway's processes is off from now on (`shifting_clock`)."""
        with self._clock_file.open("r+b") as shared:  # the processes have mapped this very file
            shared.write(struct.pack("<q", round(seconds * 1e9)))

    def start_carrier(self) -> None:
        """Start the carrier simulator with a journal."""
        script = self.home / "carrier.yaml"
        script.write_text(
            f"journal: {self.journal_path}\nanswer_delay_ms: {self.shape.answer_delay_ms}\n"
            f"receipt_delay_ms: {self.shape.receipt_delay_ms}\n"
            + "".join(f"{name}: {value}\n" for name, value in self.shape.carrier)
        )
        self._carrier = self._spawn("carrier", "carrier-sim", "--port", str(self.carrier_port), "--script", str(script))

    async def stop_carrier(self) -> None:
        """End the carrier simulator; what it still had to send is lost with it."""
        if self._carrier is not None:
            await asyncio.to_thread(_end, self._carrier, 30)

    def write_policy(self) -> Path:
        """The policy of this run."""
        sessions = "\n".join(
            SESSION.format(
                name=f"s{n}",
                port=self.bind_port,
                window=self.shape.window,
                response_timeout_ms=self.shape.response_timeout_ms,
            )
            for n in range(1, self.shape.sessions + 1)
        )
        path = self.home / "policy.yaml"
        if self._own_policy:
            path.write_text(self._own_policy.replace("{port}", str(self.bind_port)))
            return path
        callbacks = CALLBACKS.format(url=self.shape.callbacks) if self.shape.callbacks else ""
        budget_s = self.shape.otp_wait_budget_s
        path.write_text(POLICY.format(sessions=sessions, otp_wait_budget_s=budget_s, callbacks=callbacks))
        return path

    async def start(self) -> None:
        """Bring everything up; returns when messages can be sent."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.home.chmod(0o755)  # the stores run as an account of their own
        if self.shape.shifting_clock:
            self._clock_file.write_bytes(bytes(8))
            self._clock_file.chmod(0o644)
        self.start_carrier()
        self.write_policy()
        self.start_gateway()
        try:
            await self.wait_ready()
        except BaseException:
            await self.stop()  # nothing of a run that never began may stay behind
            raise
        if not self._own_policy:
            self.key = await asyncio.to_thread(self.new_key, "load")
        for _ in range(self.shape.strays):
            self.add_stray()

    def start_gateway(self) -> None:
        """Start `up` with the policy of this run."""
        self._up = self._spawn(
            "up",
            *(
                "up",
                "--policy",
                str(self.home / "policy.yaml"),
                "--data-dir",
                str(self.data_dir),
                "--port",
                str(self.port),
            ),
            *("--admin-port", str(self.admin_port), "--api-workers", "1"),
            SLUICEGATE_EGRESS_WORKERS=str(self.shape.egress),
            **self.settings,
        )

    def hang_up(self) -> None:
        """SIGHUP to `up`, which tells its roles: they read the policy file again."""
        if self._up is not None:
            self._up.send_signal(signal.SIGHUP)

    async def end_gateway(self) -> int:
        """SIGTERM to `up`; its exit code once it has ended."""
        if self._up is None:
            return 0
        if self._up.poll() is None:
            self._up.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self._up.wait, 90)

    def new_key(self, tenant: str) -> str:
        """A key of a tenant of the policy."""
        return self.command("key", "create", tenant, "--scope", "send", "--scope", "read").strip()

    def add_stray(self) -> None:
        """One more egress process, which no supervisor looks after."""
        name = f"stray-{len(self._strays) + 1}"
        words = ("egress", "--worker", name, "--data-dir", str(self.data_dir))
        # Its own port for health: another gateway of this machine may have the usual one.
        self._strays.append(self._spawn(name, *words, SLUICEGATE_ADMIN_PORT=str(free_port())))

    def ready(self) -> bool:
        """Whether /readyz says so."""
        if self._up is not None and self._up.poll() is not None:
            raise RuntimeError(f"up ended with {self._up.returncode}: see {self.home / 'up.log'}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    async def wait_ready(self) -> None:
        """Returns once /readyz says so; raises TimeoutError. A proxy to a store may run in this very loop."""
        end_mono = time.monotonic() + READY_WITHIN_S
        while not await asyncio.to_thread(self.ready):
            if time.monotonic() > end_mono:
                raise TimeoutError(f"the gateway is ready: not within {READY_WITHIN_S:g} s")
            await asyncio.sleep(0.05)

    def command(self, *words: str) -> str:
        """Run one command of the CLI against this gateway; its standard output."""
        done = subprocess.run(
            [str(SLUICEGATE), *words, "--data-dir", str(self.data_dir)],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self.home,
        )
        if done.returncode != 0:
            raise RuntimeError(f"sluicegate {' '.join(words[:2])}: {done.stderr.strip()}")
        return done.stdout

    def status(self) -> dict[str, Any]:
        """`sluicegate status --json`."""
        found: dict[str, Any] = json.loads(self.command("status", "--json"))
        return found

    def database_url(self) -> str:
        """Where the ledger of this run is."""
        return self.ledger_url or str(json.loads((self.data_dir / "run.json").read_text())["database_url"])

    async def ledger(self) -> asyncpg.Connection:
        """A connection to the ledger of this run."""
        return await asyncpg.connect(self.database_url())

    def told(self, name: str) -> str:
        """The end of what a process of this run wrote (`up`, `carrier`, `stray-1`)."""
        return (self.home / f"{name}.log").read_text(errors="replace")[-2000:]

    async def holders(self) -> list[Holder]:
        """Egress processes that have not ended, by their own last report."""
        ledger = await self.ledger()
        try:
            rows = await ledger.fetch(
                "SELECT id, pid, report FROM processes WHERE role = 'egress' AND ended_at IS NULL"
            )
        finally:
            await ledger.close()
        return [Holder(r["id"], r["pid"], frozenset(json.loads(r["report"]).get("holds", ()))) for r in rows]

    def pids(self, target: str) -> list[int]:
        """Processes of a role or store of this run, by their command lines; `stores` is both."""
        assert self._up is not None
        if target == "stores":
            return self.pids("postgres") + self.pids("valkey")
        if target == "stray":
            return [stray.pid for stray in self._strays if stray.poll() is None]
        marks = {"postgres": "/bin/postgres", "valkey": "valkey-server"}
        mark = marks.get(target, f" {target} ")
        found = []
        for pid in _descendants(self._up.pid):
            words = _command_line(pid)
            if mark in words or (target == "postgres" and words.startswith("postgres:")):
                found.append(pid)
        return found

    def victims(self, target: str, dice: Callable[[list[int]], int]) -> list[int]:
        """Whom a strike hits: one process of a role, or the whole of a store."""
        pids = self.pids(target)
        if not pids:
            raise RuntimeError(f"no process of {target} is running")
        return pids if target in ("postgres", "valkey", "stores") else [dice(pids)]

    def _index(self) -> redis.Redis:
        return redis.Redis.from_url(json.loads((self.data_dir / "run.json").read_text())["redis_url"])

    def flush_index(self) -> None:
        """FLUSHALL: everything that the index knew is gone, scripts included."""
        with self._index() as client:
            client.flushall()
            client.script_flush()
            client.function_flush()

    def save_index(self) -> None:
        """SAVE: what the index knows now is what it comes back with when it is started next."""
        with self._index() as client:
            client.save()

    def forget_saved_index(self) -> None:
        """The next start of the index is an empty one again."""
        for dump in self.data_dir.rglob("dump.rdb"):
            dump.unlink()

    def index_answers(self) -> bool:
        """Whether the index is up and has read what it had to."""
        try:
            with self._index() as client:
                return bool(client.ping())
        except (OSError, redis.RedisError):
            return False

    async def stop(self) -> int:
        """SIGTERM to everything; the exit code of `up`."""
        for stray in self._strays:
            await asyncio.to_thread(_end, stray, 30)
        code = await self.end_gateway()
        await self.stop_carrier()
        return code


def kill(pids: list[int]) -> None:
    """SIGKILL to each; one that is gone already is no fault."""
    send_signal(pids, signal.SIGKILL)


def send_signal(pids: list[int], number: signal.Signals) -> None:
    """A signal to each; one that is gone already is no fault."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _end(process: subprocess.Popen[bytes], within_s: float) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        for child in children.get(todo.pop(), []):
            found.append(child)
            todo.append(child)
    return found


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
