"""The last step into the queue: enqueue what a commit left in the outbox, then forget the row (design section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.ledger.outcomes import forget_outbox
from gateway.ledger.sweeps import begin_alone, old_outbox
from gateway.logs import get
from gateway.runtime import Runtime
from gateway.telemetry import metrics
from scheduler.core.records import BatchMalformed, Entry, unpack_batch
from scheduler.store.scheduler import IndexUnavailable

PATIENCE_MS: Final = 2_000
_ROWS: Final = 100

log = get(__name__)


async def hand_over(rt: Runtime, outbox_id: UUID | None, entries: Sequence[Entry]) -> None:
    """Enqueue a committed batch; where the index is away the sweep repeats it."""
    if outbox_id is None:
        return
    try:
        await rt.scheduler.enqueue(outbox_id.bytes, entries)
    except IndexUnavailable as error:
        log.info("enqueue_left_to_sweep", outbox=str(outbox_id), reason=error.reason)
        return
    async with rt.pool.acquire() as conn:
        await forget_outbox(conn, [outbox_id])


async def sweep_outbox(rt: Runtime, conn: asyncpg.Connection[Any], now_at: int) -> bool:
    """Repeat rows that were left; returns whether more are old. The batch marker makes a second time harmless."""
    async with conn.transaction():
        if not await begin_alone(conn, "outbox"):
            return False
        return await _repeat(rt, conn, now_at)


async def _repeat(rt: Runtime, conn: asyncpg.Connection[Any], now_at: int) -> bool:
    rows = await old_outbox(conn, now_at - PATIENCE_MS, _ROWS)
    lag_ms = max(0, now_at - PATIENCE_MS - rows[0]["created_at"]) if rows else 0
    metrics.sweep_lag_seconds.labels("outbox").set(lag_ms / 1000)
    done: list[UUID] = []
    try:
        for row in rows:
            try:
                entries = unpack_batch(bytes(row["payload"]))
            except BatchMalformed:
                # The rows of its messages are the truth; the drift check finds them missing from their line.
                log.error("outbox_row_unreadable", outbox=str(row["id"]))
                entries = []
            if entries:
                await rt.scheduler.enqueue(row["id"].bytes, entries)
            done.append(row["id"])
    except IndexUnavailable as error:
        log.info("outbox_waits_for_index", reason=error.reason, rows=len(rows))
        return False
    finally:
        if done:
            await forget_outbox(conn, done)
    return len(rows) == _ROWS
