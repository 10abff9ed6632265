"""Accounts: made by the command line, by an operator, or because a policy names them (contract section 3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import asyncpg

from gateway.policy.rules import scalars

_INSERT = "INSERT INTO tenants (name, created_at) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING RETURNING id"
_AUDIT = "INSERT INTO audit (at, actor, action, detail) VALUES ($1, $2, 'tenant.create', $3)"
_LIST = """
SELECT t.id, t.name, t.created_at, count(k.id) FILTER (WHERE k.revoked_at IS NULL) AS keys
  FROM tenants t LEFT JOIN api_keys k ON k.tenant_id = t.id
 GROUP BY t.id ORDER BY t.name
"""


class TenantRefused(ValueError):
    """An account cannot be made as asked; the text says why."""


async def create(conn: asyncpg.Connection[Any], name: str, by: str, now_at: int) -> int:
    """Makes an account and returns its id; raises TenantRefused for a bad or taken name."""
    try:
        scalars.name(name)  # the rule for names in the policy, which may name this account
    except ValueError as error:
        raise TenantRefused(f"a tenant cannot be named so: {error}") from error
    async with conn.transaction():
        tenant_id = await conn.fetchval(_INSERT, name, now_at)
        if tenant_id is None:
            raise TenantRefused(f"there is a tenant {name} already")
        await conn.execute(_AUDIT, now_at, by, {"tenant": name})
    return int(tenant_id)


async def ids_by_name(conn: asyncpg.Connection[Any], names: Iterable[str]) -> dict[str, int]:
    """Row ids of the accounts that exist among these names."""
    wanted = sorted(set(names))
    if not wanted:
        return {}
    rows = await conn.fetch("SELECT id, name FROM tenants WHERE name = ANY ($1::text[])", wanted)
    return {row["name"]: row["id"] for row in rows}


async def list_all(conn: asyncpg.Connection[Any]) -> list[dict[str, Any]]:
    """Every account by name with the number of its live keys."""
    return [dict(row) for row in await conn.fetch(_LIST)]
