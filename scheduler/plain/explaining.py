"""Why one reference waits."""

from __future__ import annotations

from math import floor

from scheduler.core.asks import ExplainAsk, Explanation
from scheduler.core.names import scope_pair
from scheduler.core.records import Reference, retry_key
from scheduler.core.unavailable import IndexUnavailable
from scheduler.plain.estimate import Question, judge
from scheduler.plain.numbers import Numbers
from scheduler.plain.outages import outage
from scheduler.plain.state import EPSILON, FOREVER, FlowQueue, Scope
from scheduler.plain.turn import Turn

_WINDOW_MS = 100  # nothing was leased for so long though nothing is missing: the sessions' windows are full


def explain(turn: Turn, ask: ExplainAsk) -> Explanation:
    """What holds a reference, its place in its flow, and its predicted start."""
    flow = turn.flow(retry_key(ask.flow) if ask.retry else ask.flow.key)
    if flow.class_name not in turn.index.classes:
        raise IndexUnavailable("class")
    if not turn.index.is_open(flow.class_name):
        return Explanation(("paused", "index"), None, None, None)
    provider = turn.provider(flow.provider)
    held_until = provider.held.score((len(flow.octets), flow.octets, ask.reference.pack()))
    position = _position(flow, ask.reference) if held_until is None else None
    budget_ms = turn.index.classes[flow.class_name].wait_budget_ms
    judged = judge(turn, flow, Question(ask.reference.segments, budget_ms, FOREVER, ahead=(position or 1) - 1))
    if held_until is not None:
        return _held_by_number(turn, flow, ask.reference, held_until)
    start = None if judged.for_ever else floor(turn.now) + floor(judged.wait_ms)
    for scope in turn.needs(flow):
        if scope.closed_until > turn.now:
            ends = None
            if scope.closed_until < FOREVER:
                ends = floor(turn.now) + floor(scope.closed_until - turn.now + judged.wait_ms)
            return Explanation(("paused", scope.name), None, position, ends)
    away = outage(turn, flow.provider)
    fleet = turn.fleet(flow.provider)
    unbound = not any(up for _, up, _ in fleet) and (len(fleet) > 0 or provider.down_at > 0)
    if away.wait_ms > 0 or unbound:  # at once: a person asks
        if unbound and (away.wait_ms == 0 or provider.seen_at == 0):  # nothing says when one will be bound
            start = None
        fault = turn.scope(away.scope)
        kind = "paused" if fault is not None and fault.closed_until > turn.now else "session_down"
        return Explanation((kind, away.scope), None, position, start)
    lacking = _lacking(turn, flow, ask.reference)
    if lacking is not None:
        scope, missing = lacking
        return Explanation(scope_pair(scope.name), round(missing, 3), position, start)
    return Explanation(_others(turn, flow, position), None, position, start)


def _position(flow: FlowQueue, reference: Reference) -> int | None:
    """The place of a message in its flow, from 1 on."""
    return next((at for at, one in enumerate(flow.references, 1) if one.id == reference.id), None)


def _held_by_number(turn: Turn, flow: FlowQueue, reference: Reference, until: float) -> Explanation:
    assert flow.number is not None
    numbers = Numbers(turn)
    limit = numbers.limit(flow, reference.number)
    missing = max(0.0, numbers.missing(limit, reference.number, reference.segments)) if limit is not None else 0.0
    start = floor(turn.now) + floor(max(0.0, until - turn.now))
    return Explanation(scope_pair(flow.number), round(missing, 3), None, start)


def _lacking(turn: Turn, flow: FlowQueue, reference: Reference) -> tuple[Scope, float] | None:
    """The scope that lacks most now, in time; the sessions' own limits count where no session has room."""
    segments = reference.segments
    found: tuple[float, Scope, float] | None = None
    candidates = [scope for scope in turn.needs(flow) if scope.pace_ms > 0]
    for _ in range(2):
        for scope in candidates:
            missing = min(segments, scope.burst) - turn.spare(scope, flow.key)
            if missing > EPSILON and (found is None or missing * scope.pace_ms > found[0]):
                found = missing * scope.pace_ms, scope, missing
        if found is not None:
            return found[1], found[2]
        candidates = _fullest_session(turn, flow, segments)
    return None


def _fullest_session(turn: Turn, flow: FlowQueue, segments: int) -> list[Scope]:
    """The session with most room, where none that is up has enough."""
    up = [scope for _, is_up, scope in turn.fleet(flow.provider) if is_up]
    short = [
        scope
        for scope in up
        if scope is not None
        and scope.pace_ms > 0
        and turn.tokens(scope) < scope.burst
        and turn.tokens(scope) + EPSILON < min(segments, scope.burst)
    ]
    return [max(short, key=turn.tokens)] if short and len(short) == len(up) else []


def _others(turn: Turn, flow: FlowQueue, position: int | None) -> tuple[str, str]:
    """Nothing is missing: others go first, or the window of the sessions is full."""
    line, provider = turn.line(flow.line), turn.provider(flow.provider)
    quiet_ms = turn.now - max(line.pass_at, provider.pass_at)
    first = line.active.first(1)
    ahead = (position or 1) - 1
    near = bool(first) and first[0][0] == flow.octets and ahead < turn.index.classes[flow.class_name].quantum
    if near and quiet_ms > _WINDOW_MS:
        sessions = list(provider.sessions)
        alone = len(sessions) == 1 and provider.sessions[sessions[0]]
        return "window", sessions[0] if alone else flow.provider
    return "fairness", flow.class_name
