"""Who is logged in to the console: a row per session, found by the digest of its secret."""

from __future__ import annotations

from typing import Any

import asyncpg

_BEGIN = """
INSERT INTO console_sessions (digest, actor, key_id, begun_at, ends_at) VALUES ($1, $2, $3, $4, $5)
"""
_FIND = """
SELECT s.actor, s.key_id, k.cidrs FROM console_sessions s LEFT JOIN api_keys k ON k.id = s.key_id
 WHERE s.digest = $1 AND s.ended_at IS NULL AND s.ends_at > $2
   AND (s.key_id IS NULL OR (k.revoked_at IS NULL AND coalesce(k.expires_at > $2, true)))
"""
_END = "UPDATE console_sessions SET ended_at = $2 WHERE digest = $1 AND ended_at IS NULL RETURNING actor"
_FORGET = "DELETE FROM console_sessions WHERE ends_at < $1"
_AUDIT = "INSERT INTO audit (at, actor, action, detail) VALUES ($1, $2, $3, $4)"
_S = 2.0


async def begin(
    conn: asyncpg.Connection[Any], digest: bytes, actor: str, key_id: str | None, span: tuple[int, int]
) -> None:
    """Opens a session from one instant to another (UTC ms); those that are over go. The audit says who came."""
    begun_at, ends_at = span
    async with conn.transaction():
        await conn.execute(_FORGET, begun_at)
        await conn.execute(_BEGIN, digest, actor, key_id, begun_at, ends_at)
        await conn.execute(_AUDIT, begun_at, actor, "console.login", {})


async def find(conn: asyncpg.Connection[Any], digest: bytes, now_at: int) -> asyncpg.Record | None:
    """Actor, key and its networks of a session that still counts; a revoked or expired key ends its sessions."""
    return await conn.fetchrow(_FIND, digest, now_at, timeout=_S)


async def end(conn: asyncpg.Connection[Any], digest: bytes, now_at: int) -> bool:
    """Logs out; False where the session was over already."""
    async with conn.transaction():
        actor = await conn.fetchval(_END, digest, now_at)
        if actor is not None:
            await conn.execute(_AUDIT, now_at, actor, "console.logout", {})
    return actor is not None
