"""What a pause by hand made the door defer: looked at again when the pause ends, not when the deferral would.

Nobody knows the end of a pause, so the door defers by a minute at a time. Only what falls due within that minute is
brought forward, in bounded batches; the promoter then releases it at the pace of its line.
"""

from __future__ import annotations

from typing import Any, Final

import asyncpg

from gateway.ledger.outcome_statements import WAKE_PROMOTER
from gateway.ledger.pauses import PROVIDER, ROUTE, Place
from scheduler.core.due import LATER_MS

ROUND: Final = 1_000
# `submit_by` stays as the tenant was told. Rows that someone has locked are on their way already.
_HASTEN: Final = """
WITH locked AS MATERIALIZED (
    SELECT m.day, m.id
      FROM due d JOIN messages m ON m.day = d.day AND m.id = d.id
     WHERE d.kind = 'deferral' AND d.due_at > $1 AND d.due_at <= $2 AND m.status = 'scheduled'
       AND CASE $3::text WHEN 'route' THEN m.route = $4 ELSE m.provider = $4 END
     ORDER BY m.day, m.id
     LIMIT $5
       FOR UPDATE OF m SKIP LOCKED
), moved AS (
    UPDATE messages m SET not_before = $1 FROM locked l WHERE m.day = l.day AND m.id = l.id
)
UPDATE due d SET due_at = $1 FROM locked l WHERE d.day = l.day AND d.id = l.id
"""


async def hasten(conn: asyncpg.Connection[Any], place: Place, now_at: int) -> bool:
    """Make what was deferred for a route or provider due now; whether a full batch was, so that more may be left.

    `now_at` is UTC ms. Other kinds of place defer nothing.
    """
    if place.kind not in (ROUTE, PROVIDER):
        return False
    done = await conn.execute(_HASTEN, now_at, now_at + LATER_MS, place.kind, place.name, ROUND)
    count = int(done.split()[-1])
    if count:
        await conn.execute(WAKE_PROMOTER)
    return count == ROUND
