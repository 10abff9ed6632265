"""Works through the lists that tenants handed in, a bounded batch per transaction; a stop loses no place in them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.inbound.lists import FAULTS_SHOWN, read_rows, rows_of
from gateway.ledger import consents
from gateway.ledger.connect import LEDGER_ERRORS
from gateway.ledger.consents import Advance
from gateway.logs import get
from gateway.policy.rules.snapshot import Policy
from gateway.runtime import Runtime

BATCH: Final = 2_000
_LOOK_S: Final = 2.0
_KEEP_MS: Final = 30 * 86_400_000  # how long it is told how an import went
_TIDY_S: Final = 3_600.0

log = get(__name__)


class Importer:
    """Works until the role stops; several processes share the work list by list."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._tidied_mono: float | None = None
        self._kept: _Kept | None = None  # the list at hand, so that it is read once

    async def run(self) -> None:
        """Works until the role stops."""
        while not self._rt.stopping.is_set():
            worked = False
            try:
                async with self._rt.pool.acquire() as conn:
                    worked = await self.work(conn, self._rt.policies.current)
                    if not worked:
                        await self._tidy(conn)
            except LEDGER_ERRORS as error:
                log.warning("import_waits_for_ledger", cause=type(error).__name__)
            if not worked:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._rt.stopping.wait()

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


@dataclass(frozen=True, slots=True)
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
