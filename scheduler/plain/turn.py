"""One call at one instant: what it reads, and how it counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import exp
from typing import Any

from scheduler.core.gcra import Debts
from scheduler.core.names import split
from scheduler.core.records import Reference
from scheduler.plain.state import EPSILON, PROMISE_MS, FlowQueue, Index, Line, Provider, Scope, TenantShare

TENANT_DEFAULT = "tenant:"  # the limit of every tenant that the policy does not name
DRAIN_MS = 2_000  # time constant of the measured drain
_SAMPLE_MS = 200
_RETRY_BURST = 10


@lru_cache(maxsize=65_536)
def _parsed(key: str) -> tuple[tuple[str, str], str, tuple[str, ...], dict[str, str]]:
    provider, class_name, _, tenant, *scopes = split(key)
    own = f"provider:{provider}"
    kinds = {scope.partition(":")[0]: scope for scope in scopes}
    needs = [scope for scope in scopes if scope != own and not scope.startswith("session:")]
    return (provider, class_name), tenant, (*needs, own), kinds


class Turn:
    """The index as one call sees it.

    What time has done to a scope (a ramp, the end of a pause) is worked out on a copy when the call first looks at it,
    and stays only where the call changes the scope, at `keep`: looking alone leaves no trace.
    """

    def __init__(self, index: Index, now: float) -> None:
        self.index = index
        self.now = now
        self.started_at = now if index.state == "lost" else index.started_at
        self.clock = now - self.started_at  # a fill is counted from the epoch on: small numbers, exact sums
        self._seen: dict[str, Scope | None] = {}
        self._changed: dict[str, Scope] = {}
        self._needs: dict[str, list[Scope]] = {}
        self._woken: set[str] = set()
        self.memory: dict[Any, Any] = {}  # what the estimate worked out once for this call

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """A value that is made once per call."""
        if key not in self.memory:
            self.memory[key] = make()
        return self.memory[key]

    # Scopes

    def scope(self, name: str) -> Scope | None:
        """A scope that has a limit, a pause or a fault, as it is now."""
        if name not in self._seen:
            known = self.index.scopes.get(name)
            if known is not None:
                self._seen[name] = self._at_present(known.copy())
            else:
                self._seen[name] = self._by_default(name)
        return self._seen[name]

    def named(self, name: str) -> Scope:
        """The same, made where it has no record."""
        found = self.scope(name)
        if found is None:
            found = self._seen[name] = self.new(name)
        return found

    def new(self, name: str) -> Scope:
        """A scope that nothing was charged to."""
        return Scope(name, debts=Debts(self.now, self.now))

    def change(self, scope: Scope) -> Scope:
        """Marks a scope as changed by this call."""
        self._changed[scope.name] = scope
        return scope

    def forget(self, scope: Scope) -> None:
        """A scope that neither limits nor holds anything is no more."""
        self._changed.pop(scope.name, None)
        self.index.scopes.pop(scope.name, None)

    def keep(self) -> None:
        """What was changed stays."""
        self.index.scopes.update(self._changed)

    def _by_default(self, name: str) -> Scope | None:
        default = self.index.scopes.get(TENANT_DEFAULT) if name.startswith(TENANT_DEFAULT) else None
        if default is None or default.interval_ms <= 0:
            return None
        spent = default.burst * default.interval_ms
        debts = Debts(self.now, self.now)
        return Scope(name, spent, default.interval_ms, default.interval_ms, default.burst, debts)

    def _at_present(self, scope: Scope) -> Scope:
        if scope.promised_at > 0 and self.now - scope.promised_at > PROMISE_MS:
            scope.promised.clear()
            scope.promised_at = 0
        if scope.reserved_until < self.now:
            scope.reserved, scope.reserved_for = 0, ""
        self.settle(scope)
        return scope

    def pace(self, scope: Scope) -> float:
        """The interval that health leaves of a scope's own; ends a slowness that is over."""
        whole = scope.interval_ms or scope.measured_ms
        if scope.share <= 0 or whole <= 0:
            return scope.interval_ms
        since = self.now - scope.share_at
        if scope.share_doubles_ms > 0:
            share = scope.share * 2 ** (since / scope.share_doubles_ms)
        else:
            share = scope.share + 0.05 * since / 1000
        if share >= 1:
            scope.share = scope.measured_ms = 0
            return scope.interval_ms
        return whole / share

    def settle(self, scope: Scope) -> None:
        """Brings a scope to the present: a pause that is over leaves it empty, another pace keeps its fill."""
        if 0 < scope.closed_until <= self.now:
            ended = scope.closed_until
            spent = ended - self.started_at + scope.burst * scope.pace_ms
            scope.paid_until = max(scope.paid_until, spent)
            scope.closed_until = 0
            scope.debts = Debts(ended, ended)
            self.reopened(scope, ended)
            self.change(scope)
        pace = self.pace(scope)
        if pace != scope.pace_ms:
            if scope.pace_ms <= 0:  # nothing was charged
                scope.debts = Debts(self.now, self.now)
            debt = scope.paid_until - self.clock
            if debt > 0 and scope.pace_ms > 0 and pace > 0:
                scope.paid_until = self.clock + debt * pace / scope.pace_ms
            scope.pace_ms = pace

    def empty(self, scope: Scope) -> None:
        """Nothing that time saved up may leave at once."""
        if scope.pace_ms > 0:
            scope.paid_until = max(scope.paid_until, self.clock + scope.burst * scope.pace_ms)
        scope.debts = Debts(self.now, self.now)
        self.change(scope)

    def reopened(self, scope: Scope, at: float | None = None) -> None:
        """A pause or a fault is over: what it held is not held by the limit, and without one nothing is counted on."""
        scope.opened_at = self.now if at is None else at
        if scope.interval_ms <= 0 and scope.measured_ms <= 0:
            scope.holding_since = scope.promised_at = 0
            for counts in (scope.waiting, scope.flows, scope.promised):
                counts.clear()
        elif scope.holding_since > 0:
            scope.holding_since = scope.opened_at

    def tokens(self, scope: Scope) -> float:
        """Segments that a limited scope lets through now."""
        return scope.burst - max(0.0, scope.paid_until - self.clock) / scope.pace_ms

    def spare(self, scope: Scope, key: str) -> float:
        """The same for one flow: what another flow's long message has reserved is not there."""
        return self.tokens(scope) - self.kept(scope, key)

    def kept(self, scope: Scope, key: str) -> float:
        """What another flow's long message has reserved; nothing holds back a class that is behind the owner's."""
        if scope.reserved < 1 or scope.reserved_for == key:
            return 0
        mine, owner = (self.line(self.flow(one).line) for one in (key, scope.reserved_for))
        behind = mine.name[0] == owner.name[0] and mine.class_time < owner.class_time
        return 0 if behind else scope.reserved

    # Flows

    def flow(self, key: str) -> FlowQueue:
        """The flow of a key."""
        found = self.index.flows.get(key)
        if found is None:
            line, tenant, needs, kinds = _parsed(key)
            found = FlowQueue(
                key,
                key.encode(),
                line,
                tenant,
                needs,
                kinds.get("application"),
                kinds.get("number"),
                kinds.get("retry"),
            )
            self.index.flows[key] = found
        return found

    def line(self, name: tuple[str, str]) -> Line:
        """A line; what was promised in it is forgotten in time."""
        found = self.index.lines.get(name)
        if found is None:
            found = self.index.lines[name] = Line(name)
        if self.now - found.promised_at > PROMISE_MS:
            found.promised, found.promised_at = 0, 0
        return found

    def provider(self, name: str) -> Provider:
        """A provider."""
        found = self.index.providers.get(name)
        if found is None:
            found = self.index.providers[name] = Provider(name)
        return found

    def fleet(self, provider: str) -> list[tuple[str, bool, Scope | None]]:
        """The sessions of a provider that asked for work: name, whether it is up, and its scope."""
        sessions = self.provider(provider).sessions
        return [(name, up, self.scope(f"session:{name}")) for name, up in sessions.items()]

    def needs(self, flow: FlowQueue) -> list[Scope]:
        """The scopes that a flow's messages need room in, or that are paused; not the limit per number."""
        if flow.key not in self._needs:
            if flow.retry is not None:
                self._retry_limit(flow.retry, self.provider(flow.provider))
            found = [self.scope(name) for name in flow.needs if name != flow.number]
            self._needs[flow.key] = [s for s in found if s is not None and (s.pace_ms > 0 or s.closed_until > 0)]
        return self._needs[flow.key]

    def _retry_limit(self, name: str, provider: Provider) -> None:
        """Retries have a share of the first attempts: all answers = first x (1 + share).

        Where those are few it follows what a line was seen to drain while work waited for the carrier alone: a share of
        what this very share lets out would shrink until nothing goes.
        """
        tuning = self.index.tuning
        assert tuning is not None
        rate, silence = provider.answers, self.now - provider.answers_from
        if silence > 2_000:
            rate *= exp(-silence / 10_000)
        rate = max([rate, *(line.drain for _, line in self.index.lines_of(provider.name))])
        scope = self.named(name)
        if scope.interval_ms == 0:
            scope.paid_until = max(scope.paid_until, _RETRY_BURST * 1_000)
        scope.interval_ms = 1_000 / max(1.0, rate * tuning.retry_share / (1 + tuning.retry_share))
        scope.burst = _RETRY_BURST
        self.settle(scope)

    def share(self, flow: FlowQueue) -> TenantShare:
        """What a flow's tenant has in the flow's line."""
        return self.line(flow.line).shares.get(flow.tenant) or TenantShare()

    def _own_share(self, flow: FlowQueue) -> TenantShare:
        return self.line(flow.line).shares.setdefault(flow.tenant, TenantShare())

    def _tidy(self, flow: FlowQueue, share: TenantShare) -> None:
        if share.flows <= 0 and share.queued <= 0:
            del self.line(flow.line).shares[flow.tenant]

    def account(self, flow: FlowQueue, messages: int, segments: int) -> None:
        """So many more messages (or fewer) wait in a flow."""
        line, share = self.line(flow.line), self._own_share(flow)
        line.known = True
        line.queued = max(0, line.queued + messages)
        line.segments = max(0, line.segments + segments)
        share.queued = max(0, share.queued + messages)
        self._tidy(flow, share)
        for scope in self.needs(flow):
            tally(self.change(scope).waiting, flow.class_name, segments)

    def count_active(self, flow: FlowQueue, step: int) -> None:
        """A flow begins (1) or ends (-1) to compete; a tenant's weight counts while any of its flows does."""
        line, share = self.line(flow.line), self._own_share(flow)
        weight = self.index.weight_of(flow.tenant)
        line.known = True
        if share.flows > 0 and share.weight != weight:  # the policy gave it another one meanwhile
            line.weight += weight - share.weight
            share.weight = weight
        before = share.flows
        share.flows = max(0.0, before + step * (0.5 if flow.retry else 1))
        if step > 0 and before == 0:
            share.weight = weight
            line.weight += weight
            line.tenants += 1
        elif step < 0 and before > 0 and share.flows == 0:
            line.weight = max(0.0, line.weight - share.weight)
            line.tenants = max(0, line.tenants - 1)
        self._tidy(flow, share)
        for scope in self.needs(flow):
            tally(self.change(scope).flows, flow.class_name, step)

    def put(self, flow: FlowQueue, references: Sequence[Reference], *, front: bool = False, again: bool = False) -> int:
        """Queues references at the tail of a flow, or in their order at its head; returns their segments.

        `again`: they were counted before.
        """
        empty = not flow.references
        segments = sum(reference.segments for reference in references)
        if front:
            flow.references.extendleft(reversed(references))
        else:
            flow.references.extend(references)
        if not again:
            self.account(flow, len(references), segments)
        if empty:
            line = self.line(flow.line)
            if flow.octets not in line.active:  # an empty flow stays until it is visited: its tag is all its past
                line.active.put(flow.octets, line.tag)
                self.count_active(flow, 1)
            self.turn_eligible(flow)
        return segments

    def turn_eligible(self, flow: FlowQueue) -> None:
        """Something of a flow's line may go; an idle class returns at the virtual time of the others."""
        line = self.line(flow.line)
        if line.idle:
            line.idle, line.known = False, True
            line.busy_at = line.drain_from = line.tag_from_at = self.now
            line.drain_count, line.tag_from = 0, line.tag
            line.class_time = max(line.class_time, self.provider(flow.provider).class_time)
            self.wake(flow.provider)

    def wake(self, provider: str) -> None:
        """Every session of a provider finds a wake."""
        if provider not in self._woken:
            self._woken.add(provider)
            self.index.wakes.update(self.provider(provider).sessions)

    # Samples

    def sample_drain(self, line: Line) -> None:
        """How fast a line drained since the last sample, while work waited."""
        span = self.now - line.drain_from
        if span < _SAMPLE_MS:
            return
        line.drain = averaged(line.drain, line.drain_count * 1000 / span, exp(-span / DRAIN_MS))
        line.drain_count, line.drain_from, line.drain_at, line.known = 0, self.now, self.now, True

    def sample_tag(self, line: Line) -> None:
        """How fast a line's virtual time runs while work waits, and the competing weight that this shows."""
        span = self.now - line.tag_from_at
        if span < _SAMPLE_MS or line.tag <= line.tag_from:
            return
        line.tag_ms = averaged(line.tag_ms, span / (line.tag - line.tag_from), exp(-span / 1000))
        line.tag_from_at, line.tag_from = self.now, line.tag
        competing = min(line.weight, line.drain * line.tag_ms / 1000)
        if competing >= line.peak or self.now - line.peak_at > 60_000:
            line.peak, line.peak_at = competing, self.now


def averaged(value: float, sample: float, kept: float) -> float:
    """A moving average that starts with its first sample."""
    return value * kept + sample * (1 - kept) if value > 0 else sample


def tally(counts: dict[str, float], class_name: str, amount: float) -> None:
    """Adds to a count per class; never below 0, since a limit can be newer than the queue."""
    counts[class_name] = max(0, counts.get(class_name, 0) + amount)


def has_room(missing: float) -> bool:
    """Whether nothing is missing, but for rounding."""
    return missing <= EPSILON
