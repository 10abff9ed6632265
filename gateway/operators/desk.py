"""What the operators' pages stand on: the runtime, who may come in, and the pages of the other processes."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import Request

from gateway.api.door import Door
from gateway.ledger.keys import ADMIN, KeyRing
from gateway.runtime import Runtime

COOKIE = "sluicegate_console"
LINK_S = 24 * 3600.0
SESSION_S = 12 * 3600.0
_HELD_MAX = 1_000


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
    ends: dict[bytes, float] = field(default_factory=dict)

    def issue(self) -> str:
        """A new secret; the oldest go when there are too many."""
        now_mono = time.monotonic()
        self.ends = {digest: end for digest, end in self.ends.items() if end > now_mono}
        while len(self.ends) >= _HELD_MAX:
            del self.ends[next(iter(self.ends))]
        secret = secrets.token_urlsafe(24)
        self.ends[_digest(secret)] = now_mono + self.lifetime_s
        return secret

    def holds(self, secret: str) -> bool:
        """True while this secret counts. Looked up by digest: nothing to learn from the time it takes."""
        return self.ends.get(_digest(secret), 0.0) > time.monotonic()

    def redeem(self, secret: str) -> bool:
        """True once: the secret is spent."""
        return self.ends.pop(_digest(secret), 0.0) > time.monotonic()


class Desk:
    """Shared by all pages of one operators' port."""

    def __init__(
        self, rt: Runtime, *, token: str | None = None, neighbours: Callable[[], list[Neighbour]] = list
    ) -> None:
        self.rt = rt
        self.neighbours = neighbours
        self.links = Pass(LINK_S)
        self.sessions = Pass(SESSION_S)
        self._door: Door | None = None
        self._keys = KeyRing(rt.pool, rt.clock)
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
        key = await self._keys.verify(written)
        if key is None or ADMIN not in key.scopes:
            return None
        return f"key {key.id}" if key.allows_address(request.client.host if request.client else None) else None

    def has_console(self, request: Request) -> bool:
        """True for a browser that came by a login link."""
        return self.sessions.holds(request.cookies.get(COOKIE, ""))


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
