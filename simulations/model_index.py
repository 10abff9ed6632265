"""The pure model behind the awaitable verbs of `simulations.index.Index`; nothing of it waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from scheduler.core.asks import Ask, Health, IndexReport, LeaseAsk, Leased, Outcomes, Verdict
from scheduler.core.records import Entry, Reference
from scheduler.core.tuning import Tuning
from scheduler.model import Model


class ModelIndex:
    """A model with a clock (UTC ms) of its own; each verb as `scheduler.store.scheduler.Scheduler` has it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.model = Model()
        self._now = clock

    async def tune(self, tuning: Tuning) -> None:
        """Takes a policy version."""
        self.model.tune(tuning, self._now())

    async def admit(self, asks: Sequence[Ask]) -> list[Verdict]:
        """A verdict per ask."""
        return self.model.admit(asks, self._now())

    async def enqueue(self, batch_id: bytes, entries: Sequence[Entry]) -> bool:
        """Queues a batch once."""
        return self.model.enqueue(batch_id, entries, self._now())

    async def lease(self, ask: LeaseAsk) -> Leased:
        """Takes what may go now."""
        return self.model.lease(ask, self._now())

    async def ack(self, lease_id: bytes, given_back: Sequence[tuple[Reference, str]] = ()) -> bool:
        """Ends a lease."""
        return self.model.ack(lease_id, self._now(), given_back)

    async def session_up(
        self, provider: str, session: str, ramp_start: float = 1.0, ramp_double_every_ms: int = 5_000
    ) -> None:
        """A session is bound."""
        every = ramp_double_every_ms
        self.model.session_up(provider, session, self._now(), ramp_start=ramp_start, ramp_double_every_ms=every)

    async def session_down(self, provider: str, session: str, back_at: int | None = None) -> None:
        """A session is no longer bound."""
        self.model.session_down(provider, session, self._now(), back_at)

    async def report_outcomes(self, provider: str, session: str, outcomes: Outcomes) -> Health:
        """What a carrier answered."""
        return self.model.report_outcomes(provider, session, outcomes, self._now())

    async def pause(self, scope: str, until: int | None = None) -> None:
        """Holds what needs a scope."""
        self.model.pause(scope, self._now(), until)

    async def resume(self, scope: str) -> None:
        """Ends a pause."""
        self.model.resume(scope, self._now())

    async def report_answers(self, provider: str, counts: Mapping[str, int]) -> None:
        """Segments answered, per class."""
        self.model.report_answers(provider, counts, self._now())

    async def counts(self) -> dict[tuple[str, str], int]:
        """Queued and leased per line."""
        return self.model.counts(self._now())

    async def report(self) -> IndexReport:
        """One look at everything."""
        return self.model.report(self._now())

    async def begin_rebuild(self) -> str | None:
        """A new epoch."""
        return self.model.begin_rebuild(self._now())

    async def load(self, epoch: str, entries: Sequence[Entry]) -> None:
        """Queues entries of a rebuild."""
        self.model.load(epoch, entries, self._now())

    async def open_class(self, epoch: str, class_name: str) -> None:
        """A class is served."""
        self.model.open_class(epoch, class_name, self._now())

    async def finish_rebuild(self, epoch: str) -> None:
        """All is served."""
        self.model.finish_rebuild(epoch, self._now())
