"""What tenants used of their day: accepted segments, as the daily cap counts them."""

from __future__ import annotations

from datetime import date
from typing import Any, Final

import asyncpg

_OF_DAY: Final = """
SELECT t.id, t.name, coalesce(sum(u.segments), 0)::bigint AS segments
  FROM tenants t LEFT JOIN daily_usage u ON u.tenant_id = t.id AND u.day = $1
 WHERE $3 = '' OR t.name = $3
 GROUP BY t.id, t.name ORDER BY segments DESC, t.name LIMIT $2
"""


async def of_day(conn: asyncpg.Connection[Any], day: date, limit: int, only: str = "") -> list[asyncpg.Record]:
    """Tenants with their accepted segments of a UTC day, the largest first; `only` names one."""
    return list(await conn.fetch(_OF_DAY, day, limit, only, timeout=5.0))
