"""10: a carrier that wants much of it later; clients that never listen; what a refusal costs."""

from __future__ import annotations

from scheduler.core.asks import LeaseAsk
from scheduler.core.records import Entry, Reference
from simulations.measure import Findings, quantile
from simulations.scenarios.policies import policy, provider
from simulations.traffic import Kind, Request, Stream
from simulations.world import Lab, World

_SHARE, _RETRY_BURST = 0.1, 10


def refusals(lab: Lab) -> Findings:
    """Retries stay within their share; hostile clients change nothing for what is accepted; a no is cheap."""
    findings = Findings()
    _retries(lab, findings)
    _hostile(lab, findings)
    if lab.engine.scripts:
        _cost(lab, findings)
    return findings


def _retries(lab: Lab, findings: Findings) -> None:
    """20 % of the submits are wanted later for 30 s, then 60 %: with the retry share, and without."""
    rate, seconds = lab.size / 330, 60.0
    firsts = {}
    for name in ("capped", "not capped"):
        text = policy(
            providers={"p": {**provider(rate, burst=max(10, int(rate / 10))), "breaker": {"errors": 1.0}}},
            retries={"share": _SHARE},
            classes={"transactional": {"wait_budget": "1h", "ttl": {"default": "2h", "max": "4h"}}},
        )
        world = lab.world(text, tick_ms=40, name="retries")
        world.senders.cap_retries = name == "capped"
        carrier = world.carriers["p"]
        carrier.refuses = 0.2
        world.change(seconds / 2, carrier, refuses=0.6)
        stream = Stream([Kind(f"shop{n}", "transactional") for n in range(20)], 1.4 * rate, end_s=seconds)
        world.offer(stream)
        world.run(seconds)
        findings.offered += stream.offered
        firsts[name] = world.senders.first_attempts
        if name == "capped":
            findings.keep("retries", world.told())
            allowed = _SHARE * rate * seconds + _RETRY_BURST
            findings.most("retries over 10 % of rate x t + burst", world.senders.retries / allowed, 1)
            findings.most("over burst, any window", world.excess(), 0.001)
    findings.least("first attempts with the cap over those without", firsts["capped"] / firsts["not capped"], 1.3)


def _hostile(lab: Lab, findings: Findings) -> None:
    """Obedient clients at twice the capacity; then besides hostile ones at ten times the capacity."""
    rate, seconds = lab.size / 330, 12.0
    p99 = {}
    for name in ("obedient", "hostile"):
        world = lab.world(
            policy(providers={"p": provider(rate, burst=max(10, int(rate / 10)))}), tick_ms=40, name="obedient"
        )
        banks = Stream([Kind(f"bank{n}", "otp") for n in range(20)], 2 * rate, end_s=seconds, manner="obedient")
        world.offer(banks)
        if name == "hostile":
            flood = Stream([Kind("flood", "otp")], 10 * rate, end_s=seconds)
            world.offer(flood)
        world.run(seconds + 12)
        findings.offered += sum(stream.offered for stream in world.clients.streams)
        p99[name] = quantile(world.waits(lambda message: message.kind.tenant != "flood"), 0.99)
        findings.keep(name, world.told())
        findings.most(f"{name}: expired after accept", world.ended("expired") / len(world.ledger.messages), 0.001)
    findings.most("accepted p99 beside hostile clients over without", p99["hostile"] / p99["obedient"], 1.1)


def _cost(lab: Lab, findings: Findings) -> None:
    """The index's processor time for a no (admit) and for a yes (admit, enqueue, lease, ack); 50 a call, best of five.

    That a no costs at most half of a yes is a rule for the whole gateway: what PostgreSQL, the door's commit, the claim
    and the outcome take for a yes comes on top, and is not played here.
    """
    costs = {}
    for name, rate in (("no", 10), ("yes", 1_000_000)):
        patience = {"no": "10s", "yes": "1h"}[name]
        classes = {"otp": {"wait_budget": patience, "ttl": {"default": "2h", "max": "2h"}}}
        world = lab.world(policy(providers={"p": provider(rate, burst=10)}, classes=classes))
        kinds = [Kind(f"bank{n}", "otp") for n in range(20)]
        world.offer(Stream(kinds, 2_000, amount=2_000, pattern="even"))
        world.run(1)
        costs[name] = min(_server_us(world, kinds, name == "yes") for _ in range(5))
    findings.most("index: cost of a no over that of a yes", costs["no"] / costs["yes"], 1.5)
    findings.notes["a no, us of the server"], findings.notes["a yes, us of the server"] = costs["no"], costs["yes"]


def _server_us(world: World, kinds: list[Kind], accepted: bool) -> float:
    """Microseconds of the server per message over 40 calls."""
    before, count = world.lab.engine.spent_us(), 50
    for _ in range(40):
        requests = [Request(kinds[n % len(kinds)], world.rng.randbytes(8), False, 0) for n in range(count)]
        allowed, asks = world.door.ask(requests, world.clock.at)
        verdicts = world.tell(world.index.admit(asks))
        assert all(verdict.accepted is accepted for verdict in verdicts)
        if accepted:
            at = int(world.clock.at)
            entries = [
                Entry(one.flows[0], Reference(world.rng.randbytes(16), 0, 1, at + 10_000, at)) for one in allowed
            ]
            world.tell(world.index.enqueue(world.rng.randbytes(8), entries))
            leased = world.tell(world.index.lease(LeaseAsk("p", "s1", count)))
            world.tell(world.index.ack(leased.lease_id))
    return (world.lab.engine.spent_us() - before) / (40 * count)
