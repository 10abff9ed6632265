"""The door of a simulation: the product's own decisions (gateway.admission), without HTTP and without a database.

A kind of message is judged once against each policy version; after that only its clocks move with time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from gateway.admission.clocks import Clocks, set_clocks
from gateway.admission.decisions import decide
from gateway.admission.fields import ALONE, MessageRequest
from gateway.admission.judgement import Allowed, Moment, judge
from gateway.admission.problems import Problem
from gateway.admission.rows import Admitted
from gateway.admission.verdicts import ask_of
from gateway.policy.rules.snapshot import Policy
from scheduler.core.asks import Ask, Verdict
from scheduler.core.records import Entry
from simulations.ledger import Ledger, Message
from simulations.measure import Series
from simulations.traffic import Clients, Kind, Request

_PEPPER = b"simulation"
ASKS_MAX = 500  # of one call, as the product's door has it


class Refusal(NamedTuple):
    """What a client was told, but for when to come again."""

    code: str
    kind: str
    name: str
    cause: str


def _refusal(problem: Problem) -> Refusal:
    scope = problem.members.get("scope", {"kind": "-", "name": "-"})
    return Refusal(problem.code, scope["kind"], scope["name"], str(problem.members.get("cause", problem.code)))


class Door:
    """Turns requests into asks and verdicts into messages or refusals. `open_to_all` takes everything (a control)."""

    def __init__(self, policy: Policy, ledger: Ledger, clients: Clients, series: Series) -> None:
        self.policy = policy
        self.open_to_all = False
        self.skew_ms = 0.0  # of this process's clock against the server's
        self.requests = 0
        self.accepted = 0
        self.refusals: Counter[Refusal] = Counter()
        self.first_refused_at: dict[tuple[str, str], float] = {}  # by (class, cause)
        self.last_accepted_at = 0.0
        self._ledger = ledger
        self._clients = clients
        self._series = series
        self._kinds: dict[Kind, Allowed] = {}
        self._clocks: dict[tuple[str, int | None], Clocks] = {}
        self._questions: dict[Kind, tuple[Allowed, Ask]] = {}
        self._refusals: dict[tuple[str, tuple[str, str] | None, str | None], Refusal] = {}
        self._now_at = -1

    def take(self, policy: Policy) -> None:
        """Another policy version."""
        self.policy = policy
        self._kinds.clear()
        self._questions.clear()

    def ask(self, requests: Sequence[Request], now: float) -> tuple[list[Allowed], list[Ask]]:
        """What is asked of the index for these requests."""
        now_at = int(now + self.skew_ms)
        allowed, asks = [], []
        for request in requests:
            one, ask = self._question(request.kind, now_at)
            allowed.append(one)
            asks.append(
                Ask(
                    ask.flows, ask.segments, ask.budget_ms, ask.door_limit_ms, ask.left_ms, request.place,
                    number=ask.number, defer_until=ask.defer_until,
                )
            )  # fmt: skip
        return allowed, asks

    def answer(
        self, requests: Sequence[Request], allowed: Sequence[Allowed], verdicts: Sequence[Verdict], now: float
    ) -> list[Entry]:
        """Keeps what is accepted, tells the others; the entries to commit."""
        second = int((now - self._clients.start_at) // 1000)
        self.requests += len(requests)
        entries = []
        offered: Counter[str] = Counter()
        refused: Counter[str] = Counter()
        accepted: Counter[str] = Counter()
        deferred: Counter[str] = Counter()
        for request, one, verdict in zip(requests, allowed, verdicts, strict=True):
            request.tries += 1
            class_name = request.kind.class_name
            if request.tries == 1:
                offered[class_name] += 1
            if self.open_to_all and not verdict.accepted:
                verdict = replace(verdict, accepted=True, candidate=max(0, verdict.candidate))  # noqa: PLW2901
            decision = self._decide(one, verdict)
            if isinstance(decision, Refusal):
                refused[class_name] += 1
                self._refused(request, decision, verdict, now)
                continue
            message = Message(
                len(self._ledger.messages), request.kind, one.flows[decision.candidate], now, decision.predicted_wait_ms
            )
            message.segments = one.measure.segments
            message.deadline_at = decision.clocks.submit_by
            message.expires_at = decision.clocks.expires_at
            message.token = one.number
            self._ledger.messages.append(message)
            if decision.due_kind is None:
                accepted[class_name] += 1
                entries.append(message.entry())
            else:
                deferred[class_name] += 1
                self._ledger.wait_until(decision.clocks.begins_at, message)
        self.accepted += accepted.total() + deferred.total()
        if entries:
            self.last_accepted_at = now
        for what, counts in (
            ("offered", offered),
            ("refused", refused),
            ("accepted", accepted),
            ("deferred", deferred),
        ):
            for name, amount in counts.items():
                self._series.count(f"{what} {name}", second, amount)
        return entries

    def _decide(self, one: Allowed, verdict: Verdict) -> Admitted | Refusal:
        """The product's decision. A refusal's code and words depend on nothing else: they are worked out once."""
        if verdict.accepted or verdict.deferred:
            decision = decide(one, verdict)
            return decision if isinstance(decision, Admitted) else _refusal(decision)
        about = one.traffic.name, verdict.scope, verdict.cause
        found = self._refusals.get(about)
        if found is None:
            decision = decide(one, verdict)
            assert isinstance(decision, Problem)
            found = self._refusals[about] = _refusal(decision)
        return found

    def _refused(self, request: Request, refusal: Refusal, verdict: Verdict, now: float) -> None:
        self.refusals[refusal] += 1
        self.first_refused_at.setdefault((request.kind.class_name, refusal.cause), now)
        if request.obedient:
            self._clients.come_again(request, now + max(1, verdict.retry_after_s) * 1000)

    def _question(self, kind: Kind, now_at: int) -> tuple[Allowed, Ask]:
        """What is asked about a kind now, but for the place in line."""
        if now_at != self._now_at:
            self._clocks.clear()
            self._questions.clear()
            self._now_at = now_at
        found = self._questions.get(kind)
        if found is None:
            judged = self._allowed(kind, now_at)
            found = self._questions[kind] = judged, ask_of(judged, b"")
        return found

    def _allowed(self, kind: Kind, now_at: int) -> Allowed:
        judged = self._kinds.get(kind)
        if judged is None:
            judged = self._kinds[kind] = self._judge(kind, now_at)
        clocks = self._clocks.get((kind.class_name, kind.ttl_ms))
        if clocks is None:
            found = set_clocks(judged.request, judged.traffic, now_at)
            if isinstance(found, Problem):
                raise ValueError(f"the policy of a scenario refuses its own traffic: {found.code}")
            clocks = self._clocks[kind.class_name, kind.ttl_ms] = found
        # Frozen for the product; here each kind's is this door's own, in nobody's hands once a tick is over, and a copy
        # per kind and tick was a fifth of a simulation's work in Python.
        object.__setattr__(judged, "clocks", clocks)
        return judged

    def _judge(self, kind: Kind, now_at: int) -> Allowed:
        request = MessageRequest(
            to=kind.to,
            text=kind.text,
            sender="ACME",
            class_name=kind.class_name,
            ttl_ms=kind.ttl_ms,
            application=kind.application,
        )
        found = judge(Moment(self.policy, kind.tenant, now_at, _PEPPER), request, [], ALONE)
        if isinstance(found, Problem):
            raise ValueError(f"the policy of a scenario refuses its own traffic: {found.code}")
        return found
