"""The door over random policies, loads and reloads (I26): what it lets in can go in time, refusals leave no trace.

Each answer is judged by what the index held before: the flow's own work against the policy's limits, ages and pauses
read from the records themselves, so that a fault of the estimate does not excuse itself.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scheduler.core.asks import Ask, Verdict
from scheduler.core.tuning import Tuning
from scheduler.core.unavailable import IndexUnavailable
from scheduler.model import Model
from scheduler.plain.state import FOREVER, FlowQueue, Index, Scope
from scheduler.plain.turn import Turn
from tests.property.scheduler.played import Player, Told
from tests.property.scheduler.random_policies import START_AT, Event, Traces
from tests.property.scheduler.remembered import forget_promises, of_model
from tests.property.scheduler.side_by_side import SideBySide

EVENTS = 500
_OUTCOMES = {"accepted", "deferred", "wait", "age", "paused", "probe"}


class Alone:
    """The model alone."""

    def __init__(self) -> None:
        self.now = START_AT
        self.model = Model()

    def ask(self, verb: str, *args: Any, **options: Any) -> Any:
        """One verb; None where the index is unavailable."""
        try:
            return getattr(self.model, verb)(*args, now=self.now, **options)
        except IndexUnavailable:
            return None

    def lose(self) -> None:
        """Everything is forgotten."""
        self.model.lose()


class Judged:
    """Passes on what is asked, and judges what the door says."""

    def __init__(self, told: Told, model: Model) -> None:
        self.now = told.now
        self.seen: Counter[str] = Counter()
        self._told = told
        self._model = model

    def lose(self) -> None:
        """Everything is forgotten."""
        self._told.lose()

    def ask(self, verb: str, *args: Any, **options: Any) -> Any:
        """One verb; None where the index is unavailable."""
        self._told.now = self.now
        if verb != "admit":
            return self._told.ask(verb, *args, **options)
        asks: Sequence[Ask] = args[0]
        index = self._model.index
        before, promised = _kept(index, self.now), _promised(index, self.now)
        if index.tuning is not None and index.state != "lost":
            bounds = [[_must_refuse(index, self.now, ask, flow.key) for flow in ask.flows] for ask in asks]
        verdicts = self._told.ask("admit", asks)
        if verdicts is None:
            return None
        taken: Counter[str] = Counter()
        for ask, verdict, bound in zip(asks, verdicts, bounds, strict=True):
            self._judge(ask, verdict, bound, taken)
        assert _promised(self._model.index, self.now) - promised == taken, "a promise for each message that came in"
        if not any((one.accepted or one.not_before) and not ask.probe for ask, one in zip(asks, verdicts, strict=True)):
            assert _kept(self._model.index, self.now) == before, "a refusal or a probe left a trace"
        return verdicts

    def _judge(self, ask: Ask, verdict: Verdict, bound: list[str], taken: Counter[str]) -> None:
        limit_ms = ask.door_limit_ms
        if verdict.accepted:
            flow = self._model.index.flows[ask.flows[verdict.candidate].key]
            assert verdict.candidate not in ask.paused
            assert verdict.predicted_wait_ms <= limit_ms and verdict.queue_age_ms <= limit_ms
            assert (verdict.cause, verdict.retry_after_s, verdict.not_before) == (None, 0, None)
            assert not bound[verdict.candidate], bound[verdict.candidate]
            beyond = _own_work(self._model.index, self.now, flow, taken[flow.key], limit_ms)
            assert not beyond, f"{beyond} cannot let through in time what waits of the flow alone"
            if not ask.probe:
                taken[flow.key] += 1
            self.seen["probe" if ask.probe else "accepted"] += 1
            return
        if verdict.not_before:
            assert self.now < verdict.not_before <= ask.defer_until
            self.seen["deferred"] += 1
            return
        assert isinstance(verdict.retry_after_s, int) and verdict.retry_after_s >= 1
        assert verdict.cause in ("wait", "age", "paused", "storage")
        if verdict.cause == "wait":
            assert verdict.predicted_wait_ms > limit_ms
        elif verdict.cause == "age" and verdict.queue_age_ms <= limit_ms:  # a carrier that fell silent
            assert verdict.scope is not None and verdict.scope[0] == "provider" and verdict.queue_age_ms >= 1_000
        self.seen[verdict.cause] += 1


def _promised(index: Index, now: float) -> Counter[str]:
    return Counter({f.key: f.promised for f in index.flows.values() if f.promised and now <= f.promised_until})


def _kept(index: Index, now: float) -> dict[str, Any]:
    """What a refusal must not change, as it reads now: all but the lines at the door."""
    kept = of_model(index)
    turn = Turn(index, now)
    scopes = {name: turn.scope(name) for name in list(index.scopes)}
    kept["scope"] = {
        name: replace(one, waiting=_some(one.waiting), flows=_some(one.flows), promised=_some(one.promised))
        for name, one in scopes.items()
        if one is not None
    }
    kept["promised"] = _promised(index, now)
    forget_promises(kept["line"], now)
    kept["line"] = {name: line for name, line in kept["line"].items() if any(line)}
    return kept


def _some(counts: dict[str, float]) -> dict[str, float]:
    return {name: count for name, count in counts.items() if count}


def _needed(index: Index, now: float, flow: FlowQueue) -> list[Scope]:
    turn = Turn(index, now)
    found = [turn.scope(name) for name in flow.needs if name != flow.number and name in index.scopes]
    return [one for one in found if one is not None]


def _must_refuse(index: Index, now: float, ask: Ask, key: str) -> str:
    """Why a flow must not let a message in, by its records alone; '' where nothing says so."""
    flow, limit_ms = Turn(index, now).flow(key), ask.door_limit_ms
    if not index.is_open(flow.class_name):
        return "its class is not loaded"
    own = Turn(index, now).scope(flow.application) if flow.application else None
    for scope in _needed(index, now, flow):
        left_ms = scope.closed_until - now
        if scope.name != flow.application and (scope.closed_until >= FOREVER or left_ms > limit_ms):
            return f"{scope.name} is paused"
        held_ms = now - scope.holding_since if scope.holding_since > 0 else 0
        empty = scope.pace_ms > 0 and Turn(index, now).tokens(scope) < 1 - 1e-5
        if left_ms <= 0 and empty and scope.waiting.get(flow.class_name, 0) > 0 and held_ms > limit_ms:
            return f"{scope.name} has let nothing through for {held_ms} ms"
    if not flow.references or (own is not None and own.closed_until > now):  # a tenant's own pause closes no door
        return ""
    waited_ms = now - max(flow.references[0].queued_at, own.opened_at if own else 0)
    return "the oldest of its flow has waited longer" if waited_ms > limit_ms else ""


def _own_work(index: Index, now: float, flow: FlowQueue, earlier: int, limit_ms: int) -> str:
    """A limit that cannot let through within the door limit what stands before a message in its own flow."""
    turn = Turn(index, now)
    for name in flow.needs:
        scope = turn.scope(name)
        if scope is None or scope.interval_ms <= 0 or name == flow.number:
            continue
        spare = turn.tokens(scope) if scope.pace_ms > 0 else scope.burst
        if (len(flow.references) + earlier - spare) * scope.interval_ms > limit_ms + 1:
            return name
    return ""


def as_the_gateway_asks(events: list[Event]) -> list[Event]:
    """The same trace with budgets and door limits of the policy in force, and one class per message."""
    made: list[Event] = []
    tuning: Tuning | None = None
    for verb, after_ms, needed in events:
        if verb == "tune" and (tuning is None or needed["tuning"].policy_version > tuning.policy_version):
            tuning = needed["tuning"]
        if verb == "admit":
            assert tuning is not None
            made.append((verb, after_ms, {**needed, "asks": [_composed(ask, tuning) for ask in needed["asks"]]}))
        else:
            made.append((verb, after_ms, needed))
    return made


def _composed(ask: Ask, tuning: Tuning) -> Ask:
    class_name = ask.flows[0].class_name
    rules = tuning.classes[class_name]
    return replace(
        ask,
        flows=tuple(flow for flow in ask.flows if flow.class_name == class_name),
        budget_ms=rules.wait_budget_ms,
        door_limit_ms=int(rules.door_share * min(rules.wait_budget_ms, ask.left_ms)),
    )


def _play(told: Told, model: Model, seed: int) -> Counter[str]:
    judged = Judged(told, model)
    player = Player(judged)
    for number, event in enumerate(as_the_gateway_asks(Traces(random.Random(seed)).events(EVENTS))):
        try:
            player.play(event)
        except AssertionError as fault:
            raise AssertionError(f"seed {seed}, event {number} {event}: {fault}") from fault
    return judged.seen


def test_i26_the_model_lets_in_only_what_can_go_in_time() -> None:
    seen: Counter[str] = Counter()
    for seed in range(1, 8):
        told = Alone()
        seen += _play(told, told.model, seed)
    assert set(seen) >= _OUTCOMES, seen


def test_i26_the_scripts_let_in_only_what_can_go_in_time(redis_url: str) -> None:
    with SideBySide.on(redis_url, START_AT) as both:
        assert _play(both, both.model, 1)["accepted"] > 0
