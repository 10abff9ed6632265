"""How a policy version comes into force: limits keep their fill, classes and weights change at once."""

from __future__ import annotations

from scheduler.core.gcra import Debts, met
from scheduler.core.records import Reference
from scheduler.core.tuning import Tuning
from scheduler.plain.faults import look_again
from scheduler.plain.numbers import Numbers
from scheduler.plain.state import Scope
from scheduler.plain.turn import TENANT_DEFAULT, Turn


def tune(turn: Turn, tuning: Tuning, *, forced: bool) -> bool:
    """Takes a policy version; False where this one or a newer one is in force and nothing is forced."""
    index = turn.index
    if index.tuning is not None and index.tuning.policy_version >= tuning.policy_version and not forced:
        return False
    known = list(index.scopes)
    existing = {name: turn.scope(name) for name in tuning.limits if name in index.scopes and name != TENANT_DEFAULT}
    loosened = False
    for name, (rate, burst) in tuning.limits.items():
        before = existing.get(name)
        if before is not None and before.interval_ms > 0 and name.startswith("number:"):
            loosened = loosened or 1000 / rate < before.interval_ms or burst > before.burst
        _limit(turn, existing.get(name) or turn.new(name), rate, burst)
    default = tuning.limits.get(TENANT_DEFAULT)
    for name in known:
        kind = name.partition(":")[0]
        if name in tuning.limits or kind == "retry":
            continue
        scope = turn.scope(name)
        assert scope is not None
        loosened = loosened or kind == "number"
        if kind == "tenant" and default is not None:  # a tenant that the policy does not name
            _limit(turn, scope, *default)
        elif scope.closed_until <= turn.now and scope.probe_at <= 0 and scope.share <= 0:
            turn.forget(scope)
        else:  # everything may pass, but for the pause or the fault
            scope.interval_ms = 0
            scope.pace_ms = turn.pace(turn.change(scope))
    index.tuning = tuning
    index.classes.update(tuning.classes)
    for name in tuning.providers:
        provider = turn.provider(name)
        if provider.seen_at == 0 and provider.down_at == 0:  # down until a session is bound
            provider.down_at = turn.now
    if index.state != "lost":  # what waits for a limit waits until an instant that the old rate gave
        look_again(turn)
        if loosened:
            _release_held(turn)
    turn.keep()
    return True


def _release_held(turn: Turn) -> None:
    """Has messages that their numbers hold looked at again."""
    numbers = Numbers(turn)
    for name in {line.name[0] for line in turn.index.lines.values() if line.known}:
        held = turn.provider(name).held
        waiting = held.above(turn.now, len(held))
        for member in waiting:
            held.put(member, turn.now)
            reference, flow = Reference.unpack(member[2]), turn.flow(member[1].decode())
            limit = numbers.limit(flow, reference.number)
            if limit is not None:
                numbers.begin_line(limit, reference.number)
        if waiting:
            turn.wake(name)


def _limit(turn: Turn, scope: Scope, rate: float, burst: int) -> None:
    """A scope under another limit: tokens that are left stay, but never more than the new burst."""
    interval_ms = 1000 / rate
    if scope.pace_ms <= 0:  # a new limit reads as empty at the start of the epoch
        scope.paid_until = max(scope.paid_until, burst * interval_ms)
        scope.debts = Debts(turn.now, turn.now)
    else:
        owed = scope.burst - turn.tokens(scope)
        left = min(burst, scope.burst - owed)
        scope.debts = met(scope.debts, turn.now, max(0.0, owed + min(0, burst - scope.burst)))  # full sooner if smaller
        scope.interval_ms, scope.measured_ms = interval_ms, 0
        scope.paid_until = turn.clock + (burst - left) * turn.pace(scope)
    scope.interval_ms, scope.burst, scope.measured_ms = interval_ms, burst, 0
    scope.pace_ms = turn.pace(scope)
    turn.change(scope)
