"""How much falls due when, per flow: what the estimates are told of the due table."""

from __future__ import annotations

from typing import Any, Final

import asyncpg

BUCKET_MS: Final = 300_000
# Flows with few messages each weigh little; beyond this many buckets the smallest are left out.
_BUCKETS_MAX: Final = 20_000
_COUNT: Final = f"""
SELECT flow, due_at / {BUCKET_MS} * {BUCKET_MS} AS at, count(*) AS messages, sum(segments)::bigint AS segments
  FROM due
 WHERE due_at < $1 AND flow IS NOT NULL
 GROUP BY 1, 2
 ORDER BY 3 DESC
 LIMIT $2
"""  # noqa: S608 - a constant number


async def count_due(conn: asyncpg.Connection[Any], before_at: int) -> list[tuple[str, int, int, int]]:
    """(flow key, beginning of the bucket, messages, segments) of what falls due before an instant (UTC ms)."""
    rows = await conn.fetch(_COUNT, before_at, _BUCKETS_MAX)
    return [(row["flow"], row["at"], row["messages"], row["segments"]) for row in rows]
