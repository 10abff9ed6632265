"""API keys (contract section 2; reliability section 5, lines 1-5): made, listed, revoked, and verified at every call.

A key reads `sg_<id>_<secret><checksum>`. The ledger holds the id and the SHA-256 of the secret, which is shown once.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, Final

import asyncpg

from gateway.clock import Clock
from scheduler.core.values import valueclass

SEND, READ, MANAGE, ADMIN = "send", "read", "manage", "admin"
TENANT_SCOPES: Final = frozenset({SEND, READ, MANAGE})

_PREFIX = "sg"
_ID_OCTETS, _SECRET_OCTETS = 6, 24  # 192 bit of secret
_ID_LENGTH, _SECRET_LENGTH, _CHECKSUM_LENGTH = 12, 48, 8
_CACHE_S = 4.0  # a revocation works everywhere within five seconds, and nobody has to be told of it
_CACHED_MAX = 10_000
_USED_EVERY_MS = 60_000
_LOADED_AT_ONCE = 500
_NO_DIGEST = bytes(32)

# Any number of keys; the order in which two processes note the use of the same keys must not matter.
_FETCH = """
SELECT k.id, k.digest, k.tenant_id, t.name AS tenant, k.scopes, k.cidrs, k.expires_at, k.revoked_at, k.last_used_at
  FROM api_keys k LEFT JOIN tenants t ON t.id = k.tenant_id
 WHERE k.id = ANY ($1::text[])
"""
# When a key was last used is good to know, and nothing is owed for it: no wait for the disk.
_NOTE_USE = """
WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true) AS is_set), free AS MATERIALIZED (
    SELECT k.id FROM api_keys k CROSS JOIN quick WHERE k.id = ANY ($1::text[]) AND quick.is_set = 'off'
       FOR UPDATE OF k SKIP LOCKED
)
UPDATE api_keys k SET last_used_at = $2 FROM free WHERE k.id = free.id
"""
_LIST = """
SELECT k.id, t.name AS tenant, k.scopes, k.cidrs, k.created_at, k.expires_at, k.revoked_at, k.last_used_at
  FROM api_keys k LEFT JOIN tenants t ON t.id = k.tenant_id
 ORDER BY k.created_at, k.id
