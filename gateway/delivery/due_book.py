"""Tells the index what the due table holds, so that estimates count work that falls due before a message's own turn.

The table is counted per flow in buckets of five minutes, a day ahead, and never for more than a fiftieth of the time;
in between, what was released is taken off.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from gateway.ledger.due_counts import BUCKET_MS, count_due
from gateway.loops import repeat
from gateway.runtime import Runtime
from gateway.telemetry import metrics

LOOK_S: Final = 3.0
SHARE: Final = 0.02
AHEAD_MS: Final = 24 * 3_600_000

Works = dict[str, dict[int, tuple[int, int]]]


class DueBook:
    """What is due when, per flow key; `bucket -> (messages, segments)`."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._works: Works = {}
        self._changed: set[str] = set()
        self._count_at_mono = 0.0

    async def run(self) -> None:
        """Work until the role stops."""
        await repeat("due_book", self._rt.stopping, self.turn)

    async def turn(self) -> float:
        """Count the table where that is affordable, else tell what changed; returns the seconds until the next."""
        if time.monotonic() >= self._count_at_mono:
            began_mono = time.monotonic()
            await self._count()
            took_s = time.monotonic() - began_mono
            self._count_at_mono = time.monotonic() + max(LOOK_S, took_s / SHARE)
            metrics.due_count_seconds.set(took_s)
        elif self._changed:
            changed = {flow: self._buckets(flow) for flow in self._changed}
            self._changed.clear()
            await self._rt.scheduler.due_work(changed, complete=False)
        return LOOK_S

    def released(self, works: Iterable[tuple[str, int, int]]) -> None:
        """(flow key, due at, segments) of messages that are in the queue now: no longer due work."""
        for flow, due_at, segments in works:
            buckets = self._works.get(flow)
            at = due_at - due_at % BUCKET_MS
            if buckets is None or at not in buckets:
                continue
            messages, all_segments = buckets[at]
            if messages <= 1:
                del buckets[at]
            else:
                buckets[at] = (messages - 1, max(0, all_segments - segments))
            self._changed.add(flow)

    async def _count(self) -> None:
        async with self._rt.pool.acquire() as conn:
            works: Works = {}
            for flow, at, messages, segments in await count_due(conn, self._rt.clock.now_at() + AHEAD_MS):
                works.setdefault(flow, {})[at] = (messages, segments)
        self._works = works
        self._changed.clear()
        await self._rt.scheduler.due_work({flow: self._buckets(flow) for flow in works}, complete=True)

    def _buckets(self, flow: str) -> list[tuple[int, int, int]]:
        return [(at, messages, segments) for at, (messages, segments) in sorted(self._works.get(flow, {}).items())]
