"""The owner: this process's advisory locks on a direct connection, its heartbeat, and whether it may still write.

The server ends the connection after eight silent seconds, so a process that was stopped and wakes up has lost its locks
before it can write: `may_write` looks at the monotonic time of the last heartbeat, not at a flag (design section 4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import asyncpg

from gateway import logs
from gateway.clock import Clock
from gateway.egress.store_line import STORE_ERRORS
from gateway.ledger import owners
from gateway.ledger.connect import connect

TRUST_S: Final = 6.0  # below the server's idle_session_timeout, so that we stop before our locks can go
RETAKE_S: Final = 10.0
_STATEMENT_S: Final = 4.0
_RETRY_S: Final = 0.5
_log = logs.get("egress.owner")


class DeclaredDead(Exception):
    """Others have ended this process's row and closed its claims: it must not go on under this id."""


class Owner:
    """Holds the locks of one process. `lost` is told the sessions whose lock could not be taken again in time."""

    def __init__(self, url: str, owner_id: int, clock: Clock, lost: Callable[[frozenset[str]], None]) -> None:
        self._url = url
        self._owner_id = owner_id
        self._clock = clock
        self._lost = lost
        self._held: set[str] = set()
        self._connection: asyncpg.Connection[Any] | None = None
        self._confirmed_mono = float("-inf")
        self._turn = asyncio.Lock()  # one statement at a time on the connection
        self._broken = asyncio.Event()
        self._reconnected: list[Callable[[], None]] = []

    @property
    def held(self) -> frozenset[str]:
        """Sessions that are ours (during a reconnect: that were)."""
        return frozenset(self._held)

    def may_write(self) -> bool:
        """Whether the locks are surely ours at this very moment."""
        return self._connection is not None and self._clock.now_mono() - self._confirmed_mono < TRUST_S

    def on_reconnect(self, call: Callable[[], None]) -> None:
        """Calls back after each time that the locks were taken again."""
        self._reconnected.append(call)

    async def start(self) -> None:
        """Connects and takes this process's own lock. Raises one of STORE_ERRORS."""
        await self._connect()

    async def run(self) -> None:
        """Keeps the connection and the heartbeat until cancelled; raises DeclaredDead."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(owners.HEARTBEAT_S):
                    await self._broken.wait()
            self._broken.clear()
            try:
                await self._beat()
            except STORE_ERRORS as fault:
                _log.warning("owner_connection_lost", error=type(fault).__name__)
                self._disconnect()
                await self._come_back()

    async def take(self, session: str) -> bool:
        """Takes the lock of a session; False where another process has it or the ledger is away."""
        taken = await self._ask(lambda conn: owners.take_session(conn, session))
        if taken:
            self._held.add(session)
        return bool(taken)

    async def release(self, session: str) -> None:
        """Gives the lock of a session up."""
        self._held.discard(session)
        await self._ask(lambda conn: owners.release_session(conn, session))

    async def take_account(self, account: str) -> bool:
        """Takes the right to bind with an account: one attempt at a time in the whole installation."""
        return bool(await self._ask(lambda conn: owners.take_account(conn, account)))

    async def release_account(self, account: str) -> None:
        """Another may bind now."""
        await self._ask(lambda conn: owners.release_account(conn, account))

    async def close(self) -> None:
        """Gives up every lock."""
        self._held.clear()
        held, self._connection = self._connection, None
        if held is not None and not held.is_closed():
            with suppress(*STORE_ERRORS):
                await held.close(timeout=2.0)

    async def _beat(self) -> None:
        async with self._turn:
            conn = self._connection
            if conn is None or conn.is_closed():
                raise ConnectionError("the owner's connection is gone")
            asked_mono = self._clock.now_mono()
            alive = await owners.beat(conn, self._owner_id, self._clock.now_at())
            self._confirmed_mono = asked_mono
        if not alive:
            raise DeclaredDead

    async def _come_back(self) -> None:
        """Connects and takes everything again; sessions not got back within RETAKE_S are lost."""
        until_mono = self._clock.now_mono() + RETAKE_S
        while self._connection is None:
            with suppress(*STORE_ERRORS):
                await self._connect()
                break
            if self._held and self._clock.now_mono() >= until_mono:
                self._give_up(self.held)
            await asyncio.sleep(_RETRY_S)
        missing = self.held
        while missing and self._connection is not None:
            missing = frozenset([name for name in missing if not await self.take(name)])
            if missing and self._clock.now_mono() >= until_mono:
                self._give_up(missing)
                break
            if missing:
                await asyncio.sleep(_RETRY_S)
        for call in self._reconnected:
            call()

    def _give_up(self, names: frozenset[str]) -> None:
        _log.error("session_locks_lost", sessions=sorted(names))
        self._held -= names
        self._lost(names)

    async def _connect(self) -> None:
        async with self._turn:
            conn = await connect(
                self._url, command_timeout=_STATEMENT_S, timeout=_STATEMENT_S, server_settings=owners.OWNER_SETTINGS
            )
            try:
                asked_mono = self._clock.now_mono()
                if not await owners.take_owner(conn, self._owner_id):
                    raise ConnectionError("the owner's lock is still held by the connection before")
                alive = await owners.beat(conn, self._owner_id, self._clock.now_at())
            except BaseException:
                conn.terminate()
                raise
            if not alive:
                conn.terminate()
                raise DeclaredDead
            self._broken.clear()
            conn.add_termination_listener(self._terminated)
            self._connection, self._confirmed_mono = conn, asked_mono

    def _terminated(self, conn: Any) -> None:
        """The server or the network ended the connection: our locks are gone, nothing more may be written."""
        if conn is self._connection:
            self._confirmed_mono = float("-inf")
            self._broken.set()

    def _disconnect(self) -> None:
        held, self._connection = self._connection, None
        self._confirmed_mono = float("-inf")
        if held is not None:
            held.terminate()

    async def _ask(self, question: Callable[[asyncpg.Connection[Any]], Awaitable[Any]]) -> Any:
        async with self._turn:
            conn = self._connection
            if conn is None or conn.is_closed():
                return None
            try:
                return await question(conn)
            except STORE_ERRORS as fault:
                _log.warning("owner_statement_failed", error=type(fault).__name__)
                # Nobody knows whether the server took or freed that lock; what it took would be held for nobody, as
                # long as this connection lives. A new one begins with none, and takes again what is ours.
                conn.terminate()
                self._terminated(conn)
                return None
