"""The outcome writer of a process: endings in batches into the ledger, and what follows into the index.

It runs whenever something waits, whether or not there is anything to claim. While PostgreSQL is away it keeps what it
has and tries again; leasing stops when too much waits (design section 2).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway import logs
from gateway.clock import Clock
from gateway.domain.ids import show
from gateway.egress.rounds import Rounds
from gateway.egress.store_line import STORE_ERRORS, StoreLine
from gateway.ending_counts import count_endings
from gateway.ledger.outcomes import (
    Bench,
    Closing,
    Stored,
    forget_outbox,
    hurry_receipts,
    store_accepted,
    store_endings,
)
from gateway.policy.rules.snapshot import Policy
from scheduler.core.values import valueclass
from scheduler.store.scheduler import IndexUnavailable, Scheduler

BATCH_MAX: Final = 500
WAITING_MAX: Final = 5_000
_PATIENCE_S: Final = 1.0
_TELL_EVERY_S: Final = 0.1  # drain is measured over longer than that, and few receipts come before their answer
_APART_S: Final = 0.05  # nobody waits for an answer to be written down; batches are cheaper
_log = logs.get("egress.outcomes")


@valueclass
class WriterParts:
    """What the writer works with; `policy` gives the snapshot of the moment."""

    scheduler: Scheduler
    clock: Clock
    line: StoreLine
    policy: Callable[[], Policy]
    pepper: bytes


class OutcomeWriter:
    """One task; pumps report endings, `held` are claimed messages whose ending is not stored yet."""

    def __init__(self, parts: WriterParts) -> None:
        self.held: set[UUID] = set()
        self.reported = 0  # endings so far
        self.settled = 0  # how many of them are stored, and in the queue again where they belong
        self._parts = parts
        self._rounds = Rounds(parts.clock, _APART_S)
        self._waiting: deque[Closing] = deque()
        self._answered: Counter[tuple[str, str]] = Counter()
        self._named: list[str] = []  # carrier ids that are stored, and whose receipts may have come before
        self._tell_mono = 0.0
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_full(self) -> bool:
        """So much waits for the ledger that nothing new may be claimed."""
        return len(self._waiting) >= WAITING_MAX

    def hold(self, message_id: UUID) -> None:
        """A message was claimed: it is in memory until its ending is stored."""
        self.held.add(message_id)

    def close(self, closing: Closing) -> None:
        """Queues one ending."""
        self.reported += 1
        self._waiting.append(closing)
        self._idle.clear()
        self._wake.set()

    def answered(self, provider: str, class_name: str, segments: int) -> None:
        """Counts answered segments for the drain that the scheduler measures."""
        self._answered[provider, class_name] += segments
        self._idle.clear()
        self._wake.set()

    async def wait_idle(self) -> None:
        """Returns once everything reported is stored."""
        await self._idle.wait()

    async def run(self) -> None:
        """Runs until cancelled. What cannot be stored now stays, in order."""
        while True:
            await self._wake.wait()
            await self._rounds.begin()
            batch = self._take()
            try:
                await self._store(batch)
            except STORE_ERRORS as fault:
                self._waiting.extendleft(reversed(batch))
                self._parts.line.drop()
                _log.warning("outcomes_waiting", error=type(fault).__name__, waiting=len(self._waiting))
                await asyncio.sleep(random.uniform(0.05, _PATIENCE_S))
                continue
            except BaseException:
                self._waiting.extendleft(reversed(batch))
                raise
            self.settled += len(batch)
            self._named += [id_ for closing in batch for _, id_ in closing.carrier_ids if id_]
            await self._tell()
            if not self._waiting:
                self._wake.clear()
                if not (self._answered or self._named):
                    self._idle.set()

    def _take(self) -> list[Closing]:
        """The next batch in order, each message once: a second ending of a message follows in the next batch."""
        batch: list[Closing] = []
        seen: set[UUID] = set()
        again: list[Closing] = []
        while self._waiting and len(batch) < BATCH_MAX:
            closing = self._waiting.popleft()
            if closing.id in seen:
                again.append(closing)
            else:
                seen.add(closing.id)
                batch.append(closing)
        self._waiting.extendleft(reversed(again))
        return batch

    async def _store(self, batch: list[Closing]) -> None:
        if not batch:
            return
        conn = await self._parts.line.connection()
        bench = Bench(self._parts.policy(), self._parts.pepper, self._parts.clock.now_at(), random.random)
        plain = [closing for closing in batch if closing.is_plain]
        others = [closing for closing in batch if not closing.is_plain]
        if plain:
            await self._store_plain(conn, plain, bench)
        stored: Stored | None = None
        if others:
            async with conn.transaction():
                stored = await store_endings(conn, others, bench)
        for closing in batch:
            if not closing.late:
                self.held.discard(closing.id)
        if logs.debugging():
            _tell(batch)
        if stored is not None:
            count_endings(stored)
            await hand_on(self._parts.scheduler, conn, stored)

    async def _store_plain(self, conn: asyncpg.Connection[Any], plain: list[Closing], bench: Bench) -> None:
        try:
            await store_accepted(conn, plain, bench)
        except asyncpg.DataError:
            # One carrier id that PostgreSQL cannot hold must not keep the others waiting for ever.
            _log.error("carrier_ids_unstorable", messages=len(plain))
            await store_accepted(conn, [replace(closing, carrier_ids=[]) for closing in plain], bench)

    async def _tell(self) -> None:
        """A few times a second: receipts look for the new carrier ids, the scheduler hears what was answered."""
        if not (self._answered or self._named):
            return
        now_mono = self._parts.clock.now_mono()
        if now_mono < self._tell_mono:
            asyncio.get_running_loop().call_later(self._tell_mono - now_mono, self._wake.set)
            return
        self._tell_mono = now_mono + _TELL_EVERY_S
        named, self._named = self._named, []
        try:
            if named:
                await hurry_receipts(await self._parts.line.connection(), named, self._parts.clock.now_at())
        except STORE_ERRORS:
            self._parts.line.drop()  # the merger finds them by itself, a little later
        answered, self._answered = self._answered, Counter()
        try:
            for (provider, class_name), segments in answered.items():
                await self._parts.scheduler.answered(provider, segments, class_name)
        except IndexUnavailable:
            pass  # a measurement: the next one counts


def _tell(batch: list[Closing]) -> None:
    for closing in batch:
        _log.debug(
            "submit_ended",
            message_id=show(closing.id),
            slot=closing.slot,
            outcome=closing.outcome,
            provider=closing.provider,
            command_status=closing.command_status,
        )


async def hand_on(scheduler: Scheduler, conn: asyncpg.Connection[Any], stored: Stored) -> None:
    """Puts what became `queued` into the index, then forgets its outbox row; a sweep repeats what fails here."""
    if stored.outbox_id is None:
        return
    try:
        await scheduler.enqueue(stored.outbox_id.bytes, stored.entries)
    except IndexUnavailable as fault:
        _log.warning("enqueue_left_to_sweep", reason=fault.reason, messages=len(stored.entries))
        return
    await forget_outbox(conn, [stored.outbox_id])
