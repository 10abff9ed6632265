"""8: the carrier does a fifth of what it did, says nothing, and comes back after a minute."""

from __future__ import annotations

from simulations.measure import Findings
from simulations.scenarios.overload import DOOR_LIMIT_MS
from simulations.scenarios.policies import policy, provider
from simulations.traffic import Kind, Stream
from simulations.world import Lab, World

_KINDS = [Kind(f"bank{n}", "otp") for n in range(20)]
_DROP_S, _BACK_S, _END_S = 20.0, 80.0, 110.0
_BUDGET_MS = 10_000


def falls(lab: Lab) -> Findings:
    """Capacity C to C/5 and back, at 80 % load and at 120 % load."""
    rate = lab.size / 220
    findings = Findings()
    for name, load in (("under load", 0.8), ("overloaded", 1.2)):
        world = _world(lab, name, rate)
        stream = Stream(_KINDS, load * rate, end_s=_END_S)
        world.offer(stream)
        world.run(_DROP_S + 10)
        fallen = _drain(world)
        world.run(_BACK_S + 10)
        returned = _drain(world)
        world.run(_END_S)
        sent = world.series.total("sent otp", int(_BACK_S + 2), int(_BACK_S + 20))
        world.run(_END_S + 12)
        expired = world.ended("expired")
        findings.offered += stream.offered
        findings.keep(name, world.told())
        if name == "under load":
            findings.most("80 %: expired after accept", expired / len(world.ledger.messages), 0.005)
            continue
        unavoidable = (DOOR_LIMIT_MS * rate - _BUDGET_MS * rate / 5) / 1000
        findings.most("120 %: expired over the unavoidable", expired / unavoidable, 1.01)
        findings.most("drain after the fall, error", abs(fallen / (rate / 5) - 1), 0.1)
        findings.most("drain after the return, error", abs(returned / rate - 1), 0.1)
        findings.least("capacity used from 2 s after the return", sent / (18 * rate), 0.95)
    return findings


def _world(lab: Lab, name: str, rate: float) -> World:
    window = max(10, int(rate / 10))
    world = lab.world(
        policy(providers={"p": provider(rate, burst=max(10, int(rate / 10)), window=window)}), tick_ms=40, name=name
    )
    carrier = world.carriers["p"]
    carrier.rate_per_s = rate
    world.at(_DROP_S, lambda: carrier.change_rate(rate / 5, world.clock.at))
    world.at(_BACK_S, lambda: carrier.change_rate(rate, world.clock.at))
    return world


def _drain(world: World) -> float:
    return world.report().lines["p", "otp"].drain_per_s
