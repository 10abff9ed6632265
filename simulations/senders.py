"""The sending side of a simulation: sessions with windows that lease, submit, and tell what the carrier said."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict, deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from gateway.policy.rules.snapshot import Policy
from scheduler.core.asks import LeaseAsk, Leased, Outcomes
from scheduler.core.records import Flow
from simulations.carrier import Carrier
from simulations.index import Index
from simulations.ledger import Ledger, Message
from simulations.measure import LimitWatch, Series

_REPORT_MS = 100.0  # how often answers are told
# How often a session's health is told: sooner where the carrier asks for less or mostly fails, also while it says
# nothing (gateway.egress.health).
_HEALTH_MS, _URGENT_MS, _SILENT_MS = 250.0, 50.0, 500.0
_WAIT_MAX_MS = 1_000.0  # a session without a wake looks again
_WANT_MAX = 200


@dataclass(slots=True)
class Session:
    """One bind. `alive` is its process; a dead one leases nothing and acknowledges nothing."""

    provider: str
    name: str
    window: int
    carrier: Carrier
    response_timeout_ms: float
    up: bool = True
    alive: bool = True
    flying: int = 0
    lease_at: float = 0.0
    dies_with_lease: bool = False
    hungry: bool = False  # its last lease was as large as one may be: there may be more
    binding: int = 0  # rises with every drop: what was under way then has no answer
    good: int = 0
    errors: int = 0
    throttled: int = 0
    round_trips_ms: float = 0.0
    rate_per_s: float = 0.0
    told_at: float = 0.0
    submitted: int = 0
    unanswered: deque[float] = field(default_factory=deque)  # when each was submitted

    def note(self, answer: str, round_trip_ms: float) -> None:
        """One answer, or none in time."""
        if self.unanswered:
            self.unanswered.popleft()
        if answer == "taken":
            self.good += 1
        elif answer == "throttled":
            self.throttled += 1
        else:
            self.errors += 1
        self.round_trips_ms += round_trip_ms

    def outcomes(self, now: float) -> Outcomes | None:
        """What the scheduler is told now, None where it is not the time for it."""
        answers = self.good + self.errors + self.throttled
        urgent = self.throttled > 0 or 0 < self.errors >= self.good
        apart = _URGENT_MS if urgent else _HEALTH_MS if answers else _SILENT_MS
        passed = now - self.told_at
        if passed < apart or not (answers or self.unanswered):
            return None
        weight = min(1.0, passed / 1000)
        self.rate_per_s += (self.submitted * 1000 / passed - self.rate_per_s) * weight
        found = Outcomes(
            good=self.good,
            errors=self.errors,
            throttled=self.throttled,
            round_trip_ms=self.round_trips_ms / answers if answers else 0.0,
            rate_per_s=self.rate_per_s,
            unanswered_ms=now - self.unanswered[0] if self.unanswered else 0.0,
        )
        self.good = self.errors = self.throttled = self.submitted = 0
        self.round_trips_ms, self.told_at = 0.0, now
        return found


Landing = tuple[Session, int, Message, str, float]  # whose answer (of which binding), to what, which, submitted when


class Senders:
    """All sessions of a simulation. `watches` hold each limited scope's journal."""

    def __init__(self, index: Index, ledger: Ledger, series: Series, rng: random.Random) -> None:
        self.sessions: list[Session] = []
        self.watches: dict[str, LimitWatch] = {}
        self.policy: Policy | None = None
        self.start_at = 0.0
        self.tick_ms = 10.0
        self.first_attempts = 0
        self.retries = 0
        self.cap_retries = True
        self.lost_leases: list[tuple[float, list[int]]] = []
        self._index = index
        self._ledger = ledger
        self._series = series
        self._rng = rng
        self._landings: dict[int, list[Landing]] = defaultdict(list)
        self._acks: list[bytes] = []
        self._answered: dict[str, Counter[str]] = defaultdict(Counter)
        self._reported_at = 0.0
        self._scopes: dict[tuple[str, str], list[LimitWatch]] = {}

    def wake(self, providers: set[str], now: float) -> None:
        """Something was queued for these providers."""
        for session in self.sessions:
            if session.provider in providers:
                session.lease_at = now

    def land(self, now: float) -> list[Coroutine[Any, Any, Any]]:
        """Answers that arrive now; the calls that tell the index of them and of finished leases."""
        calls: list[Coroutine[Any, Any, Any]] = [self._index.ack(lease_id) for lease_id in self._acks]
        self._acks.clear()
        tick = int(now // self.tick_ms)
        again = []
        for session, binding, message, answer, submitted_at in self._landings.pop(tick, ()):
            if binding != session.binding:
                continue
            session.flying -= 1
            session.note(answer, now - submitted_at)
            if answer != "timeout":
                self._answered[session.provider][message.kind.class_name] += message.segments
            if answer == "taken":
                self._ledger.end(message, "sent", now)
            elif answer == "throttled":
                message.slot += 1
                message.closing = False
                again.append(message.entry(front=True))
            elif answer == "later":
                self._later(message, now)
            else:
                self._ledger.end(message, "unconfirmed", now)
        self._ledger.commit(again, now)
        for session in self.sessions:
            outcomes = session.outcomes(now) if session.up and session.alive else None
            if outcomes is not None:
                calls.append(self._index.report_outcomes(session.provider, session.name, outcomes))
        if now - self._reported_at >= _REPORT_MS and self._answered:
            self._reported_at = now
            calls += [self._index.report_answers(name, counts) for name, counts in self._answered.items()]
            self._answered = defaultdict(Counter)
        return calls

    def asks(self, now: float, *, hungry: bool = False) -> list[tuple[Session, LeaseAsk]]:
        """What is leased now, and for whom; `hungry`: by those alone that ask on at once."""
        found = []
        for session in self.sessions:
            if hungry and not session.hungry:
                continue
            if session.up and session.alive and session.lease_at <= now and session.flying < session.window:
                want = min(session.window - session.flying, _WANT_MAX)
                found.append((session, LeaseAsk(session.provider, session.name, want)))
        return found

    def leased(self, session: Session, leased: Leased, now: float) -> None:
        """Submits what a lease brought."""
        second = int((now - self.start_at) // 1000)
        session.hungry = len(leased.items) >= _WANT_MAX
        for reference in leased.expired:
            message = self._ledger.claim(reference)
            if message is not None:
                self._ledger.end(message, "expired", now)
                self._series.count("expired " + message.kind.class_name, second)
        if not leased.items:
            wait_ms = _WAIT_MAX_MS if leased.wait_ms is None else min(_WAIT_MAX_MS, leased.wait_ms)
            session.lease_at = now + max(wait_ms, self.tick_ms)
            return
        if session.dies_with_lease:
            session.alive = False
            self.lost_leases.append((now, [int.from_bytes(item.reference.id, "big") for item in leased.items]))
            return
        self._acks.append(leased.lease_id)
        sent: Counter[str] = Counter()
        for item in leased.items:
            message = self._ledger.claim(item.reference)
            if message is None:
                continue
            if message.started_at is None:
                message.started_at = now
                self.first_attempts += 1
                self._series.count("sent " + message.kind.class_name, second)
            elif message.attempts:
                self.retries += 1
            sent[item.flow_key] += message.segments
            self._submit(session, message, now)
        for flow_key, segments in sent.items():
            for watch in self._watches(flow_key, session.name):
                watch.add(now, segments)

    def drop(self, session: Session, now: float) -> Coroutine[Any, Any, None]:
        """The bind ends: what was under way is in doubt (not sent again here). Returns what the index is told."""
        session.up = False
        session.binding += 1
        session.flying = 0
        session.unanswered.clear()
        for landings in self._landings.values():
            for whose, binding, message, _, _ in landings:
                if whose is session and binding == session.binding - 1:
                    self._ledger.end(message, "unconfirmed", now)
        return self._index.session_down(session.provider, session.name)

    def bind(self, session: Session, now: float) -> Coroutine[Any, Any, None]:
        """The session is bound again and ramps up as its policy says."""
        assert self.policy is not None
        session.up, session.lease_at = True, now
        ramp = self.policy.providers[session.provider].ramp
        return self._index.session_up(session.provider, session.name, ramp.start, ramp.double_every_ms)

    def forget_watches(self) -> None:
        """After a policy change: which scopes a flow has may be another set."""
        self._scopes.clear()

    def _submit(self, session: Session, message: Message, now: float) -> None:
        answer, answer_at = session.carrier.submit(now, message.segments)
        session.flying += 1
        session.submitted += message.segments
        session.unanswered.append(now)
        if answer == "silent":
            answer_at = now + session.response_timeout_ms
        kind = "timeout" if answer == "silent" else answer
        self._landings[max(math.ceil(answer_at / self.tick_ms), int(now // self.tick_ms) + 1)].append(
            (session, session.binding, message, kind, now)
        )

    def _later(self, message: Message, now: float) -> None:
        """A delayed retry with full jitter, only while attempts and the deadline permit; else the end at once."""
        assert self.policy is not None
        message.attempts += 1
        message.slot += 1
        message.closing = False
        retries, traffic = self.policy.retries, self.policy.classes[message.kind.class_name]
        if message.attempts >= traffic.max_attempts:
            self._ledger.end(message, "failed", now)
            return
        delay = self._rng.uniform(0, min(retries.max_ms, retries.base_ms * 2 ** (message.attempts - 1)))
        if now + delay >= message.expires_at:
            self._ledger.end(message, "expired", now)
        else:
            self._ledger.wait_until(now + delay, message)

    def _watches(self, flow_key: str, session: str) -> list[LimitWatch]:
        found = self._scopes.get((flow_key, session))
        if found is None:
            flow = Flow.parse(flow_key)
            names = {*flow.scopes, f"provider:{flow.provider}", f"session:{session}"}
            found = self._scopes[flow_key, session] = [
                self.watches[name] for name in names if name in self.watches and not name.startswith("number:")
            ]
        return found
