"""The door of a simulation: the product's own decisions (gateway.admission), without HTTP and without a database.

A kind of message is judged once against each policy version; after that only its clocks move with time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gateway.admission.clocks import Clocks, set_clocks
from gateway.admission.decisions import decide
from gateway.admission.fields import ALONE, MessageRequest
from gateway.admission.judgement import Allowed, Moment, judge
from gateway.admission.problems import Problem
from gateway.admission.verdicts import ask_of
from gateway.policy.rules.snapshot import Policy
from scheduler.core.asks import Ask, Verdict
from scheduler.core.records import Entry
from simulations.ledger import Ledger, Message
from simulations.measure import Series
from simulations.traffic import Clients, Kind, Request

_PEPPER = b"simulation"
ASKS_MAX = 500  # of one call, as the product's door has it


class Door:
    """Turns requests into asks and verdicts into messages or refusals. `open_to_all` takes everything (a control)."""

    def __init__(self, policy: Policy, ledger: Ledger, clients: Clients, series: Series) -> None:
        self.policy = policy
        self.open_to_all = False
        self.skew_ms = 0.0  # of this process's clock against the server's
        self.requests = 0
        self.accepted = 0
        self.refusals: Counter[tuple[str, str, str, str]] = Counter()  # code, scope kind, scope name, cause
        self.first_refused_at: dict[tuple[str, str], float] = {}  # by (class, cause)
        self.last_accepted_at = 0.0
        self._ledger = ledger
        self._clients = clients
        self._series = series
        self._kinds: dict[Kind, Allowed] = {}
        self._clocks: dict[tuple[str, int | None], Clocks] = {}
        self._moved: set[Kind] = set()
        self._now_at = -1

    def take(self, policy: Policy) -> None:
        """Another policy version."""
        self.policy = policy
        self._kinds.clear()

    def ask(self, requests: Sequence[Request], now: float) -> tuple[list[Allowed], list[Ask]]:
        """What is asked of the index for these requests."""
        allowed = [self._allowed(request.kind, int(now + self.skew_ms)) for request in requests]
        return allowed, [ask_of(one, request.place) for one, request in zip(allowed, requests, strict=True)]

    def answer(
        self, requests: Sequence[Request], allowed: Sequence[Allowed], verdicts: Sequence[Verdict], now: float
    ) -> list[Entry]:
        """Keeps what is accepted, tells the others; the entries to commit."""
        second = int((now - self._clients.start_at) // 1000)
        self.requests += len(requests)
        entries = []
        counts: Counter[str] = Counter()
        for request, one, verdict in zip(requests, allowed, verdicts, strict=True):
            request.tries += 1
            class_name = request.kind.class_name
            if request.tries == 1:
                counts["offered " + class_name] += 1
            if self.open_to_all and not verdict.accepted:
                verdict = replace(verdict, accepted=True, candidate=max(0, verdict.candidate))  # noqa: PLW2901
            decision = decide(one, verdict)
            if isinstance(decision, Problem):
                counts["refused " + class_name] += 1
                self._refused(request, decision, now)
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
                counts["accepted " + class_name] += 1
                entries.append(message.entry())
            else:
                counts["deferred " + class_name] += 1
                self._ledger.wait_until(decision.clocks.begins_at, message)
        self.accepted += counts.total() - sum(n for name, n in counts.items() if name[:3] in ("off", "ref"))
        if entries:
            self.last_accepted_at = now
        for name, amount in counts.items():
            self._series.count(name, second, amount)
        return entries

    def _refused(self, request: Request, problem: Problem, now: float) -> None:
        scope = problem.members.get("scope", {"kind": "-", "name": "-"})
        cause = str(problem.members.get("cause", problem.code))
        self.refusals[problem.code, scope["kind"], scope["name"], cause] += 1
        self.first_refused_at.setdefault((request.kind.class_name, cause), now)
        if request.obedient and problem.retry_after_s is not None:
            self._clients.come_again(request, now + problem.retry_after_s * 1000)

    def _allowed(self, kind: Kind, now_at: int) -> Allowed:
        if now_at != self._now_at:
            self._clocks.clear()
            self._moved.clear()
            self._now_at = now_at
        judged = self._kinds.get(kind)
        if judged is None:
            judged = self._kinds[kind] = self._judge(kind, now_at)
        elif kind in self._moved:
            return judged
        clocks = self._clocks.get((kind.class_name, kind.ttl_ms))
        if clocks is None:
            found = set_clocks(judged.request, judged.traffic, now_at)
            if isinstance(found, Problem):
                raise ValueError(f"the policy of a scenario refuses its own traffic: {found.code}")
            clocks = self._clocks[kind.class_name, kind.ttl_ms] = found
        # Frozen for the product; here each kind's is this door's own, in nobody's hands once a tick is over, and a copy
        # per kind and tick was a fifth of a simulation's work in Python.
        object.__setattr__(judged, "clocks", clocks)
        self._moved.add(kind)
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
