"""Who may see the console: a browser that came by a one-time link or with an operators' key.

The cookie is a secret and its signature: what was never ours is told without a look into the ledger. The session
itself is a row there, so that logging out, or revoking its key, ends it in every process.
"""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass
from hashlib import blake2b, sha256
from ipaddress import ip_network
from typing import Final

from starlette.requests import Request

from gateway.ledger import console_sessions
from gateway.ledger.keys import Key
from gateway.runtime import Runtime

COOKIE: Final = "sluicegate_console"
SESSION_S: Final = 12 * 3600
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{32}")


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who is logged in: how the audit names them, and the token that their forms must carry."""

    actor: str
    csrf: str
    digest: bytes


class Logins:
    """Opens, finds and ends sessions of the console."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._key = blake2b(b"console sessions", digest_size=32, key=rt.pepper[:64]).digest()

    async def begin(self, actor: str, key_id: str | None = None) -> str:
        """A new session; returns the value of its cookie."""
        secret = secrets.token_urlsafe(24)
        now_at = self._rt.clock.now_at()
        async with self._rt.pool.acquire() as conn:
            await console_sessions.begin(conn, _digest(secret), actor, key_id, (now_at, now_at + SESSION_S * 1000))
        return f"{secret}.{self.sign('cookie', secret)}"

    async def visitor(self, request: Request) -> Visitor | None:
        """Who sends this request; None where nobody is logged in. Raises what the ledger raises when it is away."""
        secret, _, signature = request.cookies.get(COOKIE, "").partition(".")
        if not _SECRET.fullmatch(secret) or not hmac.compare_digest(self.sign("cookie", secret), signature):
            return None
        async with self._rt.pool.acquire() as conn:
            row = await console_sessions.find(conn, _digest(secret), self._rt.clock.now_at())
        if row is None:
            return None
        networks = tuple(ip_network(one) for one in row["cidrs"] or ())
        if not Key("", None, None, frozenset(), networks).allows_address(address_of(request)):
            return None
        return Visitor(row["actor"], self.sign("form", secret), _digest(secret))

    async def end(self, visitor: Visitor) -> None:
        """Logs out everywhere."""
        async with self._rt.pool.acquire() as conn:
            await console_sessions.end(conn, visitor.digest, self._rt.clock.now_at())

    def sign(self, purpose: str, text: str) -> str:
        """A signature that only this installation makes, for one purpose."""
        return hmac.digest(self._key, f"{purpose}:{text}".encode(), sha256).hex()


def address_of(request: Request) -> str | None:
    """Where a request comes from."""
    return request.client.host if request.client else None


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("ascii")).digest()
