"""One applier at a time: enters a version, waits until every live member has loaded it, then puts it in force.

All-or-nothing (contract section 3, design section 4): a member that lags or lacks a secret keeps the old version in
force everywhere. A version's number is never given to another text.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

from gateway import logs
from gateway.policy import versions
from gateway.policy.rules.faults import PolicyInvalid
from gateway.policy.rules.parse import read_policy
from gateway.policy.rules.snapshot import Policy
from gateway.telemetry import metrics

MEMBERS = ("api", "egress", "delivery")
HEARTBEAT_MAX_MS = 3_000
PATIENCE_S = 2.0
_LOCK = 0x51_CE_90_11
_LOCK_PATIENCE_S = 10.0
_LOOK_S = 0.05
# Pods see a changed ConfigMap up to two minutes apart.
_SAME_NEWS_MS = 180_000
# Only of the newest rows: audit has no index but its ids, and what others did in between is little.
_TOLD = """
WITH newest AS (SELECT * FROM audit ORDER BY id DESC LIMIT 100)
SELECT EXISTS (
    SELECT FROM newest WHERE action = 'policy.invalid' AND actor = $1 AND detail = $2 AND at >= $3
       AND NOT EXISTS (SELECT FROM newest later WHERE later.id > newest.id AND starts_with(later.action, 'policy.')))
"""
_log = logs.get("policy")
P = TypeVar("P")


class PolicyRefused(Exception):
    """The version is valid but not every live process can use it; the text names the processes."""


class PolicyBusy(PolicyRefused):
    """Another policy is being applied for longer than one waits; the same again may do."""


class _Clock(Protocol):
    def now_at(self) -> int: ...


class Stores(Protocol):
    """What of the runtime is needed here."""

    @property
    def pool(self) -> Any: ...
    @property
    def clock(self) -> _Clock: ...


class Applier:
    """Applies policies to an installation."""

    def __init__(self, rt: Stores, *, patience_s: float = PATIENCE_S) -> None:
        self._rt = rt
        self._patience_s = patience_s

    async def apply(self, source: str, by: str, note: str = "") -> int:
        """Puts a policy in force and returns its version; one that is in force already keeps its number.

        Raises PolicyInvalid with all faults, PolicyRefused naming the processes; both leave the old version in force.
        """
        _, policy = await self._read(lambda: (source, read_policy(source)), by)
        async with self._turn() as conn:
            in_force = await versions.active(conn)
            if in_force is not None and in_force[1] == source:
                return _unchanged(in_force[0])
            return await self._enter(conn, policy, source, by, note)

    async def apply_latest(self, read: Callable[[], str], by: str, *, unless_known: bool = False) -> int | None:
        """Puts in force what `read` finds once it is this applier's turn, so that no older text comes after a newer.

        With `unless_known` a text that was in force before is left alone: None where another is in force now.
        Raises what `apply` raises, and PolicyInvalid of `read`.
        """
        async with self._turn() as conn:
            in_force = await versions.active(conn)
            source, policy = await self._read(lambda: _parsed(read(), in_force), by, among_watchers=conn)
            if policy is None:
                assert in_force is not None
                return in_force[0] if unless_known else _unchanged(in_force[0])
            if unless_known and in_force is not None:
                known = await versions.known(conn, versions.digest_of(source))
                if known is not None:
                    _log.warning("policy_file_applied_before", version=known, in_force=in_force[0])
                    return None
            return await self._enter(conn, policy, source, by, "")

    async def _read(self, read: Callable[[], tuple[str, P]], by: str, *, among_watchers: Any = None) -> tuple[str, P]:
        """In a thread: thousands of tenants take longer to read than a message may wait for the loop.

        `among_watchers` is the connection that has the turn, where others may judge the same file.
        """
        try:
            return await asyncio.to_thread(read)
        except PolicyInvalid as invalid:
            await self._tell_invalid(invalid, by, among_watchers)
            raise

    async def rollback(self, version: int, by: str) -> int:
        """Puts an earlier text in force again, as a new version; raises LookupError, PolicyInvalid, PolicyRefused."""
        async with self._rt.pool.acquire() as conn:
            source = await versions.source_of(conn, version)
        if source is None:
            raise LookupError(f"there is no policy version {version}")
        return await self.apply(source, by, note=f"rollback to {version}")

    async def _enter(self, conn: Any, policy: Policy, source: str, by: str, note: str) -> int:
        async with conn.transaction():
            await conn.execute(
                "UPDATE policy_versions SET note = $2 WHERE note = $1",
                versions.CANDIDATE,
                f"{versions.REFUSED}its applier went away",
            )
            version = await versions.insert(conn, source, by, versions.CANDIDATE, self._rt.clock.now_at())
            await conn.execute("SELECT pg_notify($1, $2)", versions.CHANNEL, f"candidate {version}")
        reason = await self._await_members(conn, version)
        if reason is not None:
            await self._refuse(conn, version, by, reason)
            raise PolicyRefused(f"policy version {version} is not in force: {reason}")
        async with conn.transaction():
            now_at = self._rt.clock.now_at()
            await versions.create_tenants(conn, list(policy.tenants), now_at)
            await versions.activate(conn, version)
            await versions.set_note(conn, version, _plain(note))
            await _audit(conn, now_at, by, "policy.applied", {"version": version, "note": note})
            await conn.execute("SELECT pg_notify($1, $2)", versions.CHANNEL, f"active {version}")
        metrics.policy_reloads_total.labels("applied").inc()
        _log.info("policy_applied", version=version, by=by)
        return version

    async def _refuse(self, conn: Any, version: int, by: str, reason: str) -> None:
        async with conn.transaction():
            await versions.set_note(conn, version, versions.REFUSED + reason)
            await _audit(conn, self._rt.clock.now_at(), by, "policy.refused", {"version": version, "reason": reason})
        metrics.policy_reloads_total.labels("refused").inc()
        _log.error("policy_refused", version=version, by=by, reason=reason)

    async def _await_members(self, conn: Any, version: int) -> str | None:
        """None once all live members have loaded the version, else why not."""
        until = time.monotonic() + self._patience_s
        while True:
            rows = await conn.fetch(
                "SELECT id, role, worker, pid, host, policy_loaded, policy_error FROM processes"
                " WHERE ended_at IS NULL AND role = ANY($1::text[]) AND heartbeat_at > $2 ORDER BY id",
                list(MEMBERS),
                self._rt.clock.now_at() - HEARTBEAT_MAX_MS,
            )
            waiting = [row for row in rows if (row["policy_loaded"] or 0) < version]
            failed = [row for row in waiting if _error_of(row, version) is not None]
            if failed:
                return "; ".join(f"{_process(row)}: {_error_of(row, version)}" for row in failed)
            if not waiting:
                return None
            if time.monotonic() >= until:
                named = ", ".join(map(_process, waiting))
                return f"{named} did not load it within {self._patience_s:g} s"
            await asyncio.sleep(_LOOK_S)

    async def _tell_invalid(self, invalid: PolicyInvalid, by: str, among_watchers: Any) -> None:
        metrics.policy_reloads_total.labels("invalid").inc()
        faults = [str(fault) for fault in invalid.faults[:50]]
        _log.error("policy_invalid", by=by, faults=faults)
        now_at = self._rt.clock.now_at()
        if among_watchers is not None:  # atomic: whoever has the turn looks and enters
            if not await among_watchers.fetchval(_TOLD, by, {"faults": faults}, now_at - _SAME_NEWS_MS):
                await _audit(among_watchers, now_at, by, "policy.invalid", {"faults": faults})
            return
        async with self._rt.pool.acquire() as conn:
            await _audit(conn, now_at, by, "policy.invalid", {"faults": faults})

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[Any]:
        """A connection that holds the applier's lock."""
        async with self._rt.pool.acquire() as conn:
            until = time.monotonic() + _LOCK_PATIENCE_S
            while not await conn.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK):
                if time.monotonic() >= until:
                    raise PolicyBusy("another policy is being applied: try again")
                await asyncio.sleep(_LOOK_S)
            try:
                yield conn
            finally:
                await _unlock(conn)


