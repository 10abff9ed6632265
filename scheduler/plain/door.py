"""May a message come in now, later, or not; and when to ask again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor

from scheduler.core.asks import Ask, Verdict
from scheduler.core.due import LATER_MS
from scheduler.core.names import scope_pair
from scheduler.core.unavailable import IndexUnavailable
from scheduler.plain.estimate import Judgment, Question, due_of, judge, promised, prospect
from scheduler.plain.state import PROMISE_MS, DoorLine, FlowQueue
from scheduler.plain.turn import Turn, tally

RETRY_MAX_MS = 3_600_000
SILENT_MS = 1_000  # when to ask a carrier again that gives no answer
UNKNOWN_MS = 30_000  # when to ask again where nobody knows how long a pause lasts
PLACES = 20_000  # of a waiting line, and of a page of it
_DAYS_MS = 35 * 86_400_000
_KEPT_MS = 60_000


class Waiting:
    """The Retry-After line of one scope and tenant during one call.

    Places are given in turn and have had their time at the rate of the present, so the line shortens as fast as things
    go now. Who comes at its time is judged by the wait alone; who has no place, or comes early, stands behind those in
    line: else newcomers would take every gap, and the others come in vain.
    """

    def __init__(self, turn: Turn, name: tuple[str, str], rate: float) -> None:
        self.rate = max(rate, 0.001)
        self._turn = turn
        known = turn.index.door_lines.get(name)
        self._line = known if known is not None and turn.now <= known.until else DoorLine(at=turn.now)
        self._name = name
        passed = self._line.passed + self.rate * (turn.now - self._line.at) / 1000
        self.passed = min(self._line.given, passed)
        self.given = self._line.given

    def _place(self, key: bytes) -> float | None:
        """The number of a place; only the last page, and the one before while its end has not passed, are looked at."""
        last = floor(self.given / PLACES)
        for page in (last, last - 1) if self.passed < last * PLACES else (last,):
            if page >= 0 and self._turn.now <= self._line.pages_until.get(page, -1.0):
                number = self._line.pages[page].get(key)
                if number is not None:
                    return number
        return None

    def before_ms(self, key: bytes) -> float:
        """How long the line before a request is; 0 for one whose turn has come."""
        if self.given <= self.passed:
            return 0.0
        number = self._place(key)
        return max(0.0, (self.given + 1 if number is None else number) - self.passed) * 1000 / self.rate

    def place_ms(self, key: bytes, base_ms: float, *, probe: bool) -> float:
        """When to ask again: the end of one's place in line, after `base_ms`."""
        number = self._place(key)
        if number is None or number <= self.passed:  # none yet, or it has had its turn
            number = self.given + 1
            if not probe and self.given - self.passed < PLACES:  # a line that is full gives no more places
                self.given = number
                self._keep(key, number)
        return min(base_ms + (number - self.passed) * 1000 / self.rate, max(base_ms, RETRY_MAX_MS))

    def _keep(self, key: bytes, number: float) -> None:
        line, now = self._line, self._turn.now
        left_ms = min((self.given - self.passed) * 1000 / self.rate, RETRY_MAX_MS)
        line.given, line.passed, line.at = self.given, self.passed, now
        line.until = now + ceil(_KEPT_MS + left_ms)
        page = floor(number / PLACES)
        if now > line.pages_until.get(page, -1.0):
            line.pages[page] = {}
        line.pages[page][key] = number
        line.pages_until[page] = line.until
        self._turn.index.door_lines[self._name] = line


@dataclass(slots=True)
class _Refusal:
    """What a message that may not come in is told."""

    cause: str
    scope: str
    base_ms: float


def admit(turn: Turn, asks: Sequence[Ask]) -> list[Verdict]:
    """A verdict per ask, in order; earlier asks count for later ones."""
    for ask in asks:
        for at, flow in enumerate(ask.flows):
            if at not in ask.paused and turn.flow(flow.key).class_name not in turn.index.classes:
                raise IndexUnavailable("class")
    verdicts = [_verdict(turn, ask) for ask in asks]
    turn.keep()
    return verdicts


def _line(turn: Turn, scope: str, flow: FlowQueue, number: bytes, rate: float) -> Waiting:
    """The class, its carrier and that one's session are one line: which is named changes from one ask to the next.

    A number's limit has a line for each number.
    """
    kind = scope.partition(":")[0]
    if kind in ("class", "provider", "session"):
        scope = "|".join(flow.line)
    elif kind == "number":
        scope = f"{scope}|{number.hex()}"
    line: Waiting = turn.once(("line", scope, flow.tenant), lambda: Waiting(turn, (scope, flow.tenant), rate))
    return line


