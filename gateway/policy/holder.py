"""The policy of one process: what is in force now, and the candidate it has loaded and could use at once.

Told by NOTIFY and by a look each second; decisions read `current`, one frozen snapshot, and never a half of two.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from gateway import logs
from gateway.ledger.connect import LEDGER_ERRORS
from gateway.loops import end
from gateway.policy import secrets, versions
from gateway.policy.applier import error_text
from gateway.policy.rules.faults import PolicyInvalid
from gateway.policy.rules.parse import read_policy
from gateway.policy.rules.snapshot import Policy
from gateway.telemetry import metrics

LOOK_S = 1.0
RETRY_S = 0.25
FRESH_S = 3.0
_log = logs.get("policy")

OnChange = Callable[[Policy], None]


class _Clock(Protocol):
    def now_at(self) -> int: ...


class PolicyHolder:
    """Keeps a process on the version in force and reports in its `processes` row what it has loaded."""

    def __init__(self, pool: Any, clock: _Clock, process_id: int) -> None:
        self._pool = pool
        self._clock = clock
        self._process_id = process_id
        self._role: str | None = None
        self._current: Policy | None = None
        self._candidate: Policy | None = None
        self._reported: tuple[int | None, int | None, str | None] = (None, None, None)
        self._failed: dict[int, str] = {}
        self._in_force: int | None = None
        self._looked_mono = float("-inf")
        self._listeners: list[OnChange] = []
        self._wake = asyncio.Event()
        self._ready = asyncio.Event()
        self._looking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def current(self) -> Policy:
        """The policy in use. None until one is in force (await `ready` once at start; roles then never see None)."""
        return self._current  # type: ignore[return-value]  # None only before `ready`

    @property
    def in_step(self) -> bool:
        """Whether this process uses the version that was in force at a look no older than 3 s.

        A process out of step neither admits nor claims (design section 4).
        """
        fresh = time.monotonic() - self._looked_mono <= FRESH_S
        return fresh and self._current is not None and self._current.version == self._in_force

    async def start(self) -> None:
        """Looks once, then keeps looking in the background; raises what PostgreSQL raises at the first look."""
        self._role = await self._pool.fetchval("SELECT role FROM processes WHERE id = $1", self._process_id)
        await self._look(self._pool)
        self._task = asyncio.get_running_loop().create_task(self._follow(), name="policy")

    async def stop(self) -> None:
        """Ends the background look."""
        if self._task is not None:
            await end([self._task])
            self._task = None

    async def ready(self) -> Policy:
        """Waits until a policy is in use."""
        await self._ready.wait()
        return self.current

    def on_change(self, callback: OnChange) -> None:
        """Calls back with each new policy in use, on the event loop; the callback must not block or raise."""
        self._listeners.append(callback)

    async def look(self) -> None:
        """Looks at once instead of at the next second."""
        await self._look(self._pool)

    async def _follow(self) -> None:
        while True:
            try:
                async with self._pool.acquire() as conn:
                    await conn.add_listener(versions.CHANNEL, self._notified)
                    try:
                        await self._keep_looking(conn)
                    finally:
                        with suppress(*LEDGER_ERRORS):
                            await conn.remove_listener(versions.CHANNEL, self._notified)
            except LEDGER_ERRORS as error:
                _log.warning("policy_look_failed", error=type(error).__name__)
            except Exception as error:
                # A bug must not leave this process on an old version for ever: out of step, it says so and looks again.
                _log.error("policy_look_crashed", exc_info=error)
            await asyncio.sleep(RETRY_S)

    async def _keep_looking(self, conn: Any) -> None:
        while not conn.is_closed():
            self._wake.clear()
            await self._look(conn)
            # Not wait_for: on Python 3.11 it loses a cancellation that comes in the same turn as the event.
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()

    def _notified(self, _conn: Any, _pid: int, _channel: str, _payload: object) -> None:
        self._wake.set()

    async def _look(self, conn: Any) -> None:
        async with self._looking:
            await self._look_alone(conn)

    async def _look_alone(self, conn: Any) -> None:
        active, candidate = await versions.newest(conn)
        self._in_force = active
        self._looked_mono = time.monotonic()
        if active is not None and (self._current is None or self._current.version != active):
            await self._switch(conn, active)
        elif active is not None and active in self._failed:
            await self._check_again(active)
        if candidate is not None and (active is None or candidate > active) and not self._has_tried(candidate):
            self._candidate = await self._load(conn, candidate, strict=True)
        await self._report(conn)

    async def _check_again(self, version: int) -> None:
        """Of a version in use without a secret: the file may have been put there since."""
        if not await asyncio.to_thread(secrets.check, self.current, self._role or ""):
            del self._failed[version]

    def _has_tried(self, version: int) -> bool:
        return version in self._failed or (self._candidate is not None and self._candidate.version == version)

    async def _switch(self, conn: Any, version: int) -> None:
        """Uses the version in force. A missing secret is reported and does not keep it out: others use it already."""
        if self._candidate is not None and self._candidate.version == version:
            policy: Policy | None = self._candidate
        elif version in self._failed and self._failed[version].startswith("invalid"):
            return
        else:
            policy = await self._load(conn, version, strict=False)
        if policy is None:
            return
        self._current, self._candidate = policy, None
        self._failed = {failed: why for failed, why in self._failed.items() if failed >= version}
        metrics.policy_version.set(version)
        _log.info("policy_in_use", version=version)
        self._ready.set()
        for callback in self._listeners:
            try:
                callback(policy)
            except Exception as error:
                _log.error("policy_callback_failed", version=version, exc_info=error)

    async def _load(self, conn: Any, version: int, *, strict: bool) -> Policy | None:
        source = await versions.source_of(conn, version)
        if source is None:
            return None
        try:
            # In a thread: a policy of thousands of tenants takes longer than a message may wait for the loop.
            policy = await asyncio.to_thread(read_policy, source, version)
        except PolicyInvalid as invalid:
            self._fail(version, f"invalid for this process: {invalid.faults[0]}")
            return None
        missing = await asyncio.to_thread(secrets.check, policy, self._role or "")
        if missing:
            self._fail(version, "; ".join(missing))
            return None if strict else policy
        self._failed.pop(version, None)
        return policy

    def _fail(self, version: int, why: str) -> None:
        self._failed[version] = why
        _log.error("policy_not_loaded", version=version, reason=why)

    async def _report(self, conn: Any) -> None:
        in_use = self._current.version if self._current is not None else None
        loaded = max((one.version for one in (self._current, self._candidate) if one is not None), default=None)
        newest = max(self._failed, default=None)
        error = None if newest is None else error_text(newest, [self._failed[newest]])
        if (in_use, loaded, error) == self._reported:
            return
        await conn.execute(
            "UPDATE processes SET policy_version = $2, policy_loaded = $3, policy_error = $4 WHERE id = $1",
            self._process_id,
            in_use,
            loaded,
            error,
        )
        self._reported = (in_use, loaded, error)
