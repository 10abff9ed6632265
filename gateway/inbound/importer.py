"""Works through the lists that tenants handed in, a bounded batch per transaction; a stop loses no place in them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.inbound.lists import FAULTS_SHOWN, read_rows, rows_of
from gateway.ledger import consents
from gateway.ledger.consents import Advance
from gateway.loops import repeat
from gateway.policy.rules.snapshot import Policy
from gateway.runtime import Runtime
from scheduler.core.values import valueclass

BATCH: Final = 2_000
_LOOK_S: Final = 2.0
_KEEP_MS: Final = 30 * 86_400_000  # how long it is told how an import went
_TIDY_S: Final = 3_600.0


class Importer:
    """Works until the role stops; several processes share the work list by list."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._tidied_mono: float | None = None
        self._kept: _Kept | None = None  # the list at hand, so that it is read once

    async def run(self) -> None:
        """Works until the role stops."""
        await repeat("imports", self._rt.stopping, self.turn)

    async def turn(self) -> float:
        """One batch, or a look after lists of long ago; returns the seconds until the next."""
        async with self._rt.pool.acquire() as conn:
            if await self.work(conn, self._rt.policies.current):
                return 0.0
            await self._tidy(conn)
        return _LOOK_S

    async def _tidy(self, conn: asyncpg.Connection[Any]) -> None:
        now_mono = self._rt.clock.now_mono()
        if self._tidied_mono is None or now_mono - self._tidied_mono > _TIDY_S:
            await consents.forget_imports(conn, self._rt.clock.now_at() - _KEEP_MS)
            self._tidied_mono = now_mono

    async def work(self, conn: asyncpg.Connection[Any], policy: Policy) -> bool:
        """One batch of the oldest list; False where there is none."""
        async with conn.transaction():
            row = await consents.open_import(conn)
            if row is None:
                self._kept = None
                return False
            kept, self._kept = self._kept, None
            if kept is None or (kept.id, kept.rows_done) != (row["id"], row["rows_done"]):
                source = await consents.source_of(conn, row["id"])
                kept = await asyncio.to_thread(_from, row["id"], source, row["rows_done"])
            rows = list(islice(kept.rows, BATCH))
            step = await work_batch(conn, policy, row, rows, self._rt.clock.now_at())
        if step.finished_at is None:
            self._kept = _Kept(kept.id, step.rows_done, kept.rows)
        return True


@valueclass
class _Kept:
    """A list that is read up to a row."""

    id: UUID
    rows_done: int
    rows: Iterator[list[str]]


def _from(import_id: UUID, source: bytes, rows_done: int) -> _Kept:
    rows = rows_of(source)
    deque(islice(rows, rows_done), maxlen=0)
    return _Kept(import_id, rows_done, rows)


async def work_batch(
    conn: asyncpg.Connection[Any], policy: Policy, row: Any, rows: list[list[str]], now_at: int
) -> Advance:
    """The next rows of an import, `row` as `consents.open_import` gives it, in the caller's transaction.

    `rows` are BATCH ones, or fewer at the end of the list.
    """
    entries: list[tuple[str, str]] = []
    faults: list[dict[str, Any]] = []
    for one in read_rows(rows, policy, row["tenant"]):
        if one.entry is not None:
            entries.append(one.entry)
        else:
            faults.append({"line": one.line, "message": one.fault})
    added = await consents.add(conn, row["list"], row["tenant_id"], entries, (consents.IMPORT, now_at))
    rows_done = row["rows_done"] + len(rows)
    room = max(0, FAULTS_SHOWN - row["faults_total"])
    step = Advance(
        rows_done,
        added,
        len(faults),
        faults[:room],
        now_at if len(rows) < BATCH or rows_done >= row["rows_total"] else None,
    )
    await consents.advance(conn, row["id"], step)
    return step
