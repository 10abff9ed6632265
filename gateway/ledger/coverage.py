"""Hourly counts of what was sent, decided and received per provider: coverage without a look at the messages.

Each writing connection counts in rows of its own (`shard`), in the transaction that changes what is counted; a
transaction counts once, as its last statement, so that counting never makes two of them wait for each other for long.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import asyncpg

from gateway.domain.coverage import HOUR_MS, HourCounts
from gateway.domain.matching import YOUNG_MS

_SHARDS: Final = 64
SHARD: Final = f"(pg_backend_pid() % {_SHARDS})::smallint"
ADD_UP: Final = """
ON CONFLICT (provider, hour_at, shard) DO UPDATE
   SET sent = c.sent + excluded.sent, decided = c.decided + excluded.decided,
       delivered = c.delivered + excluded.delivered, receipts = c.receipts + excluded.receipts
"""
# A fragment for statements that make messages `sent`: `moved` has provider, sent_at and sweep_at, which is null where
# no receipts are expected.
COUNT_SENT: Final = f"""
    INSERT INTO coverage_hours AS c (provider, hour_at, shard, sent)
    SELECT provider, sent_at - sent_at % {HOUR_MS}, {SHARD}, count(*)
      FROM moved WHERE status = 'sent' AND num_nulls(sweep_at) = 0 AND num_nulls(sent_at) = 0
     GROUP BY 1, 2 ORDER BY 1, 2
    {ADD_UP}
"""  # noqa: S608 - constants of ours
_COUNT: Final = f"""
INSERT INTO coverage_hours AS c (provider, hour_at, shard, sent, decided, delivered)
SELECT w.provider, w.hour_at, {SHARD}, w.sent, w.decided, w.delivered
  FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
       AS w (provider, hour_at, sent, decided, delivered)
{ADD_UP}
"""  # noqa: S608 - constants of ours
_HOURS: Final = """
SELECT provider, hour_at, sum(sent)::bigint AS sent, sum(decided)::bigint AS decided,
       sum(delivered)::bigint AS delivered, sum(receipts)::bigint AS receipts
  FROM coverage_hours WHERE hour_at >= $1 AND hour_at < $2
 GROUP BY provider, hour_at ORDER BY provider, hour_at
"""
# The oldest unmatched receipts are what a person looks for; the index on what is not merged bounds the look.
_UNMATCHED: Final = f"""
SELECT provider, received_at - received_at % {HOUR_MS} AS hour_at, count(*) AS unmatched
  FROM (SELECT provider, received_at FROM receipts
         WHERE merged_at IS NULL AND message_id IS NULL AND received_at >= $1 AND received_at <= $3
         LIMIT $2) AS waiting
 GROUP BY 1, 2
"""  # noqa: S608 - constants of ours
UNMATCHED_MAX: Final = 500_000
_FORGET: Final = "DELETE FROM coverage_hours WHERE hour_at < $1"


@dataclass(slots=True)
class Deltas:
    """What a transaction adds to the counts of one hour of one provider."""

    sent: int = 0
    decided: int = 0
    delivered: int = 0


class Tally:
    """Collects what a transaction counts, then writes it at once."""

    def __init__(self) -> None:
        self._deltas: dict[tuple[str, int], Deltas] = defaultdict(Deltas)

    def add(self, provider: str, sent_at: int, deltas: Deltas) -> None:
        """Counts for the hour in which a message was sent (UTC ms)."""
        known = self._deltas[provider, sent_at - sent_at % HOUR_MS]
        known.sent += deltas.sent
        known.decided += deltas.decided
        known.delivered += deltas.delivered

    async def write(self, conn: asyncpg.Connection[Any]) -> None:
        """Adds everything to the hourly rows, in their order."""
        rows = [
            (provider, hour_at, one.sent, one.decided, one.delivered)
            for (provider, hour_at), one in sorted(self._deltas.items())
            if one.sent or one.decided or one.delivered
        ]
        if rows:
            await conn.execute(_COUNT, *(list(column) for column in zip(*rows, strict=True)))
        self._deltas.clear()


async def hours(conn: asyncpg.Connection[Any], since_at: int, now_at: int) -> list[HourCounts]:
    """The counts of every provider and hour that begins within these instants (UTC ms), unmatched receipts included.

    A receipt of the last ten seconds is no unmatched one yet: its carrier id may be on the way.
    """
    unmatched = Counter(
        {
            (row["provider"], row["hour_at"]): row["unmatched"]
            for row in await conn.fetch(_UNMATCHED, since_at, UNMATCHED_MAX, now_at - YOUNG_MS)
        }
    )
    found = {
        (row["provider"], row["hour_at"]): HourCounts(**row, unmatched=unmatched[row["provider"], row["hour_at"]])
        for row in await conn.fetch(_HOURS, since_at, now_at + 1)
    }
    for (provider, hour_at), waiting in unmatched.items():
        if (provider, hour_at) not in found:
            found[provider, hour_at] = HourCounts(provider, hour_at, 0, 0, 0, 0, waiting)
    return [found[key] for key in sorted(found)]


async def sums(conn: asyncpg.Connection[Any], since_at: int, until_at: int) -> Mapping[str, HourCounts]:
    """Provider -> the sum over all hours that begin within these instants (UTC ms)."""
    return add_up(HourCounts(**row, unmatched=0) for row in await conn.fetch(_HOURS, since_at, until_at))


def add_up(rows: Iterable[HourCounts]) -> dict[str, HourCounts]:
    """Provider -> the sum of its hours; `hour_at` is the first of them."""
    total: dict[str, HourCounts] = {}
    for row in rows:
        known = total.get(row.provider)
        total[row.provider] = row if known is None else known.plus(row)
    return total


async def forget_hours(conn: asyncpg.Connection[Any], before_at: int) -> int:
    """Deletes the counts of hours that began before an instant (UTC ms); returns how many rows."""
    return int((await conn.execute(_FORGET, before_at)).rpartition(" ")[2] or 0)
