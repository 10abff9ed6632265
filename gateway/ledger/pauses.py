"""Pauses by hand: what operators and tenants hold back, and the end of it (contract sections 1 and 2).

A row of `pauses` is the truth: the index is told and told again, claims look at it, the door passes a paused route by.
Ending a pause leaves a row of `resumptions` until all that follows from it is done (`gateway.ledger.resumptions`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import asyncpg

from scheduler.core.values import valueclass

APPLICATION: Final = "application"
ROUTE: Final = "route"
PROVIDER: Final = "provider"
SESSION: Final = "session"
KINDS: Final = (APPLICATION, ROUTE, PROVIDER, SESSION)
PAUSE: Final = "pause"
DRAIN: Final = "drain"
CHANNEL: Final = "sluicegate_pauses"

_SET = """
INSERT INTO pauses (kind, tenant_id, name, mode, since_at, paused_by) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (kind, tenant_id, name) DO UPDATE SET mode = excluded.mode, paused_by = excluded.paused_by
 WHERE pauses.mode <> excluded.mode
RETURNING 1
"""
_CLEAR = "DELETE FROM pauses WHERE kind = $1 AND tenant_id = $2 AND name = $3 RETURNING since_at"
_FOLLOW = """
INSERT INTO resumptions (kind, tenant_id, name, since_at, until_at) VALUES ($1, $2, $3, $4, $5)
"""
_LIST = """
SELECT p.kind, p.tenant_id, t.name AS tenant, p.name, p.mode, p.since_at, p.paused_by
  FROM pauses p LEFT JOIN tenants t ON t.id = p.tenant_id AND p.tenant_id <> 0
 ORDER BY p.kind, p.tenant_id, p.name
"""
_OF_TENANT = "SELECT name, since_at FROM pauses WHERE kind = 'application' AND tenant_id = $1"
_SESSIONS = "SELECT name, mode FROM pauses WHERE kind = 'session'"
_SPARED = """
SELECT tenant_id, name FROM pauses WHERE kind = 'application'
UNION SELECT tenant_id, name FROM resumptions WHERE kind = 'application'
"""
_AUDIT = "INSERT INTO audit (at, actor, action, detail) VALUES ($1, $2, $3, $4)"
_TELL = "SELECT pg_notify('sluicegate_pauses', '')"


@valueclass
class Place:
    """What can be paused; `tenant_id` and `tenant` are those of an application, else 0 and None."""

    kind: str
    name: str
    tenant_id: int = 0
    tenant: str | None = None

    @property
    def scope(self) -> str:
        """Its name as a scope of the index."""
        return f"{self.kind}:{self.tenant}/{self.name}" if self.kind == APPLICATION else f"{self.kind}:{self.name}"

    @property
    def key(self) -> tuple[str, int, str]:
        """Its key in the ledger."""
        return self.kind, self.tenant_id, self.name


@valueclass
class Pause:
    """A pause that stands: since when (UTC ms) and by whom; `mode` is `pause`, or `drain` of a session."""

    place: Place
    mode: str
    since_at: int
    paused_by: str


async def set_pause(conn: asyncpg.Connection[Any], place: Place, mode: str, by: str, now_at: int) -> bool:
    """Pauses a place; False where it was paused that way already. Written to the audit with who and when."""
    async with conn.transaction():
        if await conn.fetchval(_SET, *place.key, mode, now_at, by) is None:
            return False
        await conn.execute(_AUDIT, now_at, by, f"{place.kind}.{mode}", _detail(place))
        await conn.execute(_TELL)
    return True


async def clear_pause(conn: asyncpg.Connection[Any], place: Place, by: str, now_at: int) -> bool:
    """Ends a pause; False where there was none. What follows is done by the delivery role."""
    async with conn.transaction():
        since_at = await conn.fetchval(_CLEAR, *place.key)
        if since_at is None:
            return False
        if place.kind != SESSION:
            await conn.execute(_FOLLOW, *place.key, since_at, now_at)
        await conn.execute(_AUDIT, now_at, by, f"{place.kind}.resume", _detail(place))
        await conn.execute(_TELL)
    return True


async def list_pauses(conn: asyncpg.Connection[Any]) -> list[Pause]:
    """Every pause that stands."""
    return [
        Pause(
            Place(row["kind"], row["name"], row["tenant_id"], row["tenant"]),
            row["mode"],
            row["since_at"],
            row["paused_by"],
        )
        for row in await conn.fetch(_LIST)
    ]


async def paused_applications(conn: asyncpg.Connection[Any], tenant_id: int) -> dict[str, int]:
    """Name -> since when (UTC ms) of a tenant's applications that are paused."""
    return {row["name"]: row["since_at"] for row in await conn.fetch(_OF_TENANT, tenant_id)}


async def paused_sessions(conn: asyncpg.Connection[Any]) -> dict[str, str]:
    """Session name -> `pause` or `drain`."""
    return {row["name"]: row["mode"] for row in await conn.fetch(_SESSIONS)}


async def spared_applications(conn: asyncpg.Connection[Any]) -> frozenset[tuple[int, str]]:
    """(tenant id, application) whose pause, or what follows it, keeps the wait budget from ending anything."""
    return frozenset((row["tenant_id"], row["name"]) for row in await conn.fetch(_SPARED))


def is_spared(spared: frozenset[tuple[int, str]], row: Mapping[str, Any], now_at: int) -> bool:
    """Whether a message may outlive its `submit_by`: its application is paused and `expires_at` is to come."""
    if not spared or row["submit_begun"] or row["application"] is None:
        return False
    return (row["tenant_id"], row["application"]) in spared and int(row["expires_at"]) > now_at


def _detail(place: Place) -> dict[str, Any]:
    return {"name": place.name} if place.tenant is None else {"name": place.name, "tenant": place.tenant}