def _verdict(turn: Turn, ask: Ask) -> Verdict:
    found = _best(turn, ask)
    if found is None:
        return Verdict(False, -1, 0, 0, None, "paused", 1)
    at, flow, best = found
    wait_ms = min(ceil(min(best.wait_ms, _DAYS_MS)), max(ask.left_ms, ask.door_limit_ms + 1))
    age_ms, scope = floor(best.age_ms), scope_pair(best.scope)
    if best.fine:
        if not ask.probe:
            _accept(turn, flow, ask.segments)
        return Verdict(True, at, wait_ms, age_ms, scope, None, 0)
    if best.unloaded:
        return Verdict(False, at, wait_ms, age_ms, scope, "storage", 1)
    refusal = _refusal(ask, best)
    scope = scope_pair(refusal.scope)
    not_before = _not_before(turn, ask, best)
    if not_before:
        if not ask.probe:
            _defer(turn, flow, not_before, ask.segments)
        return Verdict(False, at, wait_ms, age_ms, scope, refusal.cause, 1, not_before)
    line = _line(turn, refusal.scope, flow, ask.number, best.rate)
    retry_ms = line.place_ms(ask.place, refusal.base_ms, probe=ask.probe)
    return Verdict(False, at, wait_ms, age_ms, scope, refusal.cause, max(1, ceil(retry_ms / 1000)))


def _best(turn: Turn, ask: Ask) -> tuple[int, FlowQueue, Judgment] | None:
    """The first candidate that is fine, else the one that is open and shortest; None where none may be taken."""
    best: tuple[int, FlowQueue, Judgment] | None = None
    question = Question(ask.segments, ask.budget_ms, ask.door_limit_ms, ask.number)
    for at, candidate in enumerate(ask.flows):
        if at in ask.paused:
            continue
        flow = turn.flow(candidate.key)
        if not turn.index.is_open(flow.class_name):
            best = best or (at, flow, Judgment(0.0, f"class:{flow.class_name}", 0.0, unloaded=True))
            continue
        one = judge(turn, flow, question)
        _stand_behind(turn, flow, ask, one)
        if best is None or _better(one, best[2]):
            best = at, flow, one
        if one.fine:
            break
    return best


def _stand_behind(turn: Turn, flow: FlowQueue, ask: Ask, one: Judgment) -> None:
    """Near the limit those in line come first.

    In the line of every scope that is near it and not only of the one that binds at the moment: else newcomers pass
    whenever that changes.
    """
    limit_ms = ask.door_limit_ms
    if not one.fine or one.wait_ms * 2 <= limit_ms:
        return
    bounds, ahead = prospect(turn, flow, ask.segments, ask.budget_ms).bounds, one.ahead
    waits = [(bound.scope, bound.rate, bound.slope * ahead + bound.base) for bound in bounds]
    for scope, rate, wait_ms in [(one.scope, one.rate, one.wait_ms), *waits]:
        if wait_ms * 2 > limit_ms:
            lined_ms = _line(turn, scope, flow, ask.number, rate).before_ms(ask.place)
            if wait_ms + lined_ms > limit_ms:
                one.fine, one.wait_ms, one.lined_ms = False, wait_ms + lined_ms, lined_ms
                one.scope, one.rate = scope, rate
                return


def _better(one: Judgment, best: Judgment) -> bool:
    if best.unloaded or one.fine:
        return True
    return not one.for_ever and (best.for_ever or one.wait_ms < best.wait_ms)


def _refusal(ask: Ask, best: Judgment) -> _Refusal:
    base_ms = max(0.0, best.wait_ms - ask.door_limit_ms - best.lined_ms)
    if best.paused is not None and best.scope == best.paused:
        return _Refusal("paused", best.scope, UNKNOWN_MS if best.for_ever else min(base_ms, LATER_MS))
    if best.silent or best.wait_ms <= ask.door_limit_ms:
        return _Refusal("age", best.age_scope, SILENT_MS if best.silent else 0.0)
    return _Refusal("wait", best.scope, base_ms)


def _not_before(turn: Turn, ask: Ask, best: Judgment) -> int:
    """Until when a message is deferred that may be; 0 where it may not."""
    if ask.defer_until <= 0:
        return 0
    over_ms = max(1000, best.wait_ms - ask.door_limit_ms, best.age_ms - ask.door_limit_ms)
    at = ceil(turn.now + (LATER_MS if best.for_ever else over_ms))
    return at if at <= ask.defer_until else 0


def _accept(turn: Turn, flow: FlowQueue, segments: int) -> None:
    """Counts a promise, for as long as its message may be on its way into the queue."""
    if promised(turn, flow) == 0:
        flow.promised, flow.promised_until = 0, turn.now + PROMISE_MS
    flow.promised += 1
    line = turn.line(flow.line)
    if line.promised == 0:
        line.promised_at = turn.now
    line.promised += 1
    line.known = True
    for scope in turn.needs(flow):
        tally(turn.change(scope).promised, flow.class_name, segments)
        scope.promised_at = scope.promised_at or turn.now


def _defer(turn: Turn, flow: FlowQueue, at: int, segments: int) -> None:
    """From its instant on the message counts as work due, so that the next one comes later.

    Buckets grow with their distance, so that a flow has some tens of them at most.
    """
    width = 1000
    while width * 16 < at - turn.now:
        width *= 2
    edge = ceil(at / width) * width
    due = {due_at: (messages, parts) for due_at, messages, parts in due_of(turn, flow)}
    messages, parts = due.get(edge, (0, 0))
    due[edge] = messages + 1, parts + segments
    flow.due = [(due_at, *due[due_at]) for due_at in sorted(due)]
