"""One endpoint's line: its notices in order, so many in flight, and nobody else's time (contract, "Callbacks")."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import asyncpg

from gateway.callbacks.books import PAGE, Books
from gateway.callbacks.client import Client
from gateway.callbacks.signing import Signer
from gateway.callbacks.tries import ADDRESS_REFUSED, GONE, Answer, next_try
from gateway.clock import Clock
from gateway.ledger import give_up_list
from gateway.ledger.callback_lines import Endpoint, Line, Verdict
from gateway.logs import get
from gateway.loops import end
from gateway.policy.rules.snapshot import CallbackRules
from gateway.telemetry import metrics
from scheduler.core.values import valueclass

# Failures in a row after which a line sends one notice at a time and then rests.
TIRED: Final = 8
REST_CAP_MS: Final = 60_000
_FLUSH_AT: Final = 100
_FLUSH_S: Final = 0.05
_LOOK_S: Final = 1.0
_DRAIN_S: Final = 3.0
_UNRESOLVED_MS: Final = 30_000
_BUSY: Final = frozenset({429, 503})  # with Retry-After they speak for the endpoint, not for one notice
_TAKEN: Final = metrics.callbacks_total.labels("taken")
_log = get(__name__)


@valueclass
class Terms:
    """How an endpoint is spoken to under one policy version.

    `signer` is None where nothing can be signed: the policy has no secret for the tenant, or (`unresolved`) this
    process cannot read it at the moment.
    """

    version: int
    rules: CallbackRules
    signer: Signer | None
    allow_private: bool
    unresolved: bool = False


@valueclass
class Means:
    """What every line works with. `terms` reads the policy in use; `chance` is uniform in [0, 1)."""

    pool: asyncpg.Pool[Any]
    books: Books
    client: Client
    clock: Clock
    terms: Callable[[Endpoint], Terms]
    chance: Callable[[], float] = random.random


@dataclass(slots=True)
class EndpointLine:
    """Works one endpoint's due notices until none is left or the endpoint needs a rest."""

    means: Means
    endpoint: Endpoint
    failures: int = 0  # in a row, carried over from the endpoint's last line
    _queue: deque[Line] = field(default_factory=deque)
    _in_hand: set[int] = field(default_factory=set)
    _taken: list[int] = field(default_factory=list)
    _put_back: list[Verdict] = field(default_factory=list)
    _workers: set[asyncio.Task[None]] = field(default_factory=set)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _broke: BaseException | None = None  # what ended a worker that should never fail
    _more: bool = True
    _probed: bool = False
    _gone: int | None = None  # the policy version under which it said 410
    _asked_ms: int = 0  # the rest that it asked for, or that a missing secret makes

    def look_again(self) -> None:
        """New notices were written: the line may hold some."""
        self._more = True
        self._changed.set()

    def rest_ms(self) -> int:
        """How long a failing endpoint is left alone, 0 for one that works; full jitter keeps lines apart."""
        if self.failures < TIRED:
            return self._asked_ms
        ceiling = min(REST_CAP_MS, 1_000 << min(self.failures - TIRED, 16))
        return max(250, self._asked_ms, int(ceiling * self.means.chance()))

    @property
    def _halted(self) -> bool:
        """Whether nothing more is to be begun."""
        return self.failures >= TIRED or self._gone is not None or self._asked_ms > 0

    async def run(self, stopping: asyncio.Event) -> None:
        """Until the line is empty, the endpoint is tired, or the role stops; nothing in hand is forgotten."""
        try:
            if not await self._can_sign():
                return
            looked = 0.0
            while not stopping.is_set():
                if self._broke is not None:  # its notice would stay in hand, untried, for as long as the line lives
                    raise self._broke
                await self._flush()
                now = self.means.clock.now_mono()
                if len(self._queue) < PAGE // 4 and (self._more or now - looked > _LOOK_S):
                    looked = now
                    await self._refill()
                if not self._in_hand:
                    return
                self._man()
                if not self._workers and self._halted:
                    return
                await self._wait()
        finally:
            await self._drain()
            await self._flush()
            if self._gone is not None:
                await self._close("410")

    async def _can_sign(self) -> bool:
        """Whether there is a secret. Where the policy has none, what is owed goes to the give-up list."""
        terms = self.means.terms(self.endpoint)
        if terms.signer is not None:
            return True
        if terms.unresolved:
            self._asked_ms = _UNRESOLVED_MS
        else:
            await self._close("no_secret")
        return False

    async def _close(self, word: str) -> None:
        now_at = self.means.clock.now_at()
        async with self.means.pool.acquire() as conn:
            closed = await give_up_list.close_line(conn, self.endpoint.id, word, now_at, gone_version=self._gone)
        metrics.callbacks_total.labels("gave_up").inc(closed)

    async def _drain(self) -> None:
        """Lets tries under way come to their end for a while; what is cut off is sent again later."""
        self._queue.clear()
        if self._workers:
            await asyncio.wait(self._workers, timeout=_DRAIN_S)
        await end(self._workers)

    async def _refill(self) -> None:
        self._more = False  # a word that comes while the page is read makes it true again
        found, more = await self.means.books.page(self.endpoint, self._in_hand)
        self._more = self._more or more
        self._queue.extend(found)
        self._in_hand.update(line.id for line in found)

    def _man(self) -> None:
        if self._gone is not None or self._asked_ms:
            return
        if self.failures >= TIRED:
            # One try of one notice tells whether the endpoint is back: a dead one costs one socket, not its share.
            if self._queue and not self._workers and not self._probed:
                self._probed = True
                self._start(self._settle(self._queue.popleft()))
            return
        width = self.means.terms(self.endpoint).rules.per_endpoint
        for _ in range(min(width - len(self._workers), len(self._queue))):
            self._start(self._work())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        worker = asyncio.create_task(work, name="callback")
        self._workers.add(worker)
        worker.add_done_callback(self._leave)

    def _leave(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if not worker.cancelled() and worker.exception() is not None:
            self._broke = worker.exception()
        self._changed.set()

    async def _wait(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S if self._taken or self._put_back else _LOOK_S):
                await self._changed.wait()
        self._changed.clear()

    async def _work(self) -> None:
        while self._queue and not self._halted:
            await self._settle(self._queue.popleft())

    async def _settle(self, line: Line) -> None:
        answer = await self._try(line)
        if answer.taken:
            self.failures = 0
            self._taken.append(line.id)
            _TAKEN.inc()
        else:
            self.failures += 1
            terms = self.means.terms(self.endpoint)
            if answer.fault == ADDRESS_REFUSED and self.failures == 1:
                # Once per row of failures: no later try goes better before the policy or the address is changed.
                _log.warning(
                    "callback_address_refused",
                    tenant=self.endpoint.tenant,
                    endpoint=self.endpoint.id,
                    allow_private=terms.allow_private,
                )
            verdict = next_try(line, answer, terms.rules, self.means.clock.now_at(), self.means.chance())
            if answer.status == GONE:
                self._gone = terms.version
            elif answer.status in _BUSY and answer.retry_after_ms:
                self._asked_ms = min(answer.retry_after_ms, REST_CAP_MS)
            self._put_back.append(verdict)
            metrics.callbacks_total.labels("retried" if verdict.gave_up_at is None else "gave_up").inc()
        if len(self._taken) + len(self._put_back) >= _FLUSH_AT or len(self._queue) == PAGE // 4:
            self._changed.set()

    async def _try(self, line: Line) -> Answer:
        terms = self.means.terms(self.endpoint)
        if terms.signer is None:
            return Answer(None, fault="no_secret")
        now_at = self.means.clock.now_at()
        return await self.means.client.post(
            self.endpoint.url,
            line.body,
            terms.signer.headers(line.webhook_id, line.body, now_at),
            allow_private=terms.allow_private,
            timeout_ms=terms.rules.timeout_ms,
            now_at=now_at,
        )

    async def _flush(self) -> None:
        taken, self._taken = self._taken, []
        put_back, self._put_back = self._put_back, []
        if not taken and not put_back:
            return
        try:
            await self.means.books.settle(taken, put_back)
        except BaseException:
            # Still in hand, so not sent again from here until the ledger takes the result.
            self._taken, self._put_back = taken + self._taken, put_back + self._put_back
            raise
        self._in_hand.difference_update(taken)
        self._in_hand.difference_update(verdict.id for verdict in put_back)
