"""Faults and orders: who is up, slowed, broken or paused; what the carrier's answers say."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, exp, floor

from scheduler.core.asks import Health, Outcomes
from scheduler.core.tuning import ProviderTuning
from scheduler.plain.state import FOREVER, Answers, Scope
from scheduler.plain.turn import DRAIN_MS, Turn, averaged

THROTTLED = 0.7
_SHARE_MIN = 0.05
_ROUND_TRIP_MIN_MS = 50
_QUEUES_FULL = 3  # numbers with a full queue within so long: the carrier's, not the handset's
_QUEUES_MS = 10_000
_TOKENS_MAX = 100
_PARTS = 10


def pause(turn: Turn, name: str, until: float | None) -> None:
    """Holds all that needs a scope."""
    scope = turn.named(name)
    if scope.closed_until <= turn.now:
        scope.closed_since = turn.now
    scope.closed_until = FOREVER if until is None else until
    turn.change(scope)
    turn.keep()


def resume(turn: Turn, name: str) -> None:
    """Ends a pause; parked flows are looked at again."""
    scope = turn.named(name)
    if scope.closed_until > 0:
        scope.closed_until = 0
        turn.reopened(scope)
        turn.empty(scope)
    look_again(turn)
    turn.keep()


def look_again(turn: Turn) -> None:
    """Has parked flows looked at again: what they wait for is another than when they were parked."""
    for provider in {line.name[0] for line in turn.index.lines.values() if line.known}:
        parked = turn.provider(provider).parked
        waiting = parked.above(turn.now, len(parked))
        for member in waiting:
            parked.put(member, turn.now)
        if waiting:
            turn.wake(provider)


def up(turn: Turn, provider: str, session: str, ramp: tuple[float, float]) -> None:
    """A session is bound; its rate grows from `ramp[0]` of itself, doubling every `ramp[1]` ms."""
    known = turn.provider(provider)
    was, known.sessions[session] = known.sessions.get(session, False), True
    returns = known.down_at > 0 and known.seen_at > 0
    known.seen_at = turn.now
    _seen(turn, provider)
    if was:
        return
    scope = turn.named(f"session:{session}")
    answers = turn.index.answers.get(scope.name)
    _ramp(turn, scope, ramp, answers.rate if answers else 0)
    if sum(known.sessions.values()) == 1 and returns:  # the whole provider was away
        whole = turn.named(f"provider:{provider}")
        turn.reopened(whole)
        turn.empty(whole)
    known.down_at = known.owed_at = 0
    known.answered_at = turn.now
    turn.wake(provider)
    turn.keep()


def down(turn: Turn, provider: str, session: str, back_at: float | None) -> None:
    """A session is no longer bound."""
    known = turn.provider(provider)
    was, known.sessions[session] = known.sessions.get(session, False), False
    known.back_at = back_at or 0
    _left(turn, provider, was)


def forget(turn: Turn, provider: str, session: str) -> None:
    """A session asks for nothing more."""
    was = turn.provider(provider).sessions.pop(session, False)
    turn.index.wakes.discard(session)
    _left(turn, provider, was)


def _left(turn: Turn, provider: str, was: bool) -> None:
    known = turn.provider(provider)
    if was and not any(known.sessions.values()):
        known.down_at = turn.now
    _seen(turn, provider)


def _seen(turn: Turn, provider: str) -> None:
    """Pauses of sessions that are over by now are noticed."""
    turn.fleet(provider)
    turn.keep()


def _slowable(scope: Scope, rate: float) -> None:
    """A session without a limit is slowed relative to what was measured of it."""
    if scope.interval_ms <= 0 and scope.measured_ms <= 0 and rate > 0:
        scope.measured_ms, scope.burst = 1000 / rate, max(1, floor(rate / 10))


def _ramp(turn: Turn, scope: Scope, ramp: tuple[float, float], rate: float) -> None:
    _slowable(scope, rate)
    if ramp[0] < 1:
        scope.share, scope.share_at, scope.share_doubles_ms = ramp[0], turn.now, ramp[1]
    turn.settle(scope)
    turn.empty(scope)


def slow(turn: Turn, session: str, factor: float, round_trip_ms: float, rate: float = 0) -> None:
    """The carrier throttles: a share of the present rate is left, at most once per round trip."""
    scope = turn.named(f"session:{session}")
    ramping = scope.share_doubles_ms > 0
    if not ramping and scope.share > 0 and turn.now - scope.share_at < round_trip_ms:
        return
    _slowable(scope, rate)
    present = _share_in_force(scope) if scope.share > 0 else 1.0
    scope.share, scope.share_at, scope.share_doubles_ms = max(_SHARE_MIN, present * factor), turn.now, 0
    turn.settle(turn.change(scope))


def _share_in_force(scope: Scope) -> float:
    whole = scope.interval_ms or scope.measured_ms
    return min(1.0, whole / scope.pace_ms) if whole > 0 and scope.pace_ms > 0 else 1.0


def answered(turn: Turn, provider: str, counts: Mapping[str, int]) -> None:
    """Segments that the carrier answered since the last report, per class."""
    now, known = turn.now, turn.provider(provider)
    for class_name, segments in counts.items():
        line = turn.line((provider, class_name))
        line.known = True
        if line.busy_at > 0:
            line.drain_count += segments
            turn.sample_drain(line)
        line.answers_count += segments
        span = now - line.answers_from
        if span >= 500:
            kept = exp(-span / DRAIN_MS)
            line.answers = line.answers * kept + line.answers_count * 1000 / span * (1 - kept)
            line.answers_from, line.answers_count = now, 0
    known.answers_count += sum(counts.values())
    known.answered_at = now
    known.answers_from = known.answers_from or now
    span = now - known.answers_from
    if span >= 500:
        kept, rate = exp(-span / 10_000), known.answers_count * 1000 / span
        if rate < known.answers and _only_retries_wait(turn, provider):
            rate = known.answers  # what the retry share lets out must not come to be the measure of itself
        known.answers = known.answers * kept + rate * (1 - kept)
        known.answers_from, known.answers_count = now, 0


def _only_retries_wait(turn: Turn, provider: str) -> bool:
    """Whether the retry share holds something back, and nothing else waits for the provider."""
    scope = turn.scope(f"retry:{provider}")
    if scope is None or scope.holding_since == 0 or sum(scope.waiting.values()) == 0:
        return False
    return not any(line.busy_at > 0 for _, line in turn.index.lines_of(provider))


def report(turn: Turn, provider: str, session: str, outcomes: Outcomes) -> Health:
    """What a session's carrier answered, and what follows from it for the session and its provider."""
    one, now, known = outcomes, turn.now, turn.provider(provider)
    scope, whole = turn.named(f"session:{session}"), turn.named(f"provider:{provider}")
    rules = turn.index.breaker(provider)
    if one.good + one.errors > 0 or one.rate_per_s > 0:
        for judged in (scope, whole):
            _judge(turn, judged, one, rules, provider)
    if one.round_trip_ms > 0:
        known.round_trip_ms = averaged(known.round_trip_ms, one.round_trip_ms, 0.8)
    if one.good + one.throttled > 0 or one.queue_full_destinations:
        known.answered_at = now
    first = now - one.unanswered_ms
    if one.unanswered_ms > 0 and known.owed_at <= known.answered_at < first:
        known.owed_at = first
    known.unwritten = one.waiting
    full = _full_queues(turn, session, one)
    if one.throttled > 0 or full >= _QUEUES_FULL:
        slow(turn, session, THROTTLED, max(_ROUND_TRIP_MIN_MS, one.round_trip_ms), one.rate_per_s or known.answers)
    turn.settle(turn.change(scope))
    turn.keep()
    probe_at = max(scope.probe_at, whole.probe_at)
    state = "closed"
    if probe_at > 0:
        let_through = probe_at > max(scope.closed_since, whole.closed_since) + rules.probe_after_ms + 1
        state = "half_open" if probe_at <= now or let_through else "open"
    rate = floor(1_000_000 / scope.pace_ms) / 1_000 if scope.pace_ms > 0 else 0
    return Health(
        rate_share=floor(_share_in_force(scope) * 1_000_000) / 1_000_000,
        breaker=state,
        open_until=ceil(probe_at) if probe_at > 0 else None,
        rate_per_s=rate or None,
    )


