"""13: a tenant, or the number of tenants, that surges from 1 to 100: what was promised to the others is kept."""

from __future__ import annotations

from simulations.measure import Findings, quantile
from simulations.scenarios.policies import limit, policy, provider
from simulations.traffic import Kind, Stream
from simulations.world import Lab

_SURGE_S, _END_S = 20.0, 50.0
_FLOWS = 100


def surge(lab: Lab) -> Findings:
    """Hundredfold traffic over a hundred flows of one tenant; then a hundred tenants where there was one."""
    findings = Findings()
    _flows(lab, findings)
    _tenants(lab, findings)
    return findings


def _flows(lab: Lab, findings: Findings) -> None:
    """Twenty quiet tenants at 60 % of their share, two that are always over theirs; then one opens 100 flows."""
    rate = lab.size / 230
    applications = {f"app{n}": {"limits": limit(100_000, 100_000)} for n in range(_FLOWS)}
    text = policy(
        providers={"p": provider(rate, burst=max(10, int(rate / 10)), window=1_000)},
        tenants={"surging": {"applications": applications}},
    )
    quiet = [Kind(f"quiet{n}", "otp") for n in range(20)]
    busy = [Kind(f"busy{n}", "otp") for n in range(2)]
    surging = [Kind("surging", "otp", application=f"app{n}") for n in range(_FLOWS)]
    share = rate / 23
    p99 = {}
    for name in ("calm", "flows"):
        world = lab.world(text, tick_ms=40, name="flows")
        streams = [
            Stream(quiet, 20 * share * 0.6, end_s=_END_S),
            Stream(busy, 2 * share * 6, end_s=_END_S),
            Stream(surging[:1], share / 3, end_s=_END_S),
        ]
        if name == "flows":
            streams.append(Stream(surging, 33 * share, start_s=_SURGE_S, end_s=_END_S))
        world.offer(*streams)
        world.run(_END_S + 12)
        p99[name] = quantile(world.waits(lambda message: message.kind.tenant.startswith("quiet")), 0.99)
        findings.offered += sum(stream.offered for stream in streams)
    others = [message for message in world.ledger.messages if message.kind.tenant != "surging"]
    accepted = sum(1 for message in others if message.kind.tenant.startswith("quiet"))
    expired = sum(1 for message in others if world.end_of(message) == "expired")
    findings.keep("flows", world.told())
    findings.most("100 flows: others expired after accept", expired / len(others), 0.001)
    findings.most("100 flows: share of the quiet refused", 1 - accepted / streams[0].offered, 0.001)
    findings.most("100 flows: quiet p99 over calm, ms", p99["flows"] - p99["calm"], 2_000 / rate * 20 + 40)
    findings.most("100 flows: over burst, any window", world.excess(), 0.001)


def _tenants(lab: Lab, findings: Findings) -> None:
    """One tenant at twice the capacity with 5 s of promises open; then 99 others want as much for 30 s."""
    rate = lab.size / 360
    text = policy(providers={"p": provider(rate, burst=max(10, int(rate / 10)), window=1_000)})
    world = lab.world(text, tick_ms=40, name="tenants")
    first = Stream([Kind("first", "otp")], 2 * rate, end_s=_END_S)
    surge = Stream([Kind(f"t{n}", "otp") for n in range(_FLOWS - 1)], 2 * rate, start_s=_SURGE_S, end_s=_END_S)
    world.offer(first, surge)
    world.run(_END_S + 12)
    findings.offered += first.offered + surge.offered
    findings.keep("tenants", world.told())
    late = [m for m in world.ledger.messages if world.end_of(m) == "expired"]
    findings.most("100 tenants: expired after accept", len(late) / len(world.ledger.messages), 0.001)
    ours = [
        m
        for m in world.ledger.messages
        if m.kind.tenant == "first" and m.accepted_at <= world.start_at + _SURGE_S * 1000
    ]
    lost = sum(1 for m in ours if world.end_of(m) == "expired")
    findings.most("100 tenants: promises to the first broken", lost / len(ours), 0.001)
    sent = world.series.total("sent otp", int(_SURGE_S) + 2, int(_END_S))
    findings.least("100 tenants: capacity used", sent / ((_END_S - _SURGE_S - 2) * rate), 0.99)
