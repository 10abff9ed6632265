"""5, 14: a route that goes down, and a carrier that falls silent while its bind stays up."""

from __future__ import annotations

from collections import Counter

from simulations.measure import Findings, quantile
from simulations.scenarios.policies import limit, policy, provider
from simulations.traffic import Kind, Stream
from simulations.world import Lab

_BANKS = [Kind(f"bank{n}", "otp") for n in range(20)]
_DOWN_S, _UP_S, _END_S = 20.0, 80.0, 110.0
DETECTED_S = 2.0


def down(lab: Lab) -> Findings:
    """The only session of a 500/s route drops for 60 s under OTP 100/s and a queue of marketing.

    Its ramp starts where the codes fit: 0.3 x 500/s x their floor of 6/7 is 129/s. From 0.25 it would be 107/s, and one
    seed in twenty brings more than that in the first second.
    """
    rate, otp_rate, burst = 500, 100, 100
    carrier = {**provider(None, limits=limit(rate, burst)), "ramp": {"start": 0.3}}
    world = lab.world(policy(providers={"p": carrier}), tick_ms=20)
    session = world.senders.sessions[0]
    otp = Stream(_BANKS, otp_rate, end_s=_END_S)
    amount = max(rate * 40, lab.size - int(otp_rate * _END_S))
    flood = Stream([Kind("shop", "marketing")], 10_000, amount=amount, pattern="even")
    world.offer(otp, flood)
    world.at(_DOWN_S, lambda: world.tell(world.senders.drop(session, world.clock.at)))
    world.at(_UP_S, lambda: world.tell(world.senders.bind(session, world.clock.at)))
    world.run(_END_S)
    findings = Findings(offered=otp.offered + flood.offered)
    findings.keep("down", world.told())
    down_at, up_at = world.start_at + _DOWN_S * 1000, world.start_at + _UP_S * 1000
    offered = world.series.total("offered otp", int(_DOWN_S), int(_DOWN_S + DETECTED_S))
    after = world.waits(lambda message: message.kind.class_name == "otp" and message.accepted_at > up_at + 1000)
    refused_at = min(
        (at for (name, _), at in world.door.first_refused_at.items() if name == "otp"), default=float("inf")
    )
    causes = {(kind, cause) for _, kind, _, cause in world.door.refusals if cause == "paused"}
    findings.most("over burst, any window", world.excess(), 0.001)
    findings.most("OTP expired over those of 2 s", world.ended("expired", "otp") / offered, 1.05)
    findings.most("refuses after, s", (refused_at - down_at) / 1000, DETECTED_S + 0.1)
    findings.least("refusals name the pause", len(causes & {("provider", "paused"), ("session", "paused")}), 1)
    findings.most("OTP p99 from 1 s after the return, ms", quantile(after, 0.99), 50)
    findings.most("OTP refused after the return", world.series.total("refused otp", int(_UP_S + 1)), 0)
    return findings


def silent(lab: Lab) -> Findings:
    """The carrier answers nothing for 40 s, bind up: the door closes soon and opens again; nothing more is promised."""
    unit = lab.size / 100_000
    rate, otp_rate = 500 * unit, 300 * unit
    silent_s, back_s, end_s = 20.0, 60.0, 90.0
    window = max(10, int(100 * unit))
    text = policy(providers={"p": provider(rate, burst=max(10, int(rate / 10)), window=window)})
    world = lab.world(text, tick_ms=40)
    otp = Stream(_BANKS, otp_rate, end_s=end_s)
    flood = Stream([Kind("shop", "marketing")], 10_000 * unit, amount=int(70_000 * unit), pattern="even")
    world.offer(otp, flood)
    carrier = world.carriers["p"]
    world.change(silent_s, carrier, silent=True)
    world.change(back_s, carrier, silent=False)
    world.run(back_s)
    refusals = Counter(world.door.refusals)
    world.run(end_s)
    findings = Findings(offered=otp.offered + flood.offered)
    findings.keep("silent", world.told())
    silent_at, back_at = world.start_at + silent_s * 1000, world.start_at + back_s * 1000
    refused_at = min(
        (at for (name, _), at in world.door.first_refused_at.items() if name == "otp"), default=float("inf")
    )
    expired = [m for m in world.ledger.messages if m.kind.class_name == "otp" and world.end_of(m) == "expired"]
    before = sum(1 for m in world.ledger.messages if silent_at - 100 < m.accepted_at <= refused_at)
    late = [m for m in expired if refused_at < m.accepted_at < back_at]
    by_carrier = sum(n for (_, kind, _, _), n in refusals.items() if kind in ("provider", "session"))
    findings.most("refuses after, s", (refused_at - silent_at) / 1000, 5.5)
    findings.least("refusals that name the carrier", by_carrier / max(1, refusals.total()), 0.9)
    findings.most("expired of those accepted before", len(expired) - len(late), before)
    findings.most("expired that were accepted later", len(late) / max(1, otp_rate * (back_s - silent_s)), 0.01)
    opened = world.series.total("accepted otp", int(back_s + 12), int(end_s))
    offered = world.series.total("offered otp", int(back_s + 12), int(end_s))
    findings.least("accepted from 12 s after the return", opened / offered, 0.999)
    broken = sum(1 for m in expired if m.accepted_at >= back_at)
    findings.most("expired after the return", broken / (otp_rate * (end_s - back_s)), 0.001)
    findings.most("over burst, any window", world.excess(), 0.001)
    return findings
