"""`sluicegate up`: stores, schema, policy, roles and the operators' port of one machine, until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from pydantic import SecretStr

from gateway import logs
from gateway.api.certificate import certificate_of
from gateway.embedded import child
from gateway.embedded.home import Home
from gateway.ledger.connect import LEDGER_ERRORS, connect
from gateway.ledger.migrate import migrate
from gateway.loops import end
from gateway.operators.app import build_app, not_ready
from gateway.operators.desk import Desk
from gateway.operators.server import OperatorsServer
from gateway.policy import versions
from gateway.policy.entry import watch_file
from gateway.runtime import NO_SESSION, Runtime
from gateway.settings import Settings
from gateway.supervisor import addresses, greeting
from gateway.supervisor.first_policy import demo, from_file, port_of_demo, speaks_to
from gateway.supervisor.parts import Part
from gateway.supervisor.plan import Crew, plan_crew, simulator_part
from gateway.supervisor.role import read_policy_again
from gateway.supervisor.run_file import NAME, RunFile
from gateway.supervisor.stores import Stores

# After that the greeting says what is missing. A carrier may stay away for hours; everything else is this machine's and
# may be slow: who pastes the greeting's line should not meet an index that is still being built.
READY_S, OWN_READY_S = 15.0, 90.0
_LOG_MAX = 64 << 20
_LOG_LOOK_S = 20.0
_log = logs.get("supervisor")
_END_ROWS = """
UPDATE processes SET ended_at = $1
 WHERE ended_at IS NULL AND ($2::integer IS NULL OR pid = $2) AND ($3::text IS NULL OR host = $3)
