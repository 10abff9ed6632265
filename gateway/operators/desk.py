"""What the operators' pages stand on: the runtime, who may come in, and the pages of the other processes."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from starlette.requests import Request

from gateway import logs
from gateway.api.authentication import Failures
from gateway.api.door import Door
from gateway.console.history import History, Told
from gateway.ledger.connect import LEDGER_ERRORS
from gateway.ledger.keys import ADMIN, Key, KeyRing
from gateway.operators.look import STALE_MS
from gateway.runtime import Runtime

LINK_S = 24 * 3600.0
_HELD_MAX = 1_000
HISTORY_S = 2.0
_log = logs.get("operators")
_FIGURES = """
SELECT id, started_at, report->'figures' AS figures FROM processes
 WHERE ended_at IS NULL AND heartbeat_at > $1 AND report ? 'figures'
"""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The operators' page of another process on this machine."""

    role: str
    worker: str
    socket: str


@dataclass(slots=True)
class Pass:
    """Secrets that were handed out, kept as digests until they end (monotonic seconds)."""

    lifetime_s: float
    ends: dict[bytes, tuple[float, str]] = field(default_factory=dict)

    def issue(self, by: str = "local operator") -> str:
        """A new secret that is given out by somebody; the oldest go when there are too many."""
        now_mono = time.monotonic()
        self.ends = {digest: kept for digest, kept in self.ends.items() if kept[0] > now_mono}
        while len(self.ends) >= _HELD_MAX:
            del self.ends[next(iter(self.ends))]
        secret = secrets.token_urlsafe(24)
        self.ends[_digest(secret)] = (now_mono + self.lifetime_s, by)
        return secret

    def holds(self, secret: str) -> bool:
        """True while this secret counts. Looked up by digest: nothing to learn from the time it takes."""
        return self.ends.get(_digest(secret), (0.0, ""))[0] > time.monotonic()

    def redeem(self, secret: str) -> str | None:
        """Who gave the secret out, once: it is spent then. None where it does not count."""
        end_mono, by = self.ends.pop(_digest(secret), (0.0, ""))
        return by if end_mono > time.monotonic() else None


class Desk:
    """Shared by all pages of one operators' port."""

    def __init__(
        self, rt: Runtime, *, token: str | None = None, neighbours: Callable[[], list[Neighbour]] = list
    ) -> None:
        self.rt = rt
        self.neighbours = neighbours
        self.links = Pass(LINK_S)
        self.history = History()
        self._door: Door | None = None
        self._keys = KeyRing(rt.pool, rt.clock)
        self.failures = Failures(rt.clock)
        self._token = _digest(token) if token else None

    def door(self) -> Door:
        """The door for messages sent by hand, opened at the first of them."""
        if self._door is None:
            self._door = Door(self.rt)
            self._door.start()
        return self._door

    async def close(self) -> None:
        """Ends the door after what it accepted is written and queued."""
        if self._door is not None:
            await self._door.stop()

    async def actor(self, request: Request) -> str | None:
        """Who asks, by bearer token: the local command line, or an operators' key; None where neither."""
        scheme, _, written = request.headers.get("authorization", "").partition(" ")
        written = written.strip()
        if scheme.lower() != "bearer" or not written:
            return None
        if self._token is not None and hmac.compare_digest(self._token, _digest(written)):
            return "local operator"
        address = request.client.host if request.client else None
        if self.failures.too_many(address):
            return None
        key = await self.operators_key(written)
        if key is None:
            self.failures.note(address)
            return None
        return f"key {key.id}" if key.allows_address(address) else None

    async def operators_key(self, written: str) -> Key | None:
        """The operators' key that a text is, or None."""
        key = await self._keys.verify(written)
        return key if key is not None and ADMIN in key.scopes else None

    def watch(self) -> None:
        """Begins to keep the history that the console draws, until the process stops."""
        self.rt.spawn(self._watch(), "console history")

    async def _watch(self) -> None:
        while not self.rt.stopping.is_set():
            try:
                await self.look()
            except LEDGER_ERRORS as error:
                _log.debug("console_history_gap", error=type(error).__name__)
            with suppress(TimeoutError):
                async with asyncio.timeout(HISTORY_S):
                    await self.rt.stopping.wait()

    async def look(self) -> None:
        """Takes one look at what every process told last."""
        now_at = self.rt.clock.now_at()
        rows = await self.rt.pool.fetch(_FIGURES, now_at - STALE_MS)
        self.history.take([Told(row["id"], row["started_at"], row["figures"]) for row in rows], now_at)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
