"""Compares the index with the ledger each minute; a line that drifted is rebuilt alone (design section 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.delivery.rebuild import Rebuilder
from gateway.ledger.rebuild import LineCounts, line_counts
from gateway.logs import get
from gateway.loops import pause, repeat
from gateway.runtime import Runtime
from gateway.telemetry import metrics

LOOK_S: Final = 60.0
# An outbox row on its way may hold a whole call of this many messages.
_PER_OUTBOX_ROW: Final = 1_000

log = get(__name__)
Line = tuple[str, str]


class DriftCheck:
    """Two looks in a row must agree before a line is rebuilt: between two stores one look is never exact."""

    def __init__(self, rt: Runtime, rebuilder: Rebuilder) -> None:
        self._rt = rt
        self._rebuilder = rebuilder
        self._suspects: dict[Line, int] = {}
        self._shown: set[Line] = set()

    async def run(self) -> None:
        """Work until the role stops."""
        await pause(self._rt.stopping, LOOK_S)
        await repeat("drift", self._rt.stopping, self.turn)

    async def turn(self) -> float:
        """One look; rebuilds the lines that drifted the same way in the last one too."""
        if await self._rt.scheduler.epoch_state() != "ready":
            self._suspects = {}
            return LOOK_S
        drifts = await self.look()
        confirmed = [line for line, drift in drifts.items() if drift * self._suspects.get(line, 0) > 0]
        self._suspects = {line: drift for line, drift in drifts.items() if line not in confirmed}
        for provider, class_name in confirmed:
            count = await self._rebuilder.reload_line(provider, class_name)
            if count is not None:
                log.warning("index_line_reloaded", provider=provider, traffic_class=class_name, messages=count)
        return LOOK_S

    async def look(self) -> dict[Line, int]:
        """Ledger count minus index count of each line, where that is more than what is under way explains."""
        before = await self._rt.scheduler.counts()
        async with self._rt.pool.acquire() as conn:
            ledger = await line_counts(conn)
        after = await self._rt.scheduler.counts()
        self._show(ledger, after)
        drifts = {}
        for line in {*before, *after, *ledger.waiting}:
            drift = drift_of(line, ledger, before, after)
            if drift:
                drifts[line] = drift
        return drifts

    def _show(self, ledger: LineCounts, index: Mapping[Line, int]) -> None:
        lines = {*index, *ledger.waiting}
        for line in self._shown - lines:
            metrics.index_drift.labels("/".join(line)).set(0)
        for line in lines:
            metrics.index_drift.labels("/".join(line)).set(ledger.waiting.get(line, 0) - index.get(line, 0))
        self._shown = lines


def drift_of(line: Line, ledger: LineCounts, before: Mapping[Line, int], after: Mapping[Line, int]) -> int:
    """How far the ledger's count lies outside what the index held around that moment; 0 within the allowance.

    The allowance is what is in flight: claims whose lease is not over, rows still in the outbox, and what moved
    between the two looks at the index.
    """
    waiting = ledger.waiting.get(line, 0)
    low, high = sorted((before.get(line, 0), after.get(line, 0)))
    allowance = ledger.claimed.get(line, 0) + ledger.outbox_rows * _PER_OUTBOX_ROW + (high - low)
    if waiting > high + allowance:
        return waiting - high
    if waiting < low - allowance:
        return waiting - low
    return 0
