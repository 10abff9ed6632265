"""15: a caller whose clock jumps, a limit halved while it runs, and four senders on one route."""

from __future__ import annotations

from collections import Counter

from simulations.measure import Findings
from simulations.scenarios.policies import policy, provider
from simulations.traffic import Kind, Stream
from simulations.world import Lab, World

_PATIENT = {"wait_budget": "10h", "ttl": {"default": "20h", "max": "24h"}}


def also(lab: Lab) -> Findings:
    """What must not matter: halving a limit, many senders, one caller with a wrong clock."""
    findings = Findings()
    _halved(lab, findings)
    _senders(lab, findings)
    _clock(lab, findings)
    return findings


def _text(rate: float, sessions: int = 1) -> str:
    return policy(
        classes={"transactional": _PATIENT},
        providers={"p": provider(rate, burst=50, sessions=sessions, window=200)},
        tenants={"b": {"weight": 2}, "c": {"weight": 5}},
    )


def _fill(world: World, amount: int) -> Stream:
    stream = Stream(
        [Kind(name, "transactional") for name in "abc"], 30_000, amount=amount, pattern="even", in_turn=True
    )
    world.offer(stream)
    return stream


def _halved(lab: Lab, findings: Findings) -> None:
    """500/s, then 250/s, then 1,000/s: never more than the integral of the rate and one burst."""
    world = lab.world(_text(500), tick_ms=20, name="halved")
    _fill(world, lab.size // 3)
    half_s = min(10.0, lab.size / 3 / 1_750 * 0.95)  # all the time something waits
    world.run(half_s)
    world.take_policy(_text(250))
    world.run(2 * half_s)
    world.take_policy(_text(1_000))
    world.run(3 * half_s)
    watch = world.senders.watches["provider:p"]
    findings.offered += sum(stream.offered for stream in world.clients.streams)
    findings.most("halved limit: over the integral + burst", world.excess(), 0.001)
    findings.least("halved limit: share of the integral used", watch.sent / watch.allowed, 0.99)


def _senders(lab: Lab, findings: Findings) -> None:
    """Four senders share a rate, and the tenants' shares are those of one sender."""
    shares = {}
    for count in (1, 4):
        world = lab.world(_text(500, count), tick_ms=20, name="senders")
        stream = _fill(world, lab.size // 3)
        seconds = min(60.0, lab.size / 3 / 3 / (500 * 5 / 8) * 0.9)
        world.run(seconds)
        findings.offered += stream.offered
        sent = Counter(m.kind.tenant for m in world.ledger.messages if m.started_at is not None)
        shares[count] = {name: sent[name] / sent.total() for name in "abc"}
        if count == 4:
            findings.most("four senders: over burst, any window", world.excess(), 0.001)
            findings.least("four senders: share of capacity used", sent.total() / (500 * seconds), 0.999)
    apart = max(abs(shares[4][name] - shares[1][name]) for name in "abc")
    findings.most("four senders: shares apart from those of one", apart, 0.01)


def _clock(lab: Lab, findings: Findings) -> None:
    """The server's clock rules: a process that runs an hour ahead, then behind, changes nothing that was queued."""
    world = lab.world(_text(500), tick_ms=20, name="clock")
    stream = Stream([Kind(f"bank{n}", "otp") for n in range(20)], 300, end_s=30)
    world.offer(stream)
    for second, skew_ms in ((10.0, 3_600_000.0), (11.0, 0.0), (15.0, -3_600_000.0), (16.0, 0.0)):
        world.change(second, world.door, skew_ms=skew_ms)
    world.run(45)
    findings.offered += stream.offered
    start = world.start_at
    honest = [m for m in world.ledger.messages if not 15_000 <= m.accepted_at - start <= 16_100]
    expired = sum(1 for m in honest if world.end_of(m) == "expired")
    findings.most("clock jump: others expired", expired, 0)
    findings.most("clock jump: over burst, any window", world.excess(), 0.001)
    refused = world.series.total("refused otp", 0, 10) + world.series.total("refused otp", 17, 30)
    findings.most("clock jump: refused outside of it", refused, 0)