def _full_queues(turn: Turn, session: str, outcomes: Outcomes) -> int:
    """Numbers whose queue was full within the last seconds, where this report names any."""
    if not outcomes.queue_full_destinations:
        return 0
    seen = turn.index.full_queues.setdefault(session, {})
    for token in list(outcomes.queue_full_destinations)[:_TOKENS_MAX]:
        seen[token] = turn.now
    for token in [token for token, at in seen.items() if at < turn.now - _QUEUES_MS]:
        del seen[token]
    return len(seen)


def _usual_rate(turn: Turn, provider: str, own: float) -> float:
    """What a provider did before it broke: what its sessions did together."""
    names = [f"session:{name}" for name, _, _ in turn.fleet(provider)]
    return max(own, sum(turn.index.answers[name].rate for name in names if name in turn.index.answers))


def _judge(turn: Turn, scope: Scope, one: Outcomes, rules: ProviderTuning, provider: str) -> None:
    """Opens a breaker, probes again, or closes it and lets the rate ramp up."""
    now = turn.now
    answers = turn.index.answers.setdefault(scope.name, Answers())
    part = floor(now / (rules.within_ms / _PARTS))
    for old in range(max(answers.newest + 1, part - _PARTS + 1), part + 1):
        answers.parts[old % _PARTS] = [0.0, 0.0]
    answers.newest = part
    answers.parts[part % _PARTS][0] += one.good
    answers.parts[part % _PARTS][1] += one.errors
    if one.rate_per_s > 0:
        answers.rate = one.rate_per_s
    if scope.probe_at > 0:
        probed = scope.probe_at > scope.closed_since + rules.probe_after_ms + 1
        if one.good > 0 and one.errors == 0 and probed:
            scope.probe_at = 0
            turn.reopened(scope)
            rate = _usual_rate(turn, provider, answers.rate) if scope.name.startswith("provider:") else answers.rate
            _ramp(turn, scope, (rules.ramp_start, rules.ramp_double_every_ms), rate)
            turn.wake(provider)
        elif one.errors > 0 and probed:
            scope.probe_at = now + rules.probe_after_ms
        answers.forget()
    else:
        bad = sum(errors for _, errors in answers.parts)
        every = bad + sum(good for good, _ in answers.parts)
        if every >= rules.of and bad >= rules.errors * every and bad > 0:
            scope.probe_at, scope.closed_since = now + rules.probe_after_ms, now
            answers.forget()
    turn.change(scope)
