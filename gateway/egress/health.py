"""Telling the scheduler how each session fares, and the session what the scheduler made of it (design section 3).

Every quarter of a second where something was answered, sooner where a carrier asks for less or mostly fails, and also
while a carrier answers nothing: silence must not look like speed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from gateway import logs
from gateway.egress.tallies import Counts, Tally
from scheduler.core.asks import Health, Outcomes
from scheduler.store.scheduler import IndexUnavailable, Scheduler

EVERY_S: Final = 0.25
URGENT_S: Final = 0.05
SILENT_S: Final = 0.5
_AWAY_S: Final = 1.0
_log = logs.get("egress.health")


class Load(NamedTuple):
    """A session at this moment: segments per second of late, claimed and unwritten segments, age of the oldest submit.

    `unanswered_ms` is 0 where no answer is awaited.
    """

    rate_per_s: float
    waiting: int
    unanswered_ms: float


class Listener(Protocol):
    """A session as the reporter sees it."""

    def load(self, now_mono: float) -> Load:
        """What it has in hand."""

    def healthy(self, health: Health, asked_less: bool) -> None:
        """Takes what the scheduler decided; `asked_less`: the report held answers that asked for a slower pace."""


@dataclass(slots=True, eq=False)
class Member:
    """One session that is reported."""

    provider: str
    session: str
    tally: Tally
    listener: Listener
    told_mono: float = float("-inf")

    def rest_s(self, now_mono: float) -> float | None:
        """How long until there is a report to make; None while there is nothing to tell."""
        if self.tally.is_urgent:
            apart_s = URGENT_S
        elif not self.tally.is_empty:
            apart_s = EVERY_S
        elif self.listener.load(now_mono).unanswered_ms > 0:
            apart_s = SILENT_S
        else:
            return None
        return max(0.0, self.told_mono + apart_s - now_mono)


class HealthReporter:
    """One task of a process for all its sessions."""

    def __init__(self, scheduler: Scheduler, now_mono: Callable[[], float]) -> None:
        self._scheduler = scheduler
        self._now_mono = now_mono
        self._members: dict[str, Member] = {}
        self._wake = asyncio.Event()

    def join(self, member: Member) -> None:
        """Reports a session from now on."""
        self._members[member.session] = member

    def leave(self, member: Member) -> None:
        """Reports a session no longer; another of the same name may have taken its place."""
        if self._members.get(member.session) is member:
            del self._members[member.session]

    def notice(self) -> None:
        """Something was written or answered."""
        self._wake.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._wake.wait()
            rests = self._rests()
            if not rests:
                self._wake.clear()
                continue
            await asyncio.sleep(min(EVERY_S, *rests.values()))
            due = [one for one, rest_s in self._rests().items() if rest_s <= 0]
            try:
                await asyncio.gather(*(self._tell(one) for one in due))
            except IndexUnavailable as fault:
                _log.debug("health_not_told", reason=fault.reason)
                await asyncio.sleep(_AWAY_S)

    def _rests(self) -> dict[Member, float]:
        now_mono = self._now_mono()
        rests = {one: one.rest_s(now_mono) for one in self._members.values()}
        return {one: rest_s for one, rest_s in rests.items() if rest_s is not None}

    async def _tell(self, one: Member) -> None:
        counts = one.tally.take()
        one.told_mono = self._now_mono()
        outcomes = outcomes_of(counts, one.listener.load(one.told_mono))
        try:
            health = await self._scheduler.report_outcomes(one.provider, one.session, outcomes)
        except IndexUnavailable:
            one.tally.put_back(counts)
            raise
        one.listener.healthy(health, bool(counts.throttled or counts.queue_full))


def outcomes_of(counts: Counts, load: Load) -> Outcomes:
    """The report as the scheduler takes it."""
    return Outcomes(
        good=counts.good,
        errors=counts.errors,
        throttled=counts.throttled,
        queue_full_destinations=counts.queue_full,
        round_trip_ms=counts.round_trip_ms,
        rate_per_s=load.rate_per_s,
        waiting=load.waiting,
        unanswered_ms=load.unanswered_ms,
    )
