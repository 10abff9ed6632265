"""What a simulation asks of the queue index: the verbs of `scheduler.store.scheduler.Scheduler`, by either engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from redis.asyncio import Redis

from scheduler.core.asks import Ask, Health, IndexReport, LeaseAsk, Leased, Outcomes, Verdict
from scheduler.core.records import Entry, Reference
from scheduler.core.tuning import Tuning
from scheduler.store.scheduler import Scheduler
from simulations.link import Link, Stepper
from simulations.model_index import ModelIndex

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
    async def session_down(self, provider: str, session: str, back_at: int | None = None) -> None: ...
    async def report_outcomes(self, provider: str, session: str, outcomes: Outcomes) -> Health: ...
    async def pause(self, scope: str, until: int | None = None) -> None: ...
    async def resume(self, scope: str) -> None: ...
    async def report_answers(self, provider: str, counts: Mapping[str, int]) -> None: ...
    async def counts(self) -> dict[tuple[str, str], int]: ...
    async def report(self) -> IndexReport: ...
    async def begin_rebuild(self) -> str | None: ...
    async def load(self, epoch: str, entries: Sequence[Entry]) -> None: ...
    async def open_class(self, epoch: str, class_name: str) -> None: ...
    async def finish_rebuild(self, epoch: str) -> None: ...


class Engine(ABC):
    """What plays the index: it makes fresh ones, and steps their coroutines."""

    scripts: bool  # whether the real scripts on a server are behind it
    stepper: Stepper

    @abstractmethod
    def fresh(self, clock: Clock) -> Index:
        """An index without anything in it, and without those made before."""

    def lose(self) -> None:
        """The index forgets everything, as after FLUSHALL."""
        raise RuntimeError("only a server can lose what it holds")

    def spent_us(self) -> int:
        """Microseconds of processor time that the server has used."""
        raise RuntimeError("only a server tells what it spent")


class ScriptsEngine(Engine):
    """The real scripts on the server behind a link."""

    scripts = True

    def __init__(self, link: Link) -> None:
        self.stepper = link
        self._link = link

    def fresh(self, clock: Clock) -> Index:
        """A scheduler on the emptied server."""
        self.lose()
        return cast(Index, Scheduler(cast(Redis, self._link), clock=clock))

    def lose(self) -> None:
        """FLUSHALL."""
        self._link.run(self._link.flushall())

    def spent_us(self) -> int:
        """The server's own processor time so far: waiting for a busy machine does not count."""
        found = self._link.run(self._link.info("cpu"))
        return int(1e6 * (float(found["used_cpu_user_main_thread"]) + float(found["used_cpu_sys_main_thread"])))


class ModelEngine(Engine):
    """The pure model of the same policy (`scheduler.model.Model`); needs no server."""

    scripts = False

    def __init__(self) -> None:
        self.stepper = Stepper()

    def fresh(self, clock: Clock) -> Index:
        """A new model."""
        return ModelIndex(clock)
