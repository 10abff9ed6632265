"""The scheduler as a pure model: the verbs of `scheduler.store.scheduler.Scheduler`, at instants that are given.

The policy in plain data (`scheduler.plain`), without a server: the oracle that the scripts of `scheduler/lua` are held
against, and an engine of the simulations. Every verb raises IndexUnavailable where the scripts would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from scheduler.core.asks import (
    Ask,
    Blocker,
    ExplainAsk,
    Explanation,
    Health,
    IndexReport,
    LeaseAsk,
    Leased,
    Outcomes,
    Verdict,
)
from scheduler.core.blockers import blockers
from scheduler.core.due import coarsened
from scheduler.core.records import Entry, Reference
from scheduler.core.tuning import Tuning
from scheduler.core.unavailable import IndexUnavailable
from scheduler.plain import door, endings, epochs, explaining, faults, reporting
from scheduler.plain.leasing import Leasing
from scheduler.plain.state import Index
from scheduler.plain.sweeping import Sweeping
from scheduler.plain.tuned import tune
from scheduler.plain.turn import Turn

LEASE_MAX = 200
SEGMENTS_MAX = 1_000_000
LOAD_MAX = 2_000


class Model:
    """Lines, flows and limits of one cell; `now` is UTC ms."""

    def __init__(self) -> None:
        self.index = Index()
        self._tuning: Tuning | None = None
        self._named = 0

    def _turn(self, now: float, *, tuned: bool = False) -> Turn:
        if self.index.state == "lost":
            raise IndexUnavailable("lost")
        if tuned and self.index.tuning is None:
            if self._tuning is None:
                raise IndexUnavailable("untuned")
            self.tune(self._tuning, now)
        return Turn(self.index, now)

    def _name(self) -> bytes:
        self._named += 1
        return self._named.to_bytes(8, "big")

    # Policy

    def tune(self, tuning: Tuning, now: float) -> None:
        """Takes a policy version; one that is not newer changes nothing. Token fill is kept."""
        self._tuning = tuning
        tune(Turn(self.index, now), tuning, forced=False)

    # Door

    def admit(self, asks: Sequence[Ask], now: float) -> list[Verdict]:
        """A verdict per ask, in order; earlier asks count for later ones."""
        return door.admit(self._turn(now, tuned=True), asks) if asks else []

    def capacity(self, asks: Sequence[Ask], now: float) -> list[Verdict]:
        """The verdicts that these asks would get now; leaves no trace."""
        return self.admit([replace(ask, probe=True) for ask in asks], now)

    def enqueue(self, batch_id: bytes, entries: Sequence[Entry], now: float) -> bool:
        """Queues a committed batch; False when this batch was queued before."""
        return epochs.enqueue(self._turn(now), batch_id, entries)

    # Pump

    def lease(self, ask: LeaseAsk, now: float) -> Leased:
        """Takes up to `want` messages that may go now."""
        lease_id = self._name()
        if ask.want <= 0:
            return Leased(lease_id)
        turn = self._turn(now, tuned=True)
        if self.index.state == "loading" and not self.index.opened:
            return Leased(lease_id, cause="loading")
        segments = SEGMENTS_MAX if ask.want_segments is None else ask.want_segments
        return Leasing(turn, ask, min(ask.want, LEASE_MAX), segments).run(lease_id)

    def ack(self, lease_id: bytes, now: float, given_back: Sequence[tuple[Reference, str]] = ()) -> bool:
        """Ends a lease; the tokens of those given back return. False when the lease had lapsed."""
        return endings.acknowledge(self._turn(now), lease_id, given_back)

    def restore(self, lease_id: bytes, now: float) -> bool:
        """Ends a lease that was not used: references and tokens back at once."""
        return endings.restore(self._turn(now), lease_id)

    def tombstone(self, ids: Sequence[bytes], keep_ms: float, now: float) -> None:
        """References to these messages (16 octets) or slots (20) are dropped when they come up."""
        endings.tombstone(self._turn(now), ids, keep_ms)

    def sweep(self, provider: str, now: float, from_: int = 0) -> tuple[int, int | None]:
        """Drops what ended at the heads of a provider's flows; how many, and where to go on (None: all were seen)."""
        return Sweeping(self._turn(now, tuned=True), provider, from_).run()

    def woken(self, session: str) -> bool:
        """Takes the wake of a session, if it has one."""
        there = session in self.index.wakes
        self.index.wakes.discard(session)
        return there

    # Reports and orders

    def forget_session(self, provider: str, session: str, now: float) -> None:
        """No more wakes; down as well."""
        faults.forget(self._turn(now), provider, session)

    def session_up(
        self, provider: str, session: str, now: float, *, ramp_start: float = 1.0, ramp_double_every_ms: float = 5_000
    ) -> None:
        """The session is bound; its rate starts at a share of its limit and doubles until whole."""
        faults.up(self._turn(now), provider, session, (ramp_start, ramp_double_every_ms))

    def session_down(self, provider: str, session: str, now: float, back_at: float | None = None) -> None:
        """The session is no longer bound; `back_at` is when the next try to bind begins, if known."""
        faults.down(self._turn(now), provider, session, back_at)

    def report_outcomes(self, provider: str, session: str, outcomes: Outcomes, now: float) -> Health:
        """What a session's carrier answered since the last report; decides about pace and breakers."""
        return faults.report(self._turn(now), provider, session, outcomes)

    def slow(self, session: str, now: float, factor: float = 0.7, round_trip_ms: float = 200) -> None:
        """The carrier throttles."""
        turn = self._turn(now)
        faults.slow(turn, session, factor, round_trip_ms)
        turn.keep()

    def pause(self, scope: str, now: float, until: float | None = None) -> None:
        """Holds everything that needs a scope (`kind:name`), until an instant or until resumed."""
        faults.pause(self._turn(now), scope, until)

    def resume(self, scope: str, now: float) -> None:
        """Ends a pause with an empty bucket."""
        faults.resume(self._turn(now), scope)

    def report_answers(self, provider: str, counts: Mapping[str, int], now: float) -> None:
        """Segments that the carrier answered since the last report, per class."""
        if counts:
            faults.answered(self._turn(now), provider, counts)

    def due_work(self, works: Mapping[str, Sequence[tuple[int, int, int]]], complete: bool, now: float) -> None:
        """What waits in the ledger's due table per flow key, as buckets (due at, messages, segments)."""
        turn = self._turn(now)
        if complete:
            for flow in self.index.flows.values():
                flow.due = []
        for key, buckets in works.items():
            turn.flow(key).due = list(coarsened(buckets))

    def counts(self, now: float) -> dict[tuple[str, str], int]:
        """Queued and leased messages per (provider, class)."""
        return reporting.counts(self._turn(now))

    def report(self, now: float) -> IndexReport:
        """Lines, the 20 largest tenants and the scopes that something waits for."""
        return reporting.report(self._turn(now))

    def blockers(self, now: float) -> list[Blocker]:
        """What holds work now, by class, the largest first."""
        return blockers(self.report(now))

    def explain(self, ask: ExplainAsk, now: float) -> Explanation:
        """Why one queued reference waits, its place and its predicted start."""
        return explaining.explain(self._turn(now, tuned=True), ask)

    # Epoch

    def lose(self) -> None:
        """Everything is forgotten, as by a server that was emptied."""
        self.index = Index()

    def epoch_state(self, now: float) -> str:
        """`ready`, `loading` or `lost`."""
        return epochs.state_of(self.index, now)

    def begin_rebuild(self, now: float) -> str | None:
        """Starts a rebuild: the epoch's name, or None while another is at it."""
        epoch = self._name().hex()
        if not epochs.begin(Turn(self.index, now), epoch):
            return None
        if self._tuning is not None:
            tune(Turn(self.index, now), self._tuning, forced=True)
        return epoch

    def load(self, epoch: str, entries: Sequence[Entry], now: float) -> None:
        """Queues entries of the ledger during a rebuild."""
        for at in range(0, len(entries), LOAD_MAX):
            epochs.load(Turn(self.index, now), epoch, entries[at : at + LOAD_MAX])

    def open_class(self, epoch: str, class_name: str, now: float) -> None:
        """A class is loaded: it is served from now on."""
        epochs.rebuilding(self.index, epoch, now)
        self.index.opened.add(class_name)

    def finish_rebuild(self, epoch: str, now: float) -> None:
        """All is loaded: the epoch is ready."""
        epochs.rebuilding(self.index, epoch, now)
        epochs.finish(self.index)

    def drop_line(self, provider: str, class_name: str, now: float) -> None:
        """Empties one line that drifted."""
        epochs.drop_line(self._turn(now), provider, class_name)
