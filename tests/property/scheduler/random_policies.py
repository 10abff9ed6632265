"""Random policies and random traces: plain data, so that a failing one can be cut down and played again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from scheduler.core.asks import Ask, LeaseAsk, Outcomes
from scheduler.core.records import NO_NUMBER, Entry, Flow, Reference
from scheduler.core.tuning import ClassTuning, ProviderTuning, Tuning

START_AT = 1_800_000_000_000.0
CLASSES = ("otp", "transactional", "marketing", "non_priority", "b|lk")
TENANTS = ("a", "b|pipe", "c%", "d e", "ü", "unnamed", "nobody")
NAMED = TENANTS[:5]
PROVIDERS = {"p": ("s1", "s2"), "q": ("s3",), "r|x": ("s4", "s5", "s6")}
SESSIONS = {session: provider for provider, sessions in PROVIDERS.items() for session in sessions}
APPLICATIONS = ("application:a/spring", "application:a/autumn", "application:b|pipe/x")
DESTINATIONS = ("destination:it", "destination:fr", "destination:de")
ROUTES = ("route:r1", "route:r2")
SCOPES = (
    *(f"tenant:{tenant}" for tenant in NAMED),
    *APPLICATIONS,
    "sender:a/+39",
    *DESTINATIONS,
    *ROUTES,
    *(f"provider:{provider}" for provider in PROVIDERS),
    *(f"session:{session}" for session in SESSIONS),
)
STEPS_MS = (0, 0, 0, 1, 7, 20, 20, 130, 0.125, 410.5, 900)

Event = tuple[str, float, dict[str, Any]]  # verb, ms since the event before, and what it needs


def random_tuning(dice: random.Random, version: int) -> Tuning:
    """A policy version: classes, weights, limits on some scopes of every kind, breakers."""
    classes = list(CLASSES)
    dice.shuffle(classes)
    limits: dict[str, tuple[float, int]] = {}
    share = dice.choice([0.1, 0.4, 0.7])
    for name in SCOPES:
        if dice.random() < share:
            rate = dice.choice([0.5, 3, 10, 33.3, 120, 700])
            limits[name] = rate, dice.choice([1, 2, 3, 10, 60])
    if dice.random() < 0.5:
        limits["tenant:"] = dice.choice([2, 20, 60.5]), dice.choice([1, 5, 40])
    if dice.random() < 0.6:
        limits["number:it"] = dice.choice([0.5, 2, 20]), dice.choice([1, 3])
    return Tuning(
        version,
        {
            name: ClassTuning(
                dice.choice([1, 5, 10, 25, 60]), dice.choice([1, 1, 4, 8, 32]), dice.choice([10_000, 600_000]),
                dice.choice([0.5, 0.3]),
            )
            for name in classes[: dice.randint(2, 5)]
        },
        tenant_weights={tenant: dice.choice([1, 2, 5, 0.5]) for tenant in NAMED if dice.random() < 0.5},
        default_weight=dice.choice([1, 1, 2]),
        limits=limits,
        retry_share=dice.choice([0.1, 0.3]),
        providers={
            name: ProviderTuning(
                dice.choice([0.3, 0.5]), dice.choice([4, 20]), dice.choice([2_000, 10_000]), dice.choice([500, 5_000]),
                dice.choice([0.1, 0.25, 1.0]), dice.choice([500, 5_000]),
            )
            for name in PROVIDERS
            if dice.random() < 0.7
        },
    )  # fmt: skip


@dataclass(slots=True)
class Traces:
    """Draws the events of one trace; `load` is how much comes in for what goes out."""

    dice: random.Random
    tuning: Tuning = field(init=False)
    load: float = field(init=False)
    numbers: int = 0
    flows: list[Flow] = field(init=False)

    def __post_init__(self) -> None:
        self.tuning = random_tuning(self.dice, 1)
        self.load = self.dice.choice([0.1, 0.3, 1, 2])
        self.flows = [self._flow() for _ in range(self.dice.choice([2, 6, 25, 60]))]

    def _flow(self) -> Flow:
        dice = self.dice
        tenant = dice.choice(TENANTS)
        provider = dice.choice(list(PROVIDERS))
        scopes = [f"tenant:{tenant}", f"provider:{provider}"]
        scopes += [one for one in APPLICATIONS if one.startswith(f"application:{tenant}/") and dice.random() < 0.4]
        if tenant == "a" and dice.random() < 0.3:
            scopes.append("sender:a/+39")
        if dice.random() < 0.7:
            scopes.append(dice.choice(ROUTES))
        if dice.random() < 0.6:
            scopes.append(dice.choice((*DESTINATIONS, "destination:it", "destination:it")))
            if scopes[-1].endswith("it") and dice.random() < 0.8:
                scopes.append("number:it")
        return Flow(
            provider, dice.choice(list(self.tuning.classes)), tenant, tuple(dict.fromkeys(scopes)), dice.randint(0, 1)
        )

    def events(self, count: int) -> list[Event]:
        """A trace; the first event sets the policy."""
        made: list[Event] = [("tune", 0, {"tuning": self.tuning})]
        made += [("session_up", 0, self._session(ramp=False)) for _ in range(4)]
        verbs, weights = zip(*_WEIGHTS.items(), strict=True)
        while len(made) < count:
            verb = self.dice.choices(verbs, weights)[0]
            made.append((verb, self._step_ms(), getattr(self, "_" + verb)()))
        return made

    def _step_ms(self) -> float:
        return 6_000 if self.dice.random() < 0.004 else self.dice.choice(STEPS_MS)

    def _reference(self) -> tuple[Any, ...]:
        """What a reference is made of when its time has come: id, slot, segments, ttl, age, number."""
        dice = self.dice
        self.numbers += 1
        ttl_ms = dice.choice([50, 500, 5_000, 60_000, 60_000, 600_000])
        number = dice.choice([NO_NUMBER, b"number-1", b"number-2", dice.randbytes(8)])
        return self.numbers, dice.choice([0, 0, 1]), dice.choice([1, 1, 1, 1, 1, 2, 5, 9]), ttl_ms, 0, number

    def _enqueue(self) -> dict[str, Any]:
        dice = self.dice
        entries = []
        for _ in range(max(1, round(dice.randint(1, 40) * self.load))):
            entries.append((dice.choice(self.flows), self._reference(), dice.random() < 0.03, dice.random() < 0.08))
        return {"batch": self.numbers, "entries": entries, "repeat": dice.random() < 0.1}

    def _lease(self) -> dict[str, Any]:
        dice = self.dice
        session = dice.choice(list(SESSIONS))
        without = frozenset({"otp"}) if dice.random() < 0.05 else frozenset()
        ask = LeaseAsk(
            SESSIONS[session], session, dice.choice([1, 3, 5, 30, 100, 200]), dice.choice([500, 2_000]),
            dice.choice([None, None, 7, 60]), without,
        )  # fmt: skip
        return {"ask": ask, "ack": dice.random() < 0.6}

    def _end(self) -> dict[str, Any]:
        dice = self.dice
        return {
            "which": dice.randrange(1000),
            "how": dice.choice(["ack", "ack", "restore", "back"]),
            "part": dice.random(),
        }

    def _cancel(self) -> dict[str, Any]:
        ids = [self.dice.randint(0, 80) for _ in range(self.dice.randint(1, 3))]
        return {"recent": ids, "slot": self.dice.random() < 0.3, "keep_ms": self.dice.choice([800, 3_600_000])}

    def _pause(self) -> dict[str, Any]:
        return {"scope": self.dice.choice(SCOPES), "after_ms": self.dice.choice([None, 300, 2_000, 0])}

    def _resume(self) -> dict[str, Any]:
        return {"scope": self.dice.choice(SCOPES), "which": self.dice.choice([None, 0, 1, 2])}

    def _session(self, *, ramp: bool = True) -> dict[str, Any]:
        session = self.dice.choice(list(SESSIONS))
        start = self.dice.choice([1.0, 0.25, 0.1]) if ramp else 1.0
        return {"provider": SESSIONS[session], "session": session, "ramp": (start, self.dice.choice([500, 5_000]))}

    def _session_up(self) -> dict[str, Any]:
        return self._session()

    def _session_down(self) -> dict[str, Any]:
        return {**self._session(), "back_ms": self.dice.choice([None, 1_000, 20_000])}

    def _forget(self) -> dict[str, Any]:
        return self._session()

    def _outcomes(self) -> dict[str, Any]:
        dice = self.dice
        full = frozenset(dice.randbytes(8) for _ in range(dice.choice([0, 0, 0, 1, 3])))
        one = Outcomes(
            good=dice.choice([0, 0, 1, 8, 30]), errors=dice.choice([0, 0, 0, 1, 9]),
            throttled=dice.choice([0, 0, 0, 0, 2]),
            queue_full_destinations=full, round_trip_ms=dice.choice([0.0, 40.0, 300.5]),
            rate_per_s=dice.choice([0.0, 12.5, 200.0]), waiting=dice.choice([0, 0, 5]),
            unanswered_ms=dice.choice([0.0, 0.0, 700.0, 4_000.0]),
        )  # fmt: skip
        return {**self._session(), "outcomes": one}

    def _slow(self) -> dict[str, Any]:
        return {**self._session(), "factor": self.dice.choice([0.7, 0.3]), "round_trip_ms": self.dice.choice([50, 400])}

    def _answers(self) -> dict[str, Any]:
        names = self.dice.sample(list(self.tuning.classes), self.dice.randint(1, 2))
        return {
            "provider": self.dice.choice(list(PROVIDERS)),
            "counts": {name: self.dice.randint(1, 40) for name in names},
        }

    def _tune(self) -> dict[str, Any]:
        kept = self.tuning.classes
        step = self.dice.choice([1, 1, 1, 0, -1])
        tuning = random_tuning(self.dice, self.tuning.policy_version + step)
        if step > 0:
            self.tuning = Tuning(
                tuning.policy_version, {**kept, **tuning.classes}, tuning.tenant_weights, tuning.default_weight,
                tuning.limits, tuning.retry_share, tuning.providers,
            )  # fmt: skip
            tuning = self.tuning
        return {"tuning": tuning}

    def _due(self) -> dict[str, Any]:
        works = {}
        for flow in self.dice.sample(self.flows, min(len(self.flows), self.dice.randint(1, 4))):
            buckets = sorted(self.dice.choice([-500, 200, 3_000, 60_000]) + self.dice.randint(0, 900) for _ in range(4))
            works[flow.key] = [(at, self.dice.randint(1, 30), self.dice.randint(30, 60)) for at in buckets]
            if self.dice.random() < 0.2:
                works[flow.key] = []
        return {"works": works, "complete": self.dice.random() < 0.3}

    def _admit(self) -> dict[str, Any]:
        dice = self.dice
        asks = []
        for _ in range(dice.choice([1, 1, 5, 30])):
            flows = tuple(dice.sample(self.flows, min(len(self.flows), dice.randint(1, 3))))
            limit = dice.choice([500, 5_000, 60_000, 3_600_000])
            asks.append(
                Ask(
                    flows=flows,
                    segments=dice.choice([1, 1, 1, 3]),
                    budget_ms=limit * 2,
                    door_limit_ms=limit,
                    left_ms=dice.choice([limit * 2, 30_000]),
                    place=b"key-%d" % dice.randint(0, 30),
                    paused=frozenset({0}) if dice.random() < 0.05 else frozenset(),
                    number=dice.choice([NO_NUMBER, b"number-1", b"number-2"]),
                    probe=dice.random() < 0.1,
                    defer_until=dice.choice([0, 0, 0, 30_000, 7_200_000]),  # ms from then
                )
            )
        self.numbers += len(asks)
        return {"asks": asks, "first": self.numbers if dice.random() < 0.5 else None}

    def _explain(self) -> dict[str, Any]:
        return {"recent": self.dice.randint(0, 80)}

    def _sweep(self) -> dict[str, Any]:
        return {"provider": self.dice.choice(list(PROVIDERS))}

    def _look(self) -> dict[str, Any]:
        return {}

    def _rebuild(self) -> dict[str, Any]:
        return {
            "lost": self.dice.random() < 0.3,
            "left": self.dice.random() < 0.2,
            "between_ms": self.dice.choice([0, 700]),
        }

    def _drop(self) -> dict[str, Any]:
        return {"provider": self.dice.choice(list(PROVIDERS)), "class": self.dice.choice(list(self.tuning.classes))}


_WEIGHTS = {
    "enqueue": 20, "lease": 34, "end": 8, "cancel": 3, "pause": 2, "resume": 2.5, "session_up": 2.5,
    "session_down": 1.2, "forget": 0.2, "outcomes": 5, "slow": 0.8, "answers": 5, "tune": 0.5, "due": 1,
    "admit": 12, "explain": 4, "look": 3, "rebuild": 0.25, "drop": 0.15,
    "sweep": 2,
}  # fmt: skip


def entry_of(drawn: tuple[Any, ...], now: float) -> Entry:
    """An entry whose reference begins now."""
    flow, (number, slot, segments, ttl_ms, age_ms, token), front, retry = drawn
    at = int(now) - age_ms
    return Entry(
        flow, Reference(number.to_bytes(16, "big"), slot, segments, at + ttl_ms, at, token), front=front, retry=retry
    )
