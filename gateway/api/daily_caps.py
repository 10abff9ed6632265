"""Daily caps: accepted segments per tenant and UTC day (contract section 2, `quota.daily`).

The ledger counts in a row per (tenant, day, writer), never in one hot row; a door adds what others counted, read at
most every quarter of a second, to what it promised itself. One door is exact; several may overshoot by that quarter
second.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import asyncpg

from gateway.clock import Clock
from gateway.domain.ids import DAY_MS

_FRESH_S: Final = 0.25
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()

# This process's own writers are left out: what they wrote since its start stands in its own count.
_COUNTED: Final = """
SELECT coalesce(sum(segments), 0)::bigint AS everyone,
       coalesce(sum(segments) FILTER (WHERE worker LIKE $3), 0)::bigint AS own
  FROM daily_usage WHERE tenant_id = $1 AND day = $2
"""


@dataclass(slots=True)
class _Day:
    ordinal: int
    own_before: int  # what earlier processes of this worker's name wrote
    others: int
    promised: int
    read_mono: float

    @property
    def taken(self) -> int:
        """Segments of the day that are counted or promised."""
        return self.own_before + self.others + self.promised


class DailyCaps:
    """Promises segments of the day to requests and takes back what was not kept."""

    def __init__(self, pool: asyncpg.Pool[Any], worker: str, clock: Clock) -> None:
        self._pool = pool
        self._like = worker.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "/%"
        self._clock = clock
        self._days: dict[int, _Day] = {}

    async def promise(self, tenant_id: int, segments: int, cap: int | None, now_at: int) -> bool:
        """Whether the day still has room; if so it is taken. Raises what the ledger's connection raises."""
        if cap is None:
            self._days.pop(tenant_id, None)  # nothing is promised: should a cap come back, what was kept is read
            return True
        day = await self._current(tenant_id, now_at)
        if day.taken + segments > cap:
            return False
        day.promised += segments
        return True

    async def has_room(self, tenant_id: int, segments: int, cap: int | None, now_at: int) -> bool:
        """Whether the day has room for so much more; nothing is taken. Raises what the ledger's connection raises."""
        return cap is None or (await self._current(tenant_id, now_at)).taken + segments <= cap

    def take_back(self, tenant_id: int, segments: int, now_at: int) -> None:
        """Segments that were promised and not kept."""
        day = self._days.get(tenant_id)
        if day is not None and day.ordinal == now_at // DAY_MS:
            day.promised = max(0, day.promised - segments)

    async def _current(self, tenant_id: int, now_at: int) -> _Day:
        ordinal = now_at // DAY_MS
        day = self._days.get(tenant_id)
        if day is not None and day.ordinal == ordinal and self._clock.now_mono() - day.read_mono < _FRESH_S:
            return day
        async with self._pool.acquire(timeout=0.25) as conn:
            row = await conn.fetchrow(
                _COUNTED, tenant_id, date.fromordinal(_EPOCH_ORDINAL + ordinal), self._like, timeout=2.0
            )
        day = self._days.get(tenant_id)
        others = row["everyone"] - row["own"]
        if day is None or day.ordinal != ordinal:
            day = self._days[tenant_id] = _Day(ordinal, row["own"], others, 0, self._clock.now_mono())
        else:
            day.others, day.read_mono = others, self._clock.now_mono()
        return day


def seconds_to_midnight(now_at: int) -> int:
    """Whole seconds until the next UTC day, at least one."""
    return max(1, -(-(DAY_MS - now_at % DAY_MS) // 1000))
