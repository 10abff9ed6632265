"""7, 9: more than the carrier can take, from clients that do not come again and from clients that do."""

from __future__ import annotations

from simulations.measure import Findings, quantile
from simulations.scenarios.policies import policy, provider
from simulations.traffic import Kind, Stream
from simulations.world import Lab

_KINDS = [Kind(f"bank{n}", "otp") for n in range(20)]
DOOR_LIMIT_MS = 5_000  # door_share 0.5 of the 10 s that an OTP may wait


def _policy(rate: float) -> str:
    return policy(providers={"p": provider(rate, burst=max(10, int(rate / 10)), window=1_000)})


def threefold(lab: Lab) -> Findings:
    """Three times the capacity in OTPs: what is accepted is sent in time; without the door a third of it expires."""
    rate = lab.size / 200
    findings = Findings()
    for name, seconds in (("door", 48), ("no door", 18)):
        world = lab.world(_policy(rate), tick_ms=40, name=name)
        stream = Stream(_KINDS, 3 * rate, end_s=seconds)
        world.door.open_to_all = name == "no door"
        world.offer(stream)
        world.run(seconds)
        sent = world.series.total("sent otp", 1, int(seconds))
        world.run(seconds + 12)
        expired = world.ended("expired") / len(world.ledger.messages)
        findings.offered += stream.offered
        findings.keep(name, world.told())
        if name == "no door":
            findings.least("no door: expired after accept", expired, 0.2)
            continue
        findings.most("expired after accept", expired, 0.001)
        findings.most("OTP wait p99, ms", quantile(world.waits(lambda message: True), 0.99), DOOR_LIMIT_MS)
        findings.least("share of capacity used", sent / (rate * (int(seconds) - 1)), 0.999)
        findings.most("over burst, any window", world.excess(), 0.001)
        findings.foretold(*world.predictions())
    return findings


def obedient(lab: Lab) -> Findings:
    """30 s of two and three times the capacity from clients that come again after Retry-After until they are in."""
    rate = lab.size / 150
    findings = Findings()
    for factor in (2, 3):
        world = lab.world(_policy(rate), tick_ms=40, name=str(factor))
        stream = Stream(_KINDS, factor * rate, end_s=30, manner="obedient")
        world.offer(stream)
        load_s = factor * 30
        while world.elapsed_s < load_s * 2 and (world.clients.waiting or world.elapsed_s < 31):
            world.run(world.elapsed_s + 1)
        world.run(world.elapsed_s + 12)
        findings.offered += stream.offered
        findings.keep(f"{factor}x", world.told())
        findings.most(f"{factor}x: requests per accepted", world.door.requests / max(1, world.door.accepted), 2.0)
        last_s = (world.door.last_accepted_at - world.start_at) / 1000
        findings.most(f"{factor}x: last accepted over load", last_s / (stream.offered / rate), 1.35)
        findings.most(f"{factor}x: never accepted", stream.offered - world.door.accepted, 0)
        expired = world.ended("expired") / len(world.ledger.messages)
        findings.most(f"{factor}x: expired after accept", expired, 0.001)
        findings.foretold(*world.predictions())
    return findings
