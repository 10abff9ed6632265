"""Refusals that one message may get only so often: then it is the message, not the moment or the link.

ESME_RINVCMDLEN says that the framing is in doubt, so the session binds anew; when the same message breaks it twice, it
is refused for good (reliability.md 3.2, "S then P"). Temporary faults have bounds too (ESME_RSYSERR: three times).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any, Final, Protocol
from uuid import UUID

import asyncpg

from gateway.domain import outcomes

_COUNT: Final = """
SELECT a.id, count(*) AS times
  FROM unnest($1::date[], $2::uuid[], $3::smallint[], $4::integer[]) AS r (day, id, slot, command_status)
  JOIN attempts a ON a.day = r.day AND a.id = r.id AND a.slot < r.slot AND a.command_status = r.command_status
 GROUP BY a.id
"""


class Refused(Protocol):
    """An ending of a slot as far as it matters here (gateway.ledger.outcomes.Closing)."""

    day: date
    id: UUID
    slot: int
    outcome: str
    command_status: int | None
    repeats_max: int | None


async def judge_repeats(conn: asyncpg.Connection[Any], closings: Sequence[Refused]) -> None:
    """Turns temporary endings into refusals for good where the message got the same status as often as it may."""
    bounded = [c for c in closings if c.repeats_max is not None and c.outcome in (outcomes.LATER, outcomes.HOLD)]
    if not bounded:
        return
    rows = await conn.fetch(
        _COUNT,
        [c.day for c in bounded],
        [c.id for c in bounded],
        [c.slot for c in bounded],
        [signed(c.command_status) for c in bounded],
    )
    times = {row["id"]: row["times"] for row in rows}
    for closing in bounded:
        if closing.repeats_max is not None and times.get(closing.id, 0) >= closing.repeats_max:
            closing.outcome = outcomes.NEVER


def signed(command_status: int | None) -> int | None:
    """command_status as an SQL integer: the wire's 32 bits, two's complement."""
    if command_status is None or command_status < 0x8000_0000:
        return command_status
    return command_status - 0x1_0000_0000
