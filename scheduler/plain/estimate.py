"""How long a message would wait and what binds: the worst over all scopes that it needs.

Each scope is a straight line over the messages ahead of it in its own flow; then pauses, and deferred work that falls
due before its turn. Nothing here changes anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.core.records import NO_NUMBER
from scheduler.plain.numbers import Numbers
from scheduler.plain.outages import outage, silent_for
from scheduler.plain.rates import class_part, competing_weight, drain_of, known_rate, part_of, sessions_bind
from scheduler.plain.state import EPSILON, FOREVER, FlowQueue, Scope
from scheduler.plain.turn import Turn

_SILENT_SHARE = 0.2  # of the door limit: a carrier that is silent for longer closes the door
_WHOLE_SHARE = 1.2  # of the door limit that the work of all may take: else a surge breaks promises


@dataclass(slots=True)
class Bound:
    """One scope's line: wait = slope x messages ahead + base; `rate` is how fast those before its door go in."""

    scope: str
    slope: float
    base: float
    rate: float


@dataclass(slots=True)
class Prospect:
    """What of a flow's wait does not depend on the one message, for the length of a call."""

    segments: int
    budget_ms: float
    each: float  # segments of a message
    away_ms: float
    away_scope: str
    away_for_ever: bool
    silent_ms: float
    known: float
    drain: float
    share: float
    bounds: list[Bound]
    age_ms: float = 0.0
    age_scope: str = ""
    pause_ms: float = 0.0
    paused: str | None = None
    for_ever: bool = False
    own_pause: bool = False  # of its application: the tenant's own wish
    opened_at: float = 0.0

    def worst(self, ahead: float) -> tuple[float, int]:
        """The longest of the lines; of two that say the same the limit is named."""
        wait, at = 0.0, 0
        for number, bound in enumerate(self.bounds):
            one = bound.slope * ahead + bound.base
            if one > wait or (at == 0 and one * 1.05 >= wait and one > 0):
                wait, at = max(wait, one), number
        return wait, at


@dataclass(slots=True)
class Question:
    """A message at the door (`ahead` None), or one that is queued with so many before it in its flow."""

    segments: int
    budget_ms: float
    limit_ms: float
    number: bytes = NO_NUMBER
    ahead: int | None = None


@dataclass(slots=True)
class Judgment:
    """Wait and age of one message in one flow."""

    wait_ms: float
    scope: str
    rate: float  # how fast a line at the door shortens
    age_ms: float = 0.0
    age_scope: str = ""
    pause_ms: float = 0.0
    paused: str | None = None
    for_ever: bool = False
    silent: bool = False
    fine: bool = False
    unloaded: bool = False  # its class is not served yet
    lined_ms: float = 0.0  # of the wait, what the line at the door takes
    ahead: float = 0.0  # messages before it in its flow


def promised(turn: Turn, flow: FlowQueue) -> int:
    """Messages of a flow that were let in and are not queued yet."""
    return flow.promised if turn.now <= flow.promised_until else 0


def due_of(turn: Turn, flow: FlowQueue) -> list[tuple[float, int, int]]:
    """Work of a flow in the due table; what is due by now is in the queue."""
    return [bucket for bucket in flow.due if bucket[0] > turn.now]


def prospect(turn: Turn, flow: FlowQueue, segments: int, budget_ms: float) -> Prospect:
    """A flow's prospect, worked out once in a call for messages of one size."""
    kept: dict[str, Prospect] = turn.once("prospects", dict)
    found = kept.get(flow.key)
    if found is None or (found.segments, found.budget_ms) != (segments, budget_ms):
        found = kept[flow.key] = _prospect(turn, flow, segments, budget_ms)
    return found


