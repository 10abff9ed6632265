"""After the commit: what was kept goes into the index, then its outbox row goes (design section 1, hop 4).

Nothing here is needed for truth: what fails or is cut off stays in the outbox and is repeated by the sweep.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway import logs
from gateway.ledger.connect import LEDGER_ERRORS
from scheduler.core.records import Entry
from scheduler.store.scheduler import IndexUnavailable, Scheduler

_BATCHES_MAX: Final = 2_000  # beyond it the sweep takes over
_LINGER_S: Final = 0.05  # far below the age at which the sweep looks at a row
_DELETED_AT_ONCE: Final = 50
# A lost deletion only repeats an enqueue that its marker makes harmless: no need to wait for the disk.
_DELETE: Final = """
WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true) AS is_set)
DELETE FROM outbox o USING quick WHERE o.id = ANY($1::uuid[]) AND quick.is_set = 'off'
"""
_log = logs.get("queueing")


class Queueing:
    """Takes kept batches to the scheduler in order."""

    def __init__(self, pool: asyncpg.Pool[Any], scheduler: Scheduler) -> None:
        self._pool = pool
        self._scheduler = scheduler
        self._waiting: deque[tuple[UUID, list[Entry]]] = deque()
        self._arrived = asyncio.Event()
        self._stopping = False

    def put(self, outbox_id: UUID, entries: list[Entry]) -> None:
        """A batch whose outbox row is durable."""
        if len(self._waiting) < _BATCHES_MAX:
            self._waiting.append((outbox_id, entries))
            self._arrived.set()

    def stop(self) -> None:
        """Lets `run` end once nothing waits."""
        self._stopping = True
        self._arrived.set()

    async def run(self) -> None:
        """Enqueues what waits and deletes its outbox rows, until stopped."""
        queued: list[UUID] = []
        while True:
            if len(queued) >= _DELETED_AT_ONCE or (queued and not await self._more_within(_LINGER_S)):
                await self._delete(queued)
                queued = []
            if not self._waiting and not queued:
                if self._stopping:
                    return
                self._arrived.clear()
                await self._arrived.wait()
            if self._waiting:
                outbox_id, entries = self._waiting.popleft()
                if await self._enqueue(outbox_id, entries):
                    queued.append(outbox_id)

    async def _more_within(self, seconds: float) -> bool:
        if not self._waiting and not self._stopping:
            self._arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._arrived.wait()
        return bool(self._waiting)

    async def _enqueue(self, outbox_id: UUID, entries: list[Entry]) -> bool:
        try:
            await self._scheduler.enqueue(outbox_id.bytes, entries)
        except IndexUnavailable as error:
            _log.warning("enqueue_left_to_sweep", reason=str(error.reason), messages=len(entries))
            return False
        return True

    async def _delete(self, queued: list[UUID]) -> None:
        with suppress(*LEDGER_ERRORS):
            async with self._pool.acquire(timeout=1.0) as conn:
                await conn.execute(_DELETE, sorted(queued), timeout=2.0)
