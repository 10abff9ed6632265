"""Whether a provider serves at all: paused, broken, away, or silent."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.plain.rates import known_rate
from scheduler.plain.state import FOREVER, FlowQueue, Scope
from scheduler.plain.turn import Turn

_DOWN_GRACE_MS = 2_000  # a provider without a session counts as away after this
_FIRST_GRACE_MS = 10_000  # and one that never had any, from when the index learned of it: at a start all is unbound
_BACK_MS = 5_000  # what coming back takes besides: connect, bind, ramp
_DEAD_MS = 30_000  # idle sessions lease every second: silence for so long is a dead pump
_TRIAL_MS = 30_000
_SILENT_MIN_MS = 1_000  # no carrier is called silent before
_PROBE_MS = 5_000


@dataclass(frozen=True, slots=True)
class Outage:
    """How long until a provider serves again (0: it does), the scope at fault, whether nobody knows the end."""

    wait_ms: float
    scope: str
    for_ever: bool = False


def outage(turn: Turn, provider: str) -> Outage:
    """The standing of a provider."""
    found: Outage = turn.once(("outage", provider), lambda: _outage(turn, provider))
    return found


def _closed_for(turn: Turn, scope: Scope | None, after_ms: float) -> tuple[float, bool]:
    """How long a scope stays closed by hand or by fault, and whether nobody knows its end."""
    if scope is None:
        return 0.0, False
    if scope.closed_until > turn.now:
        return scope.closed_until - turn.now, scope.closed_until >= FOREVER
    if scope.probe_at > 0:  # as long again as it lasted
        return max(0.0, scope.probe_at - turn.now) + max(after_ms, turn.now - scope.closed_since), False
    return 0.0, False


def _outage(turn: Turn, provider: str) -> Outage:
    now, known, fleet = turn.now, turn.provider(provider), turn.fleet(provider)
    own_name = f"provider:{provider}"
    own = turn.scope(own_name)
    after_ms = turn.index.breaker(provider).probe_after_ms if own is not None and own.probe_at > 0 else _PROBE_MS
    wait, for_ever = _closed_for(turn, own, after_ms)
    if wait > 0:
        return Outage(wait, own_name, for_ever)
    up = [(name, scope) for name, is_up, scope in fleet if is_up]
    if not up:
        grace_ms = _DOWN_GRACE_MS if known.seen_at > 0 else _FIRST_GRACE_MS
        if known.down_at > 0 and now - known.down_at > grace_ms:
            wait = max(known.back_at - now, now - known.down_at) + _BACK_MS
        return Outage(wait, own_name)
    if known.seen_at > 0 and now - known.seen_at > _DEAD_MS:
        return Outage(now - known.seen_at, own_name)
    closed = [(*_closed_for(turn, scope, after_ms), name) for name, scope in up]
    if any(one[0] == 0 for one in closed):
        return Outage(0.0, own_name)
    wait, for_ever, name = min(closed, key=lambda one: one[0])
    return Outage(wait, f"session:{name}" if len(up) == 1 else own_name, for_ever)


def silent_for(turn: Turn, flow: FlowQueue) -> float:
    """Since when a provider that has work gives no sign of life; 0 while all is well.

    No answer to what was claimed, or nobody takes what could go: longer than the round trip and its own pace suggest.
    """
    now, line, known = turn.now, turn.line(flow.line), turn.provider(flow.provider)
    span = pace = 0.0
    if 0 < known.answered_at < known.owed_at and now - known.owed_at < _TRIAL_MS:
        span = now - known.owed_at
    if line.busy_at > 0:
        untouched = now - max(known.pass_at, known.answered_at, line.busy_at)
        if untouched > span:
            span, pace = untouched, 3000 / known_rate(turn, flow)
    if span < _SILENT_MIN_MS:
        return 0.0
    usual = 5 * known.round_trip_ms if known.round_trip_ms > 0 else 2000.0
    if known.answers > 0:
        usual = min(usual, 5000 / known.answers)
    return span if span > max(usual, pace) else 0.0