def _prospect(turn: Turn, flow: FlowQueue, segments: int, budget_ms: float) -> Prospect:
    line, provider, share = turn.line(flow.line), turn.provider(flow.provider), turn.share(flow)
    each = max(1.0, line.segments / line.queued) if line.queued > 0 else 1.0
    weight, flows = turn.index.weight_of(flow.tenant), max(1.0, share.flows)
    away = outage(turn, flow.provider)
    silent = silent_for(turn, flow) if away.wait_ms == 0 else 0.0
    known = known_rate(turn, flow)
    # While nothing moves the measured drain says nothing of how it will move again.
    still = away.wait_ms > 0 or silent > 0
    drain = known * class_part(turn, flow, known) if still else drain_of(turn, flow)
    competing = competing_weight(turn, flow, drain, budget_ms)
    own_part = weight / max(competing, weight)
    rounds = flows * competing / weight  # own position x competing weight / own weight
    base = min(max(0.0, rounds - 1) / 2, line.queued + line.promised) * each * 1000 / drain
    if provider.unwritten > 0:
        base += provider.unwritten * 1000 / max(known, drain)
    by_class = Bound(f"class:{flow.class_name}", rounds * each * 1000 / drain, base, drain * own_part)
    found = Prospect(
        segments, budget_ms, each, away.wait_ms, away.scope, away.for_ever, silent, known, drain, own_part, [by_class],
        age_scope=by_class.scope,
    )  # fmt: skip
    needs = turn.needs(flow)
    application = turn.scope(flow.application) if flow.application else None
    found.opened_at = application.opened_at if application else 0.0
    for scope in needs:
        _closed(turn, flow, found, scope)
        if scope.pace_ms > 0:
            found.bounds.append(_bound(turn, flow, found, scope))
    return found


def _closed(turn: Turn, flow: FlowQueue, found: Prospect, scope: Scope) -> None:
    left = scope.closed_until - turn.now
    if left <= 0:
        return
    if scope.name == flow.application:
        found.own_pause = True
    elif left > found.pause_ms:
        found.pause_ms, found.paused, found.for_ever = left, scope.name, scope.closed_until >= FOREVER


def _bound(turn: Turn, flow: FlowQueue, found: Prospect, scope: Scope) -> Bound:
    """The line of one limit: its flows take turns, each tenant by weight, beside the other classes."""
    line, name = turn.line(flow.line), flow.class_name
    weight = turn.index.weight_of(flow.tenant)
    mean = line.weight / line.tenants if line.tenants > 0 else weight
    flows, queued = scope.flows.get(name, 0), scope.waiting.get(name, 0)
    waiting = queued + scope.promised.get(name, 0)
    others = flows - 1 if flow.references else flows
    turns = max(1.0, others * mean / weight + 1)
    part = turn.once(("part", scope.name, flow.line), lambda: _scope_part(turn, flow, scope))
    held_ms = turn.now - scope.holding_since
    empty, kept = turn.tokens(scope) + EPSILON < 1, turn.kept(scope, flow.key)
    if scope.holding_since > 0 and scope.closed_until <= turn.now and empty and waiting > 0 and held_ms > found.age_ms:
        found.age_ms, found.age_scope = held_ms, scope.name
    own = scope.name == flow.application or scope.name.startswith("tenant:")  # its flows stand in one line at the door
    return Bound(
        scope.name,
        found.each * turns / part * scope.pace_ms,
        max(scope.paid_until - turn.clock, 0.0)
        + (min((turns - 1) / 2, waiting) / part + kept + min(found.segments, scope.burst) - scope.burst)
        * scope.pace_ms,
        1000 / scope.pace_ms * part / (1 if own else turns),
    )


def _scope_part(turn: Turn, flow: FlowQueue, scope: Scope) -> float:
    return part_of(turn, flow, 1000 / scope.pace_ms, lambda name, _: scope.waiting.get(name, 0))


