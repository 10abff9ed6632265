"""2, 3, 4: what one tenant's traffic does to the others."""

from __future__ import annotations

import itertools
from collections import Counter

from simulations.measure import Findings, jain, quantile
from simulations.scenarios.policies import policy, provider
from simulations.traffic import Kind, Stream
from simulations.world import Lab, World

_PATIENT = {"wait_budget": "10h", "ttl": {"default": "20h", "max": "24h"}}


def noisy(lab: Lab) -> Findings:
    """A tenant with ten times the capacity beside 20 quiet ones at 60 % of their fair share."""
    rate, quiet_rate = 500.0, 500 / 21 * 0.6
    seconds = lab.size / (10 * rate + 20 * quiet_rate)
    waits = {}
    findings = Findings()
    text = policy(classes={"transactional": {"wait_budget": "20s"}}, providers={"p": provider(rate)})
    quiet_kinds = [Kind(f"quiet{n}", "transactional") for n in range(20)]
    for name in ("alone", "beside"):
        world = lab.world(text, name="quiet")
        quiet = Stream(quiet_kinds, 20 * quiet_rate)
        loud = Stream([Kind("noisy", "transactional")], 10 * rate)
        world.offer(quiet)
        if name == "beside":
            world.offer(loud)
        world.run(seconds)
        waits[name] = quantile(world.waits(lambda message: message.kind.tenant != "noisy"), 0.99)
    accepted = Counter(message.kind.tenant == "noisy" for message in world.ledger.messages)
    sent = Counter(message.kind.tenant == "noisy" for message in world.ledger.messages if message.started_at)
    findings.offered = quiet.offered + loud.offered
    findings.keep("beside", world.told())
    findings.most("quiet p99 over alone, ms", waits["beside"] - waits["alone"], 20)
    findings.most("quiet refused", quiet.offered - accepted[False], 0)
    findings.least("noisy share of the rest", sent[True] / (rate * seconds - sent[False]), 0.99)
    findings.most("over burst, any window", world.excess(), 0.001)
    # In the first seconds of a mix of tenants nobody can know what share of theirs the others use.
    known_at = world.start_at + 3_000
    findings.foretold(*world.predictions(lambda m: m.kind.tenant == "noisy" and m.accepted_at > known_at))
    return findings


def weights(lab: Lab) -> Findings:
    """Weights 1:2:5, then 5:2:1 from the next policy version; all three always have something waiting."""
    rate = 800
    half_s = lab.size * 0.475 / rate
    quantum = 4
    tenants = "abc"
    amounts = {"a": 0.41, "b": 0.26, "c": 0.41}

    def text(*given: int) -> str:
        return policy(
            classes={"transactional": {**_PATIENT, "quantum": quantum}},
            providers={"p": provider(rate, window=400)},
            tenants={name: {"weight": weight} for name, weight in zip(tenants, given, strict=True)},
        )

    world = lab.world(text(1, 2, 5), tick_ms=20)
    for name, share in amounts.items():
        world.offer(Stream([Kind(name, "transactional")], 40_000 * share, amount=int(lab.size * share), pattern="even"))
    findings = Findings(offered=sum(int(lab.size * share) for share in amounts.values()))
    findings.keep("weights", world.told())
    shares = _Shares(world, {"a": 1, "b": 2, "c": 5}, quantum)
    world.on_step = shares.look
    world.run(half_s)
    first, lag = dict(shares.sent), shares.lag
    findings.foretold(*world.predictions())
    world.take_policy(text(5, 2, 1))
    world.on_step = None
    world.run(half_s + 2)
    shares.look(world)
    settled = dict(shares.sent)
    world.run(half_s + 12)
    shares.look(world)
    second = {name: shares.sent[name] - settled[name] for name in tenants}
    findings.most("largest error of a share", _error(first, {"a": 1, "b": 2, "c": 5}), 0.005)
    findings.most("lag over Q/wi + Q/wj", lag, 1)
    findings.most("error of a share, 2 s after the reload", _error(second, {"a": 5, "b": 2, "c": 1}), 0.01)
    findings.most("over burst, any window", world.excess(), 0.001)
    return findings


class _Shares:
    """Messages that left, by tenant, and the largest lag between two of them in units of what is allowed."""

    def __init__(self, world: World, given: dict[str, int], quantum: int) -> None:
        self.sent: Counter[str] = Counter()
        self.lag = 0.0
        self._given = given
        self._quantum = quantum
        self._open: dict[str, list[int]] = {name: [] for name in given}
        self._seen = 0
        self._at: dict[str, int] = dict.fromkeys(given, 0)

    def look(self, world: World) -> None:
        """Counts what left since the last look: each tenant's messages leave in order."""
        messages = world.ledger.messages
        for number in range(self._seen, len(messages)):
            self._open[messages[number].kind.tenant].append(number)
        self._seen = len(messages)
        for name, numbers in self._open.items():
            at = self._at[name]
            while at < len(numbers) and messages[numbers[at]].started_at is not None:
                at += 1
            self._at[name] = self.sent[name] = at
        for one, other in itertools.combinations(self._given, 2):
            apart = abs(self.sent[one] / self._given[one] - self.sent[other] / self._given[other])
            allowed = self._quantum / self._given[one] + self._quantum / self._given[other]
            self.lag = max(self.lag, apart / allowed)


def _error(sent: dict[str, int], given: dict[str, int]) -> float:
    total, weight = sum(sent.values()), sum(given.values())
    return max(abs(sent[name] / total / (given[name] / weight) - 1) for name in given)


def equals(lab: Lab) -> Findings:
    """10,000 tenants with the same backlog: everybody gets the same, one message at a time."""
    rate, count = 5_000, min(10_000, lab.size // 10)
    text = policy(
        classes={"transactional": {**_PATIENT, "quantum": 1}}, providers={"p": provider(rate, burst=100, window=1_000)}
    )
    world = lab.world(text)
    kinds = [Kind(f"t{n}", "transactional") for n in range(count)]
    stream = Stream(kinds, 50_000, amount=lab.size // count * count, pattern="even", in_turn=True)
    world.offer(stream)
    world.run(lab.size * 0.805 / rate)
    sent = Counter(message.kind.tenant for message in world.ledger.messages if message.started_at is not None)
    served = [sent[kind.tenant] for kind in kinds]
    findings = Findings(offered=stream.offered)
    findings.least("Jain's index", jain(served), 0.999)
    findings.most("largest less smallest", max(served) - min(served), 1)
    findings.most("over burst, any window", world.excess(), 0.001)
    # Not those of the first half second: the line has never been served, and half of the tenants are still to come.
    findings.foretold(*world.predictions(lambda message: message.accepted_at > world.start_at + 500))
    return findings
