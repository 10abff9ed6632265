"""What a simulation asks of the queue index: the verbs of `scheduler.store.scheduler.Scheduler`, by either engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast

from redis.asyncio import Redis

from scheduler.core.asks import Ask, IndexReport, LeaseAsk, Leased, Verdict
from scheduler.core.records import Entry, Reference
from scheduler.core.tuning import Tuning
from scheduler.store.scheduler import Scheduler
from simulations.link import Link

START_AT = 1_800_000_000_000  # the first instant of every simulation, UTC ms


class Clock:
    """Milliseconds that move when told."""

    def __init__(self, at: float = START_AT) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


class Index(Protocol):
    """The verbs that simulations use; every coroutine can be stepped by `Link.together`."""

    async def tune(self, tuning: Tuning) -> None: ...
    async def admit(self, asks: Sequence[Ask]) -> list[Verdict]: ...
    async def enqueue(self, batch_id: bytes, entries: Sequence[Entry]) -> bool: ...
    async def lease(self, ask: LeaseAsk) -> Leased: ...
    async def ack(self, lease_id: bytes, given_back: Sequence[tuple[Reference, str]] = ()) -> bool: ...
    async def session_up(
        self, provider: str, session: str, ramp_start: float = 1.0, ramp_double_every_ms: int = 5_000
    ) -> None: ...
    async def session_down(self, provider: str, session: str) -> None: ...
    async def slow(self, session: str, factor: float = 0.7, round_trip_ms: float = 200) -> None: ...
    async def pause(self, scope: str, until: int | None = None) -> None: ...
    async def resume(self, scope: str) -> None: ...
    async def report_answers(self, provider: str, counts: Mapping[str, int]) -> None: ...
    async def counts(self) -> dict[tuple[str, str], int]: ...
    async def report(self) -> IndexReport: ...
    async def begin_rebuild(self) -> str | None: ...
    async def load(self, epoch: str, entries: Sequence[Entry]) -> None: ...
    async def open_class(self, epoch: str, class_name: str) -> None: ...
    async def finish_rebuild(self, epoch: str) -> None: ...


Maker = Callable[[Clock], Index]


def scripts(link: Link) -> Maker:
    """The real scripts on the server behind the link."""
    return lambda clock: cast(Index, Scheduler(cast(Redis, link), clock=clock))
