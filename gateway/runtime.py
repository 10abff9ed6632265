"""What every role stands on: stores, clock, policy, scheduler, its own row among the processes, and its orderly end."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import asyncpg
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway import figures, logs
from gateway.clock import Clock
from gateway.ledger import data_keys, migrate, restores
from gateway.ledger.connect import LEDGER_ERRORS, open_pool
from gateway.loops import end
from gateway.policy import versions
from gateway.policy.applier import Applier
from gateway.policy.holder import PolicyHolder
from gateway.policy.rules.parse import read_policy
from gateway.policy.rules.snapshot import Policy
from gateway.sealing import KeyUnreadable, Sealer, read_key
from gateway.settings import Settings
from gateway.telemetry import begin_at_zero, metrics
from scheduler.store.scheduler import Scheduler

HEARTBEAT_S = 2.0
NO_SESSION = "no session is bound"  # the one reason for not being ready that lies with somebody else
_BEAT_S = 10.0  # a beat that takes longer has failed: the ledger does not answer
_POOL_MAX = 10
_POOL_CLOSE_S = 1.0
_START_PATIENCE_S = 60.0
_POLICY_TOLD_S = 0.5  # a policy that is in force is loaded within this time
_log = logs.get("runtime")


class StartRefused(Exception):
    """A role cannot start; the text says what is missing."""


class DeclaredDead(Exception):
    """This process's row was ended by someone else: its claims may belong to others now, so it must not go on."""


class Runtime:
    """The shared parts of one running role; made by `Runtime.open`."""

    def __init__(
        self, settings: Settings, role: str, worker: str, pool: asyncpg.Pool[Any], client: redis.asyncio.Redis
    ) -> None:
        self.settings = settings
        self.role = role
        self.worker = worker
        self.pool = pool
        self.redis = client
        self.clock = Clock()
        self.scheduler = Scheduler(client, settings.cell)
        self.process_id = 0
        self.pepper = b""
        self.sealer: Sealer
        self.policies: PolicyHolder
        self.applier: Applier
        self.stopping = asyncio.Event()
        self.report: dict[str, Any] = {}
        self.tenants_told: Callable[[], dict[str, Any]] = dict  # set by a door: what each tenant got from it
        self.failure: BaseException | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        settings: Settings,
        role: str,
        worker: str,
        *,
        first_policy: Callable[[Runtime], Awaitable[None]] | None = None,
    ) -> AsyncIterator[Runtime]:
        """Connects, registers the process, loads the policy, and undoes all of it in order at the end.

        `first_policy` may apply one before the role waits for an active policy. Raises StartRefused.
        """
        if not settings.database_url or not settings.redis_url:
            raise StartRefused(
                "SLUICEGATE_DATABASE_URL and SLUICEGATE_REDIS_URL are needed (or start everything with `sluicegate up`)"
            )
        async with AsyncExitStack() as stack:
            pool = await _open_pool(settings.database_url)
            stack.push_async_callback(_close_pool, pool)
            client = open_redis(settings.redis_url)
            stack.push_async_callback(client.aclose)
            rt = cls(settings, role, worker, pool, client)
            stack.push_async_callback(rt.scheduler.aclose)
            with suppress(Exception):  # Redis may come later; the clock is doubtful until it answers
                await rt.clock.measure(client)
            begin_at_zero()
            await rt._register()
            stack.push_async_callback(rt._unregister)
            await rt._load_keys()
            rt.policies = PolicyHolder(pool, rt.clock, rt.process_id)
            rt.applier = Applier(rt)
            rt.policies.on_change(rt._set_log_level)
            stack.push_async_callback(rt._cancel_tasks)
            rt.spawn(rt._beat(), "heartbeat")
            rt.spawn(rt.clock.follow(client, rt._tell_clock), "clock")
            await rt.policies.start()
            stack.push_async_callback(rt.policies.stop)
            if first_policy is not None:
                await first_policy(rt)
            await rt._await_policy()
            yield rt

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Starts a background task; its crash stops the process with an error in the log."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def fail(self, error: BaseException, task: str) -> None:
        """Begins the end of this process because something broke that must not break."""
        if self.failure is None:
            self.failure = error
        _log.error("task_crashed", task=task, exc_info=error)
        self.stopping.set()

    async def not_ready(self) -> str | None:
        """Why this role cannot do its work now; None when it can."""
        try:
            await asyncio.wait_for(self.pool.fetchval("SELECT 1"), 2.0)
        except LEDGER_ERRORS:
            return "PostgreSQL does not answer"
        try:
            await asyncio.wait_for(self.redis.ping(), 2.0)
            epoch = await asyncio.wait_for(self.scheduler.epoch_state(), 2.0)
        except Exception:
            return "Redis does not answer"
        if epoch != "ready":
            return "the index is being rebuilt"
        if self.stopping.is_set():
            return "stopping"
        own = self.report.get("not_ready")
        return None if own is None else str(own)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error, task.get_name())

    async def _register(self) -> None:
        row = await self.pool.fetchrow("SELECT pepper FROM instance")
        if row is None:
            raise StartRefused("the database has no installation row: run `sluicegate migrate`")
        self.pepper = bytes(row["pepper"])
        now_at = self.clock.now_at()
        await self._notice_restore(now_at)
        self.process_id = await self.pool.fetchval(
            "INSERT INTO processes (role, worker, pid, host, started_at, heartbeat_at)"
            " VALUES ($1, $2, $3, $4, $5, $5) RETURNING id",
            self.role, self.worker, os.getpid(), socket.gethostname(), now_at,
        )  # fmt: skip

    async def _notice_restore(self, now_at: int) -> None:
        """Before anything is done: a database that came back from a backup is put under review first."""
        async with self.pool.acquire() as conn:
            in_force = await versions.active(conn)
            policy = None if in_force is None else read_policy(in_force[1], in_force[0])
            if await restores.notice(conn, self.pepper, policy, now_at):
                _log.warning("database_restored", action="look at `sluicegate restored`: providers are paused")

    async def _load_keys(self) -> None:
        keys = data_keys_of(self.settings)
        async with self.pool.acquire() as conn:
            try:
                self.sealer = await data_keys.load(conn, keys, self.clock.now_at())
            except data_keys.KeyMissing as error:
                raise StartRefused(str(error)) from None
        self.report["data_key"] = self.sealer.current

    async def _unregister(self) -> None:
        with suppress(*LEDGER_ERRORS):
            await asyncio.wait_for(
                self.pool.execute(
                    "UPDATE processes SET ended_at = $2 WHERE id = $1 AND ended_at IS NULL",
                    self.process_id,
                    self.clock.now_at(),
                ),
                3.0,
            )

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            self.report["figures"] = figures.read(self.clock.now_at(), self.role, self.tenants_told())
            try:
                done = await self.pool.execute(
                    "UPDATE processes SET heartbeat_at = $2, report = $3 WHERE id = $1 AND ended_at IS NULL",
                    self.process_id, self.clock.now_at(), self.report, timeout=_BEAT_S,
                )  # fmt: skip
            except LEDGER_ERRORS as error:
                metrics.ledger_answers.labels(self.role).set(0)
                _log.warning("heartbeat_failed", error=type(error).__name__)
                continue
            metrics.ledger_answers.labels(self.role).set(1)
            if done == "UPDATE 0" and not self.stopping.is_set():
                raise DeclaredDead

    async def _await_policy(self) -> None:
        """Returns once a policy is in use, or when the process begins to stop before there was one."""
        ready = asyncio.ensure_future(self.policies.ready())
        stopping = asyncio.ensure_future(self.stopping.wait())
        waits = {ready, stopping}
        timeout_s: float | None = _POLICY_TOLD_S
        try:
            while not (await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED))[0]:
                _log.warning("waiting_for_policy", action="apply one with `sluicegate policy apply FILE`")
                timeout_s = None
        finally:
            ready.cancel()
            stopping.cancel()

    def _set_log_level(self, policy: Policy) -> None:
        logs.set_level(policy.logs.level or self.settings.log_level)

    def _tell_clock(self, clock: Clock) -> None:
        metrics.clock_offset_seconds.labels(self.role).set(clock.offset_ms / 1000)
        metrics.clock_doubtful.labels(self.role).set(int(clock.doubtful))
        metrics.index_answers.labels(self.role).set(int(clock.answered))

    async def _cancel_tasks(self) -> None:
        await end(list(self._tasks))


