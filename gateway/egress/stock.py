"""Keeping claimed work ready for one session: wait for the wake list, lease, hand over to the claimer.

Enough is leased to bridge the claim's latency besides the window, never more than leaves within two seconds
(design section 1, hop 5). There is no polling: an empty line is waited for on the session's wake list.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from gateway import logs
from gateway.clock import Clock
from gateway.egress.claimer import Claimer, Claims
from gateway.egress.outcome_writer import OutcomeWriter
from gateway.egress.pump import DEADLINES_DOUBTFUL, WRITE_WITHIN_S, Pump
from gateway.egress.rounds import Rounds
from gateway.policy.holder import PolicyHolder
from gateway.telemetry import metrics
from scheduler.core.asks import LeaseAsk, Leased
from scheduler.core.records import KINDS
from scheduler.core.values import valueclass
from scheduler.store.scheduler import IndexUnavailable, Scheduler

WANT_MAX: Final = 200
LIMITS: Final = frozenset({*KINDS, "retry"})
_READY_MIN: Final = 4
_SPARE_S: Final = 0.05  # how much one round brings: fewer and larger ones, for half the CPU at a small window
_BRIDGE: Final = 1.5  # how many claims' time what is ready must last for
_STALL_S: Final = 1.0
_WAIT_MAX_S: Final = 1.0
_ENLIST_S: Final = 5.0  # an index may be lost and rebuilt between two leases, without either failing
_WAIT_MIN_S: Final = 0.01  # a limit that frees one token at a time is collected, not chased
_log = logs.get("egress.stock")


@valueclass
class StockParts:
    """What the leasing of a session works with.

    `enlist` tells the index that the session is up; it raises `IndexUnavailable` and may be repeated.
    """

    scheduler: Scheduler
    claimer: Claimer
    writer: OutcomeWriter
    clock: Clock
    policies: PolicyHolder
    pump: Pump
    enlist: Callable[[], Awaitable[None]]


class Stock:
    """The leasing loop of one session. `open` while the session may take work."""

    def __init__(self, provider: str, session: str, window: int, parts: StockParts) -> None:
        self._provider = provider
        self._session = session
        self._window = window
        self._parts = parts
        self._open = asyncio.Event()
        self._hungry = asyncio.Event()
        self._claims = Claims(session, provider, parts.pump)
        self._rounds = Rounds(parts.clock)
        self._limited = ""
        self._limited_mono = 0.0
        self._enlisted_mono = -math.inf

    @property
    def claiming(self) -> int:
        """Leased messages whose claim has not answered yet."""
        return self._claims.pending

    def open(self) -> None:
        """Work may be taken: the session is bound and ours; the index is told so before the first lease."""
        self._enlisted_mono = -math.inf
        self._open.set()

    def close(self) -> None:
        """No further lease begins."""
        self._open.clear()
        self._hungry.set()

    def notice(self) -> None:
        """The pump used something up: wakes the loop once enough is missing to be worth a round trip."""
        if self._hungry.is_set() or not self._open.is_set():
            return
        if self._want() > 0:
            self._hungry.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        task = asyncio.current_task()
        assert task is not None
        while not task.cancelling():  # the client of Redis may have swallowed the cancellation (`gateway.loops.end`)
            await self._open.wait()
            await self._rounds.begin()
            want = self._want()
            if want <= 0:
                self._hungry.clear()
                # The time limit covers what no event tells of: a stalled carrier, a writer that caught up.
                # Not wait_for: in Python 3.11 it loses a cancellation that meets the event.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_WAIT_MAX_S):
                        await self._hungry.wait()
                continue
            try:
                await self._keep_enlisted()
                if self._open.is_set():
                    await self._lease(want)
            except IndexUnavailable as fault:
                self._enlisted_mono = -math.inf  # an index that begins anew knows nobody
                _log.warning("lease_unavailable", session=self._session, reason=fault.reason)
                await asyncio.sleep(random.uniform(0.1, 1.0))

    async def _keep_enlisted(self) -> None:
        """A session that bound before the index was there, or outlived it, would get no wakes and count as down."""
        now_mono = self._parts.clock.now_mono()
        if now_mono - self._enlisted_mono >= _ENLIST_S:
            self._enlisted_mono = now_mono
            await self._parts.enlist()

    async def _lease(self, want: int) -> None:
        without = DEADLINES_DOUBTFUL if self._parts.clock.doubtful else frozenset[str]()
        ask = LeaseAsk(self._provider, self._session, want, want_segments=max(want, 1), without=without)
        leased = await self._parts.scheduler.lease(ask)
        if not self._open.is_set():  # closed meanwhile: whoever waits for the last claim must not miss this one
            await self._parts.scheduler.restore(leased.lease_id)
            return
        self._watch_limit(leased)
        if leased.items or leased.expired:
            self._parts.claimer.ask(self._claims, leased)
            return
        wait_s = _WAIT_MAX_S if leased.wait_ms is None else leased.wait_ms / 1000
        timeout_s = min(_WAIT_MAX_S, max(_WAIT_MIN_S, wait_s))
        if timeout_s < 0.1:
            await asyncio.sleep(timeout_s)  # a token is due: sooner than a wake could bring anything better
        else:
            await self._parts.scheduler.wait(self._provider, self._session, timeout_s)

    def _watch_limit(self, leased: Leased) -> None:
        """How long a limit kept this session from everything that waits: told by kind, never by name."""
        now_mono = self._parts.clock.now_mono()
        kind = (leased.cause or "").partition(":")[0] if not leased.items else ""
        limited = kind if kind in LIMITS else ""
        if self._limited and limited != self._limited:
            metrics.limit_wait_seconds.labels(self._limited).observe(now_mono - self._limited_mono)
        if limited != self._limited:
            self._limited, self._limited_mono = limited, now_mono

    def _target(self) -> int:
        """Messages that should be under way or ready: the window and what leaves until the next round has come."""
        ahead = self._bridge() + math.ceil(self._parts.pump.pacer.measured_per_s * _SPARE_S)
        return self._window + min(WANT_MAX, max(_READY_MIN, ahead))

    def _want(self) -> int:
        """How many messages to lease now: none while what is ready bridges a claim, so rounds are few and large."""
        if self._parts.pump.stock + self.claiming > self._bridge():
            return 0
        return self._missing()

    def _bridge(self) -> int:
        """Messages that leave while a claim is under way."""
        return math.ceil(self._parts.pump.pacer.measured_per_s * self._parts.claimer.latency_s * _BRIDGE)

    def _missing(self) -> int:
        pump, now_mono = self._parts.pump, self._parts.clock.now_mono()
        link = pump.connection
        if link is None or self._parts.writer.is_full:
            return 0
        if pump.is_resting(now_mono) or self._parts.writer.settled < pump.returns_ticket:
            return 0  # what the carrier threw back goes first
        if not self._parts.policies.in_step:
            return 0  # another version is in force: this process neither admits nor claims until it has it
        used = self._window - link.window_free
        if link.window_free <= 0 and now_mono - pump.answered_mono > _STALL_S:
            return 0  # the carrier answers nothing: what is claimed now would only be given back
        missing = self._target() - used - pump.stock - self.claiming
        paced = pump.pacer.rate_per_s(now_mono)
        if paced is not None:
            within = max(1, int(paced * WRITE_WITHIN_S / 2))
            missing = min(missing, within - pump.stock - self.claiming)
        return min(missing, WANT_MAX)