"""


class Supervisor:
    """One run of everything on one machine."""

    def __init__(self, settings: Settings, tell: Callable[[str], None]) -> None:
        self._settings = settings
        self._tell = tell
        self._stop = asyncio.Event()
        self._hurry = False
        self._background: set[asyncio.Task[None]] = set()
        self._home = Home(settings.data_dir)
        self._crew = Crew([], [])
        self._simulator: Part | None = None

    async def run(self) -> int:
        """Runs until SIGINT or SIGTERM; 0 after an orderly end.

        Raises DataDirectoryRefused, AddressInUse, StartRefused, MigrationRefused where it cannot start.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._asked_to_stop)
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
        async with AsyncExitStack() as stack:
            settings = self._settings
            certificate_of(settings)  # a fault is told here, not by every worker in turn
            self._home.hold()
            stack.callback(self._home.release)
            tenant_port = addresses.listen(
                settings.host, settings.port, "--host, --port or SLUICEGATE_HOST, SLUICEGATE_PORT"
            )
            stack.callback(tenant_port.close)
            operators_port = addresses.listen(
                settings.admin_host, settings.admin_port, "--admin-port or SLUICEGATE_ADMIN_PORT"
            )
            stack.callback(operators_port.close)
            stores = Stores(settings, self._home)
            stack.push_async_callback(stores.stop)
            await stores.start()
            await migrate(stores.database_url)
            await self._end_rows_of_before(stores)
            if self._stop.is_set():
                return 0
            await self._run_roles(stack, stores, tenant_port, operators_port)
        return 1 if self._hurry else 0

    async def _run_roles(
        self, stack: AsyncExitStack, stores: Stores, tenant_port: socket.socket, operators_port: socket.socket
    ) -> None:
        settings = self._settings.model_copy(
            update={
                "database_url": stores.database_url,
                "redis_url": stores.redis_url,
                "data_key": self._settings.data_key or SecretStr(self._home.secret("data_key", octets=32)),
            }
        )
        former_port, simulator_port = await self._simulator_ports(stores)
        first = (
            from_file(settings.policy, tell=self._tell)
            if settings.policy is not None
            else demo(simulator_port, former_port)
        )
        rt = await stack.enter_async_context(Runtime.open(settings, "supervisor", "up", first_policy=first))
        if speaks_to(rt.policies.current, simulator_port):
            self._simulator = simulator_part(self._home, simulator_port)
        self._crew = plan_crew(
            settings, self._home, stores, tenant_port.fileno(), self._declare_dead(stores.database_url)
        )
        token = secrets.token_urlsafe(32)
        desk = Desk(rt, token=token, neighbours=lambda: self._crew.neighbours)
        stack.push_async_callback(desk.close)
        desk.watch()
        await stack.enter_async_context(OperatorsServer(build_app(desk), operators_port))
        stack.push_async_callback(self._stop_crew)
        for part in self._parts():
            part.launch()
        run = RunFile(
            pid=os.getpid(),
            api_url=addresses.url_of(tenant_port, "http" if settings.tls_certificate is None else "https"),
            operators_url=addresses.url_of(operators_port),
            operators_token=token,
            database_url=stores.database_url,
            redis_url=stores.redis_url,
        )
        run.write(self._home.directory)
        stack.callback(lambda: (self._home.directory / NAME).unlink(missing_ok=True))
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: self._reload(rt))
        if settings.policy is not None:
            rt.spawn(watch_file(rt, settings.policy), "policy file")
        if await self._until_ready(desk):
            self._tell(await greeting.text(rt, run, desk.links.issue(), self._home))
            await self._look_after(rt, run, stores)
        self._tell("stopping: no new work, what is in hand is finished")
        rt.stopping.set()

    def _parts(self) -> list[Part]:
        return [*([self._simulator] if self._simulator else []), *self._crew.parts]

    async def _until_ready(self, desk: Desk) -> bool:
        begun = time.monotonic()
        while not self._stop.is_set():
            reason = await not_ready(desk)
            if reason is None:
                return True
            if time.monotonic() - begun > (READY_S if NO_SESSION in reason else OWN_READY_S):
                self._tell(f"not ready yet: {reason}; the logs are in {self._home.directory / 'logs'}")
                return True
            await asyncio.sleep(0.05)
        return False

    async def _look_after(self, rt: Runtime, run: RunFile, stores: Stores) -> None:
        told: dict[str, int] = {}
        bounded_mono = 0.0
        failed = asyncio.create_task(rt.stopping.wait())
        stop = asyncio.create_task(self._stop.wait())
        while not (stop.done() or failed.done()):
            pids = {part.name: part.pid for part in (*stores.parts, *self._parts()) if part.pid is not None}
            if pids != told:
                told = run.processes = pids
                run.write(self._home.directory)
            if time.monotonic() - bounded_mono > _LOG_LOOK_S:
                bounded_mono = time.monotonic()
                await asyncio.to_thread(_bound_logs, self._home.directory / "logs")
            await asyncio.wait({stop, failed}, timeout=2.0, return_when=asyncio.FIRST_COMPLETED)
        for task in (stop, failed):
            task.cancel()
        self._hurry = self._hurry or rt.failure is not None

    async def _stop_crew(self) -> None:
        """The door first, then what it feeds; receipts and callbacks last, and the simulator after them."""
        order = ("api", "egress", "delivery")
        for role in order:
            await asyncio.gather(*(part.stop() for part in self._crew.parts if part.name.startswith(role)))
        if self._simulator is not None:
            await self._simulator.stop()
        await end(self._background)

    def _asked_to_stop(self) -> None:
        if self._stop.is_set():
            # A second signal: whoever sends it does not want to wait for the drain.
            self._hurry = True
            for part in self._parts():
                part.stopping = True
                part.tell(signal.SIGKILL)
        self._stop.set()

    def _reload(self, rt: Runtime) -> None:
        for part in self._crew.parts:
            part.tell(signal.SIGHUP)
        read_policy_again(rt)

    def _declare_dead(self, database_url: str) -> Callable[[int], None]:
        def died(pid: int) -> None:
            task = asyncio.get_running_loop().create_task(self._end_row(database_url, pid))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

        return died

    async def _end_row(self, database_url: str, pid: int) -> None:
        # Others may take over its sessions at once; while PostgreSQL is away nobody could anyway.
        died_at = int(time.time() * 1000)
        while not self._stop.is_set():
            try:
                connection = await connect(database_url)
                try:
                    await connection.execute(
                        _END_ROWS + " AND started_at < $4", died_at, pid, socket.gethostname(), died_at
                    )
                    return
                finally:
                    await connection.close()
            except LEDGER_ERRORS as error:
                _log.warning("dead_process_not_told", pid=pid, error=type(error).__name__)
            await asyncio.sleep(0.5)

    async def _end_rows_of_before(self, stores: Stores) -> None:
        connection = await connect(stores.database_url)
        try:
            now_at = int(time.time() * 1000)
            if stores.embedded_database:
                await connection.execute(_END_ROWS, now_at, None, None)  # we hold the lock: nobody else uses it
                return
            here = socket.gethostname()
            rows = await connection.fetch("SELECT pid FROM processes WHERE ended_at IS NULL AND host = $1", here)
            for pid in {row["pid"] for row in rows if not child.alive(row["pid"])}:
                await connection.execute(_END_ROWS, now_at, pid, here)
        finally:
            await connection.close()

    async def _simulator_ports(self, stores: Stores) -> tuple[int, int]:
        """The port of the run before, and the one of this run: the same unless another program has it now.

        A restored directory knows of no run before: there the policy in force names the port.
        """
        kept: str | int | None = self._home.recall("simulator_port")
        if kept is None:
            connection = await connect(stores.database_url)
            try:
                kept = port_of_demo(await versions.active(connection))
            finally:
                await connection.close()
        former = int(kept) if kept is not None else addresses.free_port()
        port = former if addresses.port_free(former) else addresses.free_port()
        self._home.remember("simulator_port", str(port))
        return former, port


def _bound_logs(folder: Path) -> None:
    for path in folder.glob("*.log"):
        with suppress(OSError):
            if path.stat().st_size > _LOG_MAX:
                shutil.copyfile(path, path.with_suffix(".log.1"))
                os.truncate(path, 0)  # the writers append, so they go on at the new end