"""
_INSERT = """
INSERT INTO api_keys (id, tenant_id, digest, scopes, cidrs, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_AUDIT = "INSERT INTO audit (at, actor, action, detail) VALUES ($1, $2, $3, $4)"


class KeyRefused(ValueError):
    """A key cannot be made as asked; the text says what to change."""


@valueclass
class Key:
    """A verified key: whose it is and what it may do. `tenant_id` is None for an operators' key."""

    id: str
    tenant_id: int | None
    tenant: str | None
    scopes: frozenset[str]
    networks: tuple[IPv4Network | IPv6Network, ...]

    def allows_address(self, address: str | None) -> bool:
        """Whether the key may be used from an address; a key without networks may be used from anywhere."""
        if not self.networks:
            return True
        try:
            source = ip_address(address or "")
        except ValueError:
            return False
        mapped = getattr(source, "ipv4_mapped", None)
        return any((mapped or source) in network for network in self.networks)


@valueclass
class KeyWish:
    """A key to be made. `tenant` is None for an operators' key; `expires_at` is UTC ms."""

    tenant: str | None
    scopes: Sequence[str] = ()
    cidrs: Sequence[str] = ()
    expires_at: int | None = None


@valueclass
class _Kept:
    digest: bytes
    key: Key
    expires_at: int | None
    revoked: bool


async def create(conn: asyncpg.Connection[Any], wish: KeyWish, by: str, now_at: int) -> str:
    """Makes a key and returns it: the only moment at which it is readable.

    An operators' key has the scope `admin` alone; a tenant's key without scopes may send and read.
    Raises KeyRefused for an unknown tenant, scope or network.
    """
    tenant_id = None
    scopes = [ADMIN]
    if wish.tenant is not None:
        tenant_id = await conn.fetchval("SELECT id FROM tenants WHERE name = $1", wish.tenant)
        if tenant_id is None:
            raise KeyRefused(f"there is no tenant {wish.tenant}: create it first")
        scopes = sorted(set(wish.scopes)) or [READ, SEND]
        if unknown := sorted(set(scopes) - TENANT_SCOPES):
            raise KeyRefused(f"unknown scope {unknown[0]}: a key may have {', '.join(sorted(TENANT_SCOPES))}")
    cidrs = [_network(text) for text in wish.cidrs]
    key_id, secret = secrets.token_hex(_ID_OCTETS), secrets.token_hex(_SECRET_OCTETS)
    async with conn.transaction():
        await conn.execute(_INSERT, key_id, tenant_id, _digest(secret), scopes, cidrs, now_at, wish.expires_at)
        await conn.execute(_AUDIT, now_at, by, "key.create", {"key": key_id, "tenant": wish.tenant, "scopes": scopes})
    return _written(key_id, secret)


async def list_all(conn: asyncpg.Connection[Any]) -> list[asyncpg.Record]:
    """Every key with its tenant's name, oldest first; neither secrets nor digests."""
    return list(await conn.fetch(_LIST))


async def revoke(conn: asyncpg.Connection[Any], key_id: str, by: str, now_at: int) -> bool:
    """Ends a key everywhere within five seconds; False where there is no such key that is live."""
    async with conn.transaction():
        done = await conn.fetchval(
            "UPDATE api_keys SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL RETURNING id", key_id, now_at
        )
        if done is not None:
            await conn.execute(_AUDIT, now_at, by, "key.revoke", {"key": key_id})
    return done is not None


class KeyRing:
    """Verifies keys; what the ledger said is believed for four seconds.

    Keys that are asked for while others are being read are read together: with many tenants each call brings another.
    """

    def __init__(self, pool: asyncpg.Pool[Any], clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, _Kept | None]] = OrderedDict()
        self._loading: dict[str, asyncio.Future[_Kept | None]] = {}
        self._wanted: list[str] = []
        self._reader: asyncio.Task[None] | None = None

    async def verify(self, written: str) -> Key | None:
        """The key that a text is, or None. Raises what the ledger's connection raises when it is away."""
        parts = _read(written)
        if parts is None:
            return None
        key_id, secret = parts
        kept = await self._look_up(key_id)
        # An unknown id costs the same comparison as a known one.
        same = hmac.compare_digest(_digest(secret), _NO_DIGEST if kept is None else kept.digest)
        if kept is None or not same or kept.revoked:
            return None
        if kept.expires_at is not None and self._clock.now_at() >= kept.expires_at:
            return None
        return kept.key

    async def _look_up(self, key_id: str) -> _Kept | None:
        cached = self._kept.get(key_id)
        if cached is not None and self._clock.now_mono() - cached[0] < _CACHE_S:
            return cached[1]
        loading = self._loading.get(key_id)
        if loading is None:
            loading = self._loading[key_id] = asyncio.get_running_loop().create_future()
            self._wanted.append(key_id)
            if self._reader is None:
                self._reader = asyncio.create_task(self._read_wanted(), name="keys")
        return await asyncio.shield(loading)

    async def _read_wanted(self) -> None:
        """Reads until nobody waits for a key any more."""
        try:
            while self._wanted:
                asked, self._wanted = self._wanted[:_LOADED_AT_ONCE], self._wanted[_LOADED_AT_ONCE:]
                # Counted from the question: an answer that took its time may be older than a revocation.
                asked_mono = self._clock.now_mono()
                try:
                    found = await self._load(asked)
                except Exception as error:  # each who waits hears of it
                    for key_id in asked:
                        self._answer(key_id, error)
                    continue
                except BaseException:
                    for key_id in asked:
                        self._loading.pop(key_id).cancel()
                    raise
                for key_id in asked:
                    kept = found.get(key_id)
                    self._kept[key_id] = (asked_mono, kept)
                    self._kept.move_to_end(key_id)
                    self._answer(key_id, kept)
                while len(self._kept) > _CACHED_MAX:
                    self._kept.popitem(last=False)
        finally:
            self._reader = None

    def _answer(self, key_id: str, answer: _Kept | Exception | None) -> None:
        waiting = self._loading.pop(key_id)
        if waiting.done():
            return
        if isinstance(answer, Exception):
            waiting.set_exception(answer)
            waiting.exception()  # seen, also where whoever asked has gone
        else:
            waiting.set_result(answer)

    async def _load(self, key_ids: Sequence[str]) -> dict[str, _Kept]:
        async with self._pool.acquire(timeout=0.25) as conn:
            rows = await conn.fetch(_FETCH, key_ids, timeout=2.0)
            now_at = self._clock.now_at()
            unnoted_at = now_at - _USED_EVERY_MS
            used = [row["id"] for row in rows if row["last_used_at"] is None or row["last_used_at"] < unnoted_at]
            if used:
                await conn.execute(_NOTE_USE, used, now_at, timeout=2.0)
        return {row["id"]: _kept(row) for row in rows}


def _kept(row: Mapping[str, Any]) -> _Kept:
    key = Key(
        row["id"],
        row["tenant_id"],
        row["tenant"],
        frozenset(row["scopes"]),
        tuple(ip_network(cidr) for cidr in row["cidrs"]),
    )
    return _Kept(bytes(row["digest"]), key, row["expires_at"], row["revoked_at"] is not None)


def _written(key_id: str, secret: str) -> str:
    head = f"{_PREFIX}_{key_id}_{secret}"
    return head + _checksum(head)


def _read(written: str) -> tuple[str, str] | None:
    """Id and secret of a text that can be a key; its checksum spares the ledger what cannot."""
    if len(written) != len(_PREFIX) + 2 + _ID_LENGTH + _SECRET_LENGTH + _CHECKSUM_LENGTH or not written.isascii():
        return None
    head, checksum = written[:-_CHECKSUM_LENGTH], written[-_CHECKSUM_LENGTH:]
    prefix, key_id, secret = [*head.split("_", 2), "", ""][:3]
    if prefix != _PREFIX or len(key_id) != _ID_LENGTH or not hmac.compare_digest(_checksum(head), checksum):
        return None
    return key_id, secret


def _checksum(head: str) -> str:
    return f"{zlib.crc32(head.encode('ascii')):08x}"


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("ascii")).digest()


def _network(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError:
        raise KeyRefused(f"{text} is not a network in CIDR form") from None