def data_keys_of(settings: Settings) -> list[bytes]:
    """The data keys that the settings give, the current one first; raises StartRefused."""
    if settings.data_key is None:
        raise StartRefused(
            "SLUICEGATE_DATA_KEY is needed: it encrypts texts at rest. Make one with `openssl rand -base64 32` and give"
            " the same to every role"
        )
    given = [settings.data_key.get_secret_value()]
    if settings.data_keys_before is not None:
        given += [one for one in settings.data_keys_before.get_secret_value().split(",") if one.strip()]
    try:
        return list(dict.fromkeys(read_key(one) for one in given))
    except KeyUnreadable as error:
        raise StartRefused(f"SLUICEGATE_DATA_KEY, SLUICEGATE_DATA_KEYS_BEFORE: {error}") from None


def open_redis(url: str) -> redis.asyncio.Redis:
    """A client that gives up in time and never repeats a command: whether one ran is the caller's to judge."""
    return redis.asyncio.Redis.from_url(
        url,
        socket_connect_timeout=2.0,
        socket_timeout=5.0,
        retry=Retry(NoBackoff(), 0),
        max_connections=256,
        decode_responses=False,
    )


async def _open_pool(url: str) -> asyncpg.Pool[Any]:
    until = time.monotonic() + _START_PATIENCE_S
    while True:
        try:
            lacking = await migrate.missing(url)
            if not lacking:
                return await open_pool(url, min_size=1, max_size=_POOL_MAX)
            reason = f"the database lacks {', '.join(lacking)}: run `sluicegate migrate`"
        except (OSError, TimeoutError, asyncpg.CannotConnectNowError) as error:
            reason = f"PostgreSQL does not answer ({type(error).__name__})"
        except asyncpg.PostgresError as error:
            raise StartRefused(f"PostgreSQL refuses: {error}") from error
        if time.monotonic() > until:
            raise StartRefused(reason)
        _log.warning("waiting_for_database", reason=reason)
        await asyncio.sleep(1.0)


async def _close_pool(pool: asyncpg.Pool[Any]) -> None:
    # Every task has ended before this: a connection that is still held waits for a server that does not answer.
    try:
        await asyncio.wait_for(pool.close(), _POOL_CLOSE_S)
    except TimeoutError:
        pool.terminate()
