"""What a tenant sent, by outcome: counted from the message rows themselves, so it is exact at the moment it is asked.

A day that is over is counted where its rows are: in its partition, then among those on their way out
(`leaving_messages`), then as the sums that the transaction made which dropped it (`roll_up`). One statement reads all
three, so a message counts once at every moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any, Final

import asyncpg

GROUPS: Final = ("day", "application", "class", "route")
_S: Final = 15.0
_ROLL_UP: Final = """
INSERT INTO usage_days (day, tenant_id, application, class, route, status, messages, segments)
SELECT day, tenant_id, application, class, route, status, count(*), sum(segments)
  FROM leaving_messages WHERE day = $1 GROUP BY 1, 2, 3, 4, 5, 6
"""


async def count(
    conn: asyncpg.Connection[Any], tenant_id: int, days: tuple[date, date], groups: Sequence[str], limit: int
) -> list[asyncpg.Record]:
    """Messages and segments per group and status over days (first and last), at most `limit` rows.

    `groups` are members of GROUPS. A message counts on the UTC day of its creation.
    """
    if not set(groups) <= set(GROUPS):
        raise ValueError("usage is grouped by day, application, class and route only")
    columns = "".join(f"{name}, " for name in groups)
    # Only constant names are put together here; every value is bound.
    statement = f"""
SELECT {columns}status, sum(messages)::bigint AS messages, sum(segments)::bigint AS segments FROM (
    SELECT day, application, class, route, status, 1 AS messages, segments
      FROM messages WHERE tenant_id = $1 AND day BETWEEN $2 AND $3
    UNION ALL
    SELECT day, application, class, route, status, 1, segments
      FROM leaving_messages WHERE tenant_id = $1 AND day BETWEEN $2 AND $3
    UNION ALL
    SELECT day, application, class, route, status, messages, segments
      FROM usage_days WHERE tenant_id = $1 AND day BETWEEN $2 AND $3) AS u
 GROUP BY {columns}status ORDER BY {columns}status LIMIT $4
"""  # noqa: S608
    return list(await conn.fetch(statement, tenant_id, *days, limit, timeout=_S))


async def roll_up(conn: asyncpg.Connection[Any], day: date) -> None:
    """Sums up a day that is leaving; belongs into the transaction that drops its rows, once per day."""
    await conn.execute(_ROLL_UP, day)
