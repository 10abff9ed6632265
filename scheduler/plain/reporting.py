"""One look at the whole index."""

from __future__ import annotations

from collections import Counter
from math import ceil, floor

from scheduler.core.asks import IndexReport, LineReport, LinkReport, ScopeReport
from scheduler.core.names import scope_pair
from scheduler.plain.state import EPSILON, Line, Provider, Scope
from scheduler.plain.turn import Turn

_SAMPLE = 200  # flows of a line whose heads are looked at
_WALK = 10_000  # flows of a line looked at for what a pause without a limit holds
_TENANTS = 20


def counts(turn: Turn) -> dict[tuple[str, str], int]:
    """Queued and leased messages per (provider, class)."""
    return {name: line.queued + line.leased for name, line in turn.index.lines.items() if line.known}


def report(turn: Turn) -> IndexReport:
    """Lines, the largest tenants, scopes that something waits for, and the health of links."""
    index = turn.index
    lines = [turn.line(name) for name, line in index.lines.items() if line.known]
    tenants: Counter[str] = Counter()
    for line in lines:
        tenants.update({tenant: share.queued for tenant, share in line.shares.items() if share.queued > 0})
    links = {line.name[0] for line in lines} | set(index.tuning.providers if index.tuning else ())
    providers = {name: _link(turn, name, None) for name in links}
    sessions = {s: _link(turn, name, s) for name in links for s in turn.provider(name).sessions}
    unserved: dict[str, int] = {}
    for line in lines:
        waited = _unserved_ms(turn, line)
        if waited is not None:
            unserved[line.name[1]] = max(unserved.get(line.name[1], 0), waited)
    return IndexReport(
        lines={line.name: _line(turn, line) for line in lines},
        tenants=dict(sorted(tenants.items(), key=lambda pair: (-pair[1], pair[0]))[:_TENANTS]),
        scopes=_scopes(turn),
        sessions=sessions,
        providers=providers,
        unserved=unserved,
    )


def _line(turn: Turn, line: Line) -> LineReport:
    parked = [octets for (_, octets), _ in turn.provider(line.name[0]).parked.first(_SAMPLE)]
    seen = [octets for octets, _ in line.active.first(_SAMPLE)]
    flows = [turn.flow(octets.decode()) for octets in seen + parked]
    ages = sorted(
        turn.now - flow.references[0].queued_at for flow in flows if flow.line == line.name and flow.references
    )

    def quantile(share: float) -> int:
        return floor(max(0.0, ages[max(1, ceil(share * len(ages))) - 1])) if ages else 0

    unserved_ms = floor(turn.now - max(line.pass_at, line.busy_at)) if line.busy_at > 0 else 0
    return LineReport(
        line.queued, line.leased, quantile(1), quantile(0.5), quantile(0.95), len(line.active), line.drain, unserved_ms
    )


def _link(turn: Turn, provider: str, session: str | None) -> LinkReport:
    known = turn.provider(provider)
    scope = turn.scope(f"provider:{provider}" if session is None else f"session:{session}")
    up = any(known.sessions.values()) if session is None else known.sessions[session]
    return LinkReport(provider, *_standing(turn, scope, up, known))


def _standing(turn: Turn, scope: Scope | None, up: bool, provider: Provider) -> tuple[str, float, int, int, int]:
    now = turn.now
    if scope is not None and scope.closed_until > now:
        return "paused", 1.0, int(now - scope.closed_since), 0, 0
    if scope is not None and scope.probe_at > 0:
        state = "open" if scope.probe_at > now else "half_open"
        return state, 1.0, int(now - scope.closed_since), int(max(0.0, scope.probe_at - now)), 0
    if not up:
        return "down", 1.0, int(now - provider.down_at) if provider.down_at > 0 else 0, 0, 0
    whole = (scope.interval_ms or scope.measured_ms) if scope is not None else 0.0
    share = min(1.0, whole / scope.pace_ms) if scope is not None and whole > 0 and scope.pace_ms > 0 else 1.0
    return "up", share, 0, 0, _holding_ms(turn, scope)


def _holding_ms(turn: Turn, scope: Scope | None) -> int:
    if scope is None or scope.pace_ms <= 0 or scope.holding_since <= 0 or turn.tokens(scope) + EPSILON >= 1:
        return 0
    return max(1, floor(turn.now - scope.holding_since))


def _unserved_ms(turn: Turn, line: Line) -> int | None:
    """How long the flow whose turn it is was not served: seen from report to report, while it stays the same."""
    first = line.active.first(1)
    if not first or line.busy_at <= 0:
        return None
    octets, tag = first[0]
    since, seen = line.busy_at, turn.index.first_in_line.get(line.name)
    same = seen is not None and seen[1:] == (tag, octets)
    since = max(since, round(seen[0], 3) if same and seen is not None else line.pass_at)
    turn.index.first_in_line[line.name] = since, tag, octets
    return floor(turn.now - since)


def _scopes(turn: Turn) -> dict[tuple[str, str], ScopeReport]:
    found = {}
    for name in turn.index.scopes:
        scope = turn.scope(name)
        assert scope is not None
        paused = scope.closed_until > turn.now
        waiting = scope.waiting
        if paused and scope.pace_ms <= 0:
            waiting = turn.once("behind pauses", lambda: _behind_pauses(turn)).get(name, {})
        by_class = {one: int(waiting[one]) for one in turn.index.classes if waiting.get(one, 0) > 0}
        if by_class or paused:
            found[scope_pair(name)] = ScopeReport(
                waiting=sum(by_class.values()),
                tokens=turn.tokens(scope) if scope.pace_ms > 0 else 0.0,
                held_ms=max(1, floor(turn.now - scope.holding_since)) if scope.holding_since > 0 else 0,
                paused=paused,
                by_class=by_class,
                paused_ms=floor(turn.now - scope.closed_since) if paused else 0,
            )
    return found


def _behind_pauses(turn: Turn) -> dict[str, dict[str, float]]:
    """What waits by scope and class; a paused scope without a limit has it in no tally, since it waited before."""
    found: dict[str, dict[str, float]] = {}
    index = turn.index
    keys = [octets for line in index.lines.values() if line.known for octets, _ in line.active.first(_WALK)]
    for name in {line.name[0] for line in index.lines.values() if line.known}:
        keys += [octets for (_, octets), _ in turn.provider(name).parked.first(_WALK)]
    for octets in keys:
        flow = turn.flow(octets.decode())
        line = turn.line(flow.line)
        each = line.segments / line.queued if line.queued > 0 else 1.0
        for scope in flow.needs:
            by_class = found.setdefault(scope, {})
            by_class[flow.class_name] = by_class.get(flow.class_name, 0.0) + len(flow.references) * each
    return {
        scope: {name: floor(waiting + 0.5) for name, waiting in by_class.items()} for scope, by_class in found.items()
    }
