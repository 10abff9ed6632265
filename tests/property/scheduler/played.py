"""Plays a trace on both sides; events name what they need by place, so that a trace with parts cut out still plays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from scheduler.core.asks import Ask, ExplainAsk, Leased
from scheduler.core.records import Entry, Reference
from tests.property.scheduler.random_policies import Event, entry_of


class Told(Protocol):
    """Who hears a trace: scripts and model side by side, or one of them."""

    now: float

    def ask(self, verb: str, *args: Any, **options: Any) -> Any:
        """One verb; None where the index is unavailable."""

    def lose(self) -> None:
        """Everything is forgotten."""


class Player:
    """One trace on both; it stands in for the ledger: what was enqueued, and what has not ended."""

    def __init__(self, both: Told) -> None:
        self.both = both
        self.open: list[Leased] = []
        self.entries: dict[bytes, Entry] = {}
        self.paused: list[str] = []
        self.batches = 0
        both.ask("finish_rebuild", self._begin(lost=False))

    def play(self, event: Event) -> None:
        """One event; AssertionError where the two differ."""
        verb, after_ms, needed = event
        self.both.now += after_ms
        getattr(self, "_" + verb)(**needed)

    def _begin(self, *, lost: bool) -> str | None:
        if lost:
            self.both.lose()
        self.both.ask("epoch_state")
        epoch: str | None = self.both.ask("begin_rebuild")
        self.open.clear()
        return epoch

    def _tune(self, tuning: Any) -> None:
        self.both.ask("tune", tuning)

    def _enqueue(self, batch: int, entries: list[Any], repeat: bool) -> None:
        made = [entry_of(one, self.both.now) for one in entries]
        for _ in range(2 if repeat else 1):
            self.both.ask("enqueue", b"batch-%d" % batch, made)
        self.entries.update((one.reference.pack(), one) for one in made)

    def _lease(self, ask: Any, ack: bool) -> None:
        leased = self.both.ask("lease", ask)
        if leased is None:
            return
        for reference in leased.expired:
            self.entries.pop(reference.pack(), None)
        if leased.items:
            self.open.append(leased)
            if ack:
                self._ended(self.open.pop())

    def _ended(self, leased: Leased) -> None:
        if self.both.ask("ack", leased.lease_id):
            for item in leased.items:
                self.entries.pop(item.reference.pack(), None)

    def _end(self, which: int, how: str, part: float) -> None:
        if not self.open:
            return
        leased = self.open.pop(which % len(self.open))
        if how == "restore":
            self.both.ask("restore", leased.lease_id)
        elif how == "ack":
            self._ended(leased)
        else:
            unsent = [(item.reference, item.flow_key) for item in leased.items[: round(len(leased.items) * part)]]
            self.both.ask("ack", leased.lease_id, given_back=unsent)

    def _recent(self, back: int) -> Entry | None:
        waiting = list(self.entries.values())
        return waiting[-1 - back % len(waiting)] if waiting else None

    def _cancel(self, recent: list[int], slot: bool, keep_ms: float) -> None:
        found = [entry.reference.pack()[: 20 if slot else 16] for entry in map(self._recent, recent) if entry]
        if found:
            self.both.ask("tombstone", found, keep_ms)

    def _pause(self, scope: str, after_ms: float | None) -> None:
        self.both.ask("pause", scope, until=None if after_ms is None else int(self.both.now + after_ms))
        self.paused.append(scope)

    def _resume(self, scope: str, which: int | None) -> None:
        if which is not None and self.paused:
            scope = self.paused.pop(which % len(self.paused))
        self.both.ask("resume", scope)

    def _session_up(self, provider: str, session: str, ramp: tuple[float, int]) -> None:
        self.both.ask("session_up", provider, session, ramp_start=ramp[0], ramp_double_every_ms=ramp[1])

    def _session_down(self, provider: str, session: str, ramp: Any, back_ms: float | None) -> None:
        back_at = None if back_ms is None else int(self.both.now + back_ms)
        self.both.ask("session_down", provider, session, back_at=back_at)

    def _forget(self, provider: str, session: str, ramp: Any) -> None:
        self.both.ask("forget_session", provider, session)

    def _outcomes(self, provider: str, session: str, ramp: Any, outcomes: Any) -> None:
        self.both.ask("report_outcomes", provider, session, outcomes)

    def _slow(self, provider: str, session: str, ramp: Any, factor: float, round_trip_ms: float) -> None:
        self.both.ask("slow", session, factor=factor, round_trip_ms=round_trip_ms)

    def _answers(self, provider: str, counts: dict[str, int]) -> None:
        self.both.ask("report_answers", provider, counts)

    def _due(self, works: dict[str, list[Any]], complete: bool) -> None:
        now = int(self.both.now)
        at_present = {key: [(now + at, *rest) for at, *rest in buckets] for key, buckets in works.items()}
        self.both.ask("due_work", at_present, complete)

    def _admit(self, asks: list[Ask], first: int | None) -> None:
        now = int(self.both.now)
        asked = [replace(one, defer_until=now + one.defer_until if one.defer_until else 0) for one in asks]
        verdicts = self.both.ask("admit", asked)
        if first is None or verdicts is None:
            return
        entries = []
        for number, (ask, verdict) in enumerate(zip(asked, verdicts, strict=True)):
            if verdict.accepted and not ask.probe:
                id_ = (first - number).to_bytes(16, "big")
                reference = Reference(id_, 9, ask.segments, now + ask.left_ms, now, ask.number)
                entries.append(Entry(ask.flows[verdict.candidate], reference))
        self.both.ask("enqueue", b"admitted-%d" % first, entries)
        self.entries.update((one.reference.pack(), one) for one in entries)

    def _explain(self, recent: int) -> None:
        entry = self._recent(recent)
        if entry is not None:
            self.both.ask("explain", ExplainAsk(entry.flow, entry.reference, entry.retry))

    def _sweep(self, provider: str) -> None:
        self.both.ask("sweep", provider)

    def _look(self) -> None:
        self.both.ask("counts")
        self.both.ask("report")

    def _drop(self, **line: str) -> None:
        self.both.ask("drop_line", line["provider"], line["class"])

    def _rebuild(self, lost: bool, left: bool, between_ms: float) -> None:
        epoch = self._begin(lost=lost)
        if epoch is None:
            return
        by_class: dict[str, list[Entry]] = {}
        for entry in self.entries.values():
            by_class.setdefault(entry.flow.class_name, []).append(entry)
        for name, entries in by_class.items():
            self.both.now += between_ms
            self.both.ask("load", epoch, entries)
            self.both.ask("open_class", epoch, name)
            if left:
                return  # another rebuilder comes later
        self.both.ask("finish_rebuild", epoch)


def shortened(events: list[Event], fails: Callable[[list[Event]], bool], played: int) -> list[Event]:
    """A shorter trace that fails too: parts are cut out, ever smaller ones, as long as it goes on failing.

    Not more than `played` events are played for it.
    """
    size = len(events) // 2
    while size and played > 0:
        at = 0
        while at < len(events) and played > 0:
            rest = events[:at] + events[at + size :]
            played -= len(rest)
            if fails(rest):
                events = rest
            else:
                at += size
        size //= 2
    return events
