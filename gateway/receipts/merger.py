"""The merge loop: woken by new receipts, by newly committed carrier ids, and by the clock for those still unmatched."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

import asyncpg

from gateway.ledger.claims import HOT_SETTINGS
from gateway.ledger.connect import LEDGER_ERRORS, connect
from gateway.ledger.merges import BATCH, CHANNEL, Merged, merge_batch, next_look_at, wake_waiting
from gateway.logs import get
from gateway.runtime import Runtime
from gateway.telemetry import metrics

# New receipts wake the loop; a wake that was lost (its egress died after the commit) costs two seconds at most.
_IDLE_S: Final = 2.0
# Egress hurries the receipts of new carrier ids; this finds those whose egress died between the commit and the hurry.
_JOIN_EVERY_S: Final = 5.0
_JOIN_BACK_MS: Final = 3_600_000
_BUSY_S: Final = 0.5
# Receipts that come one by one share a transaction: a little patience, well below what a tenant notices.
# Half of what costs is per transaction; and one that comes shortly before its carrier id is looked at once, not twice.
_GATHER_S: Final = 0.1
_COMMAND_S: Final = 30.0
_LAG: Final = metrics.sweep_lag_seconds.labels("receipts_unmerged")

log = get(__name__)


class Merger:
    """Merges receipts until the role stops."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._woken = asyncio.Event()
        self._joined_mono = 0.0

    async def run(self) -> None:
        """Works until the role stops; a lost database connection is taken up again."""
        waker = asyncio.create_task(self._wake_at_end(), name="merger_end")
        try:
            await self._run()
        finally:
            waker.cancel()

    async def _wake_at_end(self) -> None:
        await self._rt.stopping.wait()
        self._woken.set()

    async def _run(self) -> None:
        while not self._rt.stopping.is_set():
            conn: asyncpg.Connection[Any] | None = None
            try:
                conn = await connect(self._rt.settings.database_url, command_timeout=_COMMAND_S)
                await conn.execute(HOT_SETTINGS)
                await conn.add_listener(CHANNEL, lambda *_: self._woken.set())
                await self._serve(conn)
            except LEDGER_ERRORS as error:
                log.warning("merge_lost_ledger", cause=type(error).__name__)
                await self._pause(1.0)
            finally:
                if conn is not None:
                    conn.terminate()

    async def _serve(self, conn: asyncpg.Connection[Any]) -> None:
        told = True  # who was told of new receipts looks at them, and asks only afterwards when the next one is due
        while True:
            self._woken.clear()
            if self._rt.stopping.is_set():
                return
            await self._join_late(conn)
            if not told and (wait_s := await self._until_next(conn)) > 0:
                told = await self._sleep(wait_s)
                continue
            outcome = await merge_batch(conn, self._rt.policies.current, self._rt.clock.now_at())
            self._measure(outcome)
            if outcome.busy:
                await self._sleep(_BUSY_S)
                told = False
            elif outcome.looked_at < BATCH:
                await asyncio.sleep(_GATHER_S)
                told = self._woken.is_set()

    async def _until_next(self, conn: asyncpg.Connection[Any]) -> float:
        """Seconds until a receipt is to be looked at, 0 where one is."""
        next_at = await next_look_at(conn)
        rest_ms = _IDLE_S * 1000 if next_at is None else next_at - self._rt.clock.now_at()
        _LAG.set(max(0.0, -rest_ms / 1000))
        return min(_IDLE_S, max(0.0, rest_ms / 1000))

    async def _join_late(self, conn: asyncpg.Connection[Any]) -> None:
        """A carrier id committed long after its receipt came joins it soon, whatever the back-off says."""
        now_mono = self._rt.clock.now_mono()
        if now_mono - self._joined_mono < _JOIN_EVERY_S:
            return
        self._joined_mono = now_mono
        now_at = self._rt.clock.now_at()
        await wake_waiting(conn, now_at, now_at - _JOIN_BACK_MS)

    async def _sleep(self, seconds: float) -> bool:
        """Whether new receipts were told of before the time was over."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return False
        await asyncio.sleep(_GATHER_S)
        return True

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rt.stopping.wait()

    def _measure(self, outcome: Merged) -> None:
        if outcome.due_at is not None:
            _LAG.set(max(0.0, (self._rt.clock.now_at() - outcome.due_at) / 1000))
        for provider, delay_ms in outcome.finals:
            metrics.receipt_delay_seconds.labels(provider).observe(delay_ms / 1000)