def judge(turn: Turn, flow: FlowQueue, asked: Question) -> Judgment:
    """Wait and age of a message in a flow."""
    found = prospect(turn, flow, asked.segments, asked.budget_ms)
    at, judged = _by_limits(turn, flow, found, asked)
    judged.age_ms, judged.age_scope, judged.pause_ms = found.age_ms, found.age_scope, found.pause_ms
    judged.paused, judged.for_ever = found.paused, found.for_ever
    if asked.ahead is None:
        _whole_line(turn, flow, found, asked, judged)
    bind = sessions_bind(turn, flow.provider)
    if at == 0 and bind is not None and found.drain * 1.25 >= found.known * class_part(turn, flow, found.known):
        judged.scope = bind  # as fast as the sessions may
    _by_number(turn, flow, asked, judged)
    if found.away_ms > judged.pause_ms:
        judged.pause_ms, judged.paused, judged.for_ever = found.away_ms, found.away_scope, found.away_for_ever
    silent = found.silent_ms
    if judged.paused is not None or silent > 0:
        judged.wait_ms += max(judged.pause_ms, silent)  # silent as long again as it was
        if judged.paused is not None and (judged.pause_ms * 2 >= judged.wait_ms or judged.for_ever):
            judged.scope = judged.paused
    _ages(turn, flow, found, judged)
    if silent > 0:
        # Whatever waits here waits for the carrier, also what waited a little before it fell silent.
        judged.age_ms, judged.age_scope = max(judged.age_ms, silent), f"provider:{flow.provider}"
        judged.silent = silent > _SILENT_SHARE * asked.limit_ms
    if silent > 0 or judged.paused is not None:
        judged.rate = found.known * found.share
    limit = asked.limit_ms
    closed = judged.for_ever or judged.silent
    judged.fine = not closed and judged.wait_ms <= limit and judged.age_ms <= limit
    return judged


def _by_limits(turn: Turn, flow: FlowQueue, found: Prospect, asked: Question) -> tuple[int, Judgment]:
    ahead = len(flow.references) + promised(turn, flow) if asked.ahead is None else asked.ahead
    wait, at = found.worst(ahead)
    if asked.ahead is None:
        for due_at, messages, _ in due_of(turn, flow):  # what falls due before its turn will stand before it
            if due_at > turn.now + wait:
                break
            ahead += messages
            wait, at = found.worst(ahead)
    bound = found.bounds[at]
    return at, Judgment(wait, bound.scope, bound.rate, ahead=ahead)


def _whole_line(turn: Turn, flow: FlowQueue, found: Prospect, asked: Question, judged: Judgment) -> None:
    """What waits of the whole class must not take much longer than the door limit."""
    line, tuned = turn.line(flow.line), turn.index.classes[flow.class_name]
    most = _WHOLE_SHARE * tuned.door_share * tuned.wait_budget_ms
    whole = (line.segments + line.promised * found.each) * 1000 / found.drain
    if whole > most and asked.limit_ms + whole - most > judged.wait_ms:
        first = found.bounds[0]
        judged.wait_ms, judged.scope, judged.rate = asked.limit_ms + whole - most, first.scope, first.rate


def _by_number(turn: Turn, flow: FlowQueue, asked: Question, judged: Judgment) -> None:
    numbers = Numbers(turn)
    limit = numbers.limit(flow, asked.number)
    if limit is None:
        return
    ready_at = numbers.ready_at(limit, asked.number, asked.segments)
    if ready_at is not None and ready_at - turn.now > judged.wait_ms:
        judged.wait_ms, judged.scope, judged.rate = ready_at - turn.now, limit.name, 1000 / limit.pace_ms


def _ages(turn: Turn, flow: FlowQueue, found: Prospect, judged: Judgment) -> None:
    """Own flow's oldest, whose fault is what binds its wait; and how long nothing of the line passes."""
    now, line = turn.now, turn.line(flow.line)
    oldest = now - max(flow.references[0].queued_at, found.opened_at) if flow.references else 0.0
    if not found.own_pause and oldest > judged.age_ms:
        judged.age_ms, judged.age_scope = oldest, judged.scope
    passed = max(line.pass_at, line.busy_at)
    if line.busy_at > 0 and now - passed > judged.age_ms:
        judged.age_ms, judged.age_scope = now - passed, f"class:{flow.class_name}"
