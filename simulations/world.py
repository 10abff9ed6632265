"""One simulated gateway on virtual time: clients, door, ledger, index, sessions and carriers."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.policy.rules.parse import read_policy
from gateway.policy.rules.snapshot import Policy
from gateway.policy.rules.tuning import tuning_of
from scheduler.core.asks import IndexReport
from scheduler.core.records import Entry
from simulations.carrier import Carrier
from simulations.door import ASKS_MAX, Door
from simulations.index import START_AT, Clock, Engine, Index
from simulations.ledger import Ledger, Message
from simulations.measure import LimitWatch, Series, quantile
from simulations.senders import Senders, Session
from simulations.traffic import Clients, Request, Stream

_FILL_MS = 600_000  # before the start, so that every bucket is full
_ENQUEUE_MAX = 2_000
Action = Callable[[], object]


@dataclass(slots=True)
class Lab:
    """What a scenario is played with: an engine, one seed, and how many messages to offer."""

    engine: Engine
    seed: int
    size: int

    def world(self, policy: str, *, tick_ms: float = 10.0, name: str = "") -> World:
        """A fresh world on an emptied server; equal names get equal chance."""
        return World(self, read_policy(policy, 1), tick_ms, random.Random(f"{self.seed}/{name}"))


@dataclass(slots=True)
class World:
    """Everything of one simulation. Times of actions and streams are seconds from the start."""

    lab: Lab
    policy: Policy
    tick_ms: float
    rng: random.Random
    clock: Clock = field(init=False)
    index: Index = field(init=False)
    ledger: Ledger = field(init=False)
    series: Series = field(init=False)
    clients: Clients = field(init=False)
    door: Door = field(init=False)
    senders: Senders = field(init=False)
    carriers: dict[str, Carrier] = field(init=False)
    start_at: float = field(init=False)
    storage_down: bool = False
    leave_batches: bool = False  # a process of the door that dies before it enqueues
    repeat_share: float = 0.0  # of enqueue calls that are made twice
    repeated: int = 0
    on_step: Callable[[World], None] | None = None
    _actions: list[tuple[float, int, Action]] = field(default_factory=list)
    _oldest: dict[str, int] = field(default_factory=dict)
    _second: int = -1

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.index = self.lab.engine.fresh(self.clock)
        self.tell(self.index.tune(tuning_of(self.policy)))
        epoch = self.tell(self.index.begin_rebuild())
        assert epoch is not None
        self.tell(self.index.finish_rebuild(epoch))
        self.clock.at = self.start_at = START_AT + _FILL_MS
        self.ledger, self.series = Ledger(), Series()
        self.clients = Clients(self.rng, self.start_at)
        self.door = Door(self.policy, self.ledger, self.clients, self.series)
        self.senders = Senders(self.index, self.ledger, self.series, self.rng)
        self.senders.policy = self.policy
        self.senders.start_at, self.senders.tick_ms = self.start_at, self.tick_ms
        self.carriers = {name: Carrier(self.rng) for name in self.policy.providers}
        for provider in self.policy.providers.values():
            for one in provider.sessions.values():
                carrier = self.carriers[provider.name]
                self.senders.sessions.append(
                    Session(provider.name, one.name, one.window, carrier, one.response_timeout_ms)
                )
                self.tell(self.index.session_up(provider.name, one.name))
        for scope, (rate_per_s, burst) in tuning_of(self.policy).limits.items():
            self.senders.watches[scope] = LimitWatch(rate_per_s, burst, self.start_at)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return (self.clock.at - self.start_at) / 1000

    def offer(self, *streams: Stream) -> None:
        """Traffic from its own start on."""
        self.clients.streams.extend(streams)

    def at(self, second: float, action: Action) -> None:
        """Something that happens at a time."""
        heapq.heappush(self._actions, (second, len(self._actions), action))

    def change(self, second: float, target: object, **values: object) -> None:
        """Fields of something (a carrier, the door, a session) that change at a time."""

        def act() -> None:
            for name, value in values.items():
                setattr(target, name, value)

        self.at(second, act)

    def run(self, until_s: float) -> None:
        """Goes on until that second."""
        while self.elapsed_s < until_s - 1e-9:
            self.step()

    def step(self) -> None:
        """One tick."""
        self.clock.at += self.tick_ms
        now = self.clock.at
        while self._actions and self._actions[0][0] <= self.elapsed_s:
            heapq.heappop(self._actions)[2]()
        calls: list[Any] = list(self.senders.land(now)) if not self.storage_down else []
        capped = self.senders.cap_retries
        self.ledger.commit([message.entry(capped=capped) for message in self.ledger.come_due(now)], now)
        batches = [] if self.storage_down else self.ledger.to_enqueue(now)
        for batch in batches:
            calls.append(self.index.enqueue(batch.id, batch.entries))
            if self.repeat_share and self.rng.random() < self.repeat_share:
                self.repeated += 1
                calls.append(self.index.enqueue(batch.id, batch.entries))
        self.senders.wake({entry.flow.provider for batch in batches for entry in batch.entries[:1]}, now)
        requests = [] if self.storage_down else self.clients.due(now)
        chunks = [self.door.ask(requests[at : at + ASKS_MAX], now) for at in range(0, len(requests), ASKS_MAX)]
        asks = [] if self.storage_down else self.senders.asks(now)
        before = len(calls)
        calls += [self.index.admit(asked) for _, asked in chunks]
        calls += [self.index.lease(ask) for _, ask in asks]
        if calls:
            replies = self.lab.engine.stepper.together(*calls)
            self._note_enqueued(batches, now)
            self._answer(requests, chunks, replies[before : before + len(chunks)], now)
            leases = replies[before + len(chunks) :]
            while leases:
                for (session, _), leased in zip(asks, leases, strict=True):
                    self.senders.leased(session, leased, now)
                asks = self.senders.asks(now, hungry=True)
                leases = self.lab.engine.stepper.together(*(self.index.lease(ask) for _, ask in asks)) if asks else []
        if int(self.elapsed_s) != self._second:
            self._second = int(self.elapsed_s)
            self._look()
        if self.on_step is not None:
            self.on_step(self)

    def report(self) -> IndexReport:
        """The index's own view."""
        found: IndexReport = self.tell(self.index.report())
        return found

    def take_policy(self, text: str) -> None:
        """Another policy version, everywhere at once."""
        self.policy = read_policy(text, self.policy.version + 1)
        tuning = tuning_of(self.policy)
        self.tell(self.index.tune(tuning))
        self.door.take(self.policy)
        self.senders.policy = self.policy
        for scope, (rate_per_s, burst) in tuning.limits.items():
            watch = self.senders.watches.get(scope)
            if watch is None:
                self.senders.watches[scope] = LimitWatch(rate_per_s, burst, self.clock.at)
            else:
                watch.change(rate_per_s, burst, self.clock.at)
        self.senders.forget_watches()

    def tell(self, call: Coroutine[Any, Any, Any]) -> Any:
        """One call to the index, now."""
        return self.lab.engine.stepper.run(call)

    def waits(self, wanted: Callable[[Message], bool]) -> list[float]:
        """From the queue to the carrier, ms, of the messages that are wanted and left."""
        return [
            message.started_at - message.enqueued_at
            for message in self.ledger.messages
            if message.started_at is not None and message.enqueued_at is not None and wanted(message)
        ]

    def ended(self, how: str, class_name: str | None = None) -> int:
        """Accepted messages with this end; what is past its deadline and unsent counts as expired."""
        return sum(
            1
            for message in self.ledger.messages
            if (class_name is None or message.kind.class_name == class_name) and self.end_of(message) == how
        )

    def end_of(self, message: Message) -> str:
        """How a message ended, `waiting` where it has not."""
        if message.end is not None:
            return message.end
        if message.closing:
            return "flying"
        deadline = message.deadline_at if message.started_at is None else message.expires_at
        return "expired" if deadline <= self.clock.at else "waiting"

    def told(self) -> Series:
        """The series, with what expired at the second of its deadline, whoever noticed it when."""
        for name in self.policy.classes:
            self.series.counts.pop("expired " + name, None)
        for message in self.ledger.messages:
            if self.end_of(message) == "expired":
                deadline = message.deadline_at if message.started_at is None else message.expires_at
                self.series.count("expired " + message.kind.class_name, int((deadline - self.start_at) // 1000))
        return self.series

    def excess(self) -> float:
        """The largest excess over a limit's burst, over all scopes and windows."""
        return max((watch.excess - watch.burst for watch in self.senders.watches.values()), default=0.0)

    def predictions(self, wanted: Callable[[Message], bool] = lambda message: True) -> tuple[float, float]:
        """Median wait (ms) and share of messages whose wait was foretold within 30 %."""
        pairs = [
            (message.predicted_ms, message.started_at - message.accepted_at)
            for message in self.ledger.messages
            if message.started_at is not None and wanted(message)
        ]
        good = sum(1 for predicted, wait in pairs if abs(predicted - wait) <= 0.3 * wait)
        return quantile((wait for _, wait in pairs), 0.5), good / max(1, len(pairs))

    def _note_enqueued(self, batches: Sequence[Any], now: float) -> None:
        messages = self.ledger.messages
        for batch in batches:
            for entry in batch.entries:
                message = messages[int.from_bytes(entry.reference.id, "big")]
                if message.enqueued_at is None:
                    message.enqueued_at = now

    def _answer(self, requests: list[Request], chunks: Sequence[Any], replies: Iterable[Any], now: float) -> None:
        at = 0
        for (allowed, _), verdicts in zip(chunks, replies, strict=True):
            chunk = requests[at : at + len(allowed)]
            at += len(allowed)
            entries: list[Entry] = self.door.answer(chunk, allowed, verdicts, now)
            self.ledger.commit(entries, now, told=not self.leave_batches)

    def _look(self) -> None:
        """The oldest unsent message of each class, once a second: for the pictures."""
        for name in self.policy.classes:
            at = self._oldest.get(name, 0)
            messages = self.ledger.messages
            while at < len(messages) and (
                messages[at].kind.class_name != name
                or messages[at].started_at is not None
                or self.end_of(messages[at]) == "expired"
            ):
                at += 1
            self._oldest[name] = at
            age = self.clock.at - messages[at].accepted_at if at < len(messages) else 0.0
            self.series.level("age " + name, self._second, age / 1000)