async def _unlock(conn: Any) -> None:
    # A lock that cannot be given back must not go into the pool with its connection.
    try:
        if not conn.is_closed():
            await conn.execute("SELECT pg_advisory_unlock($1)", _LOCK)
    except BaseException:
        conn.terminate()
        raise


def _parsed(source: str, in_force: tuple[int, str] | None) -> tuple[str, Policy | None]:
    """A text with its policy, or without where it is in force already."""
    return source, None if in_force is not None and in_force[1] == source else read_policy(source)


def _unchanged(version: int) -> int:
    metrics.policy_reloads_total.labels("unchanged").inc()
    return version


def error_text(version: int, faults: list[str]) -> str:
    """How a member says in processes.policy_error that it cannot use a version."""
    return f"{version}: {'; '.join(faults)}"[:1000]


def _plain(note: str) -> str:
    """A note that is not taken for the marks of a candidate or of a refusal."""
    return f"note: {note}" if note == versions.CANDIDATE or note.startswith(versions.REFUSED) else note


def _error_of(row: Any, version: int) -> str | None:
    head, _, text = (row["policy_error"] or "").partition(": ")
    return text if head == str(version) else None


def _process(row: Any) -> str:
    return f"process {row['role']} {row['worker']} (pid {row['pid']} on {row['host']})"


async def _audit(conn: Any, now_at: int, actor: str, action: str, detail: dict[str, Any]) -> None:
    await conn.execute(
        "INSERT INTO audit (at, actor, action, detail) VALUES ($1, $2, $3, $4)", now_at, actor, action, detail
    )
