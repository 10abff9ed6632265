"""1: one-time passwords under a flood of marketing, behind one route and behind two routes of one carrier."""

from __future__ import annotations

from typing import Any

from simulations.measure import Findings, quantile
from simulations.scenarios.policies import limit, policy, provider
from simulations.traffic import Kind, Stream
from simulations.world import Lab

RATE, OTP_RATE = 500, 50
_ROUTES = {
    "codes": {"match": {"classes": ["otp"]}, "provider": "p", "limits": limit(100, 20)},
    "offers": {"match": {"classes": ["marketing"]}, "provider": "p", "limits": limit(RATE, 50)},
}


def run(lab: Lab) -> Findings:
    """OTP 50/s beside size messages of marketing on 500/s: OTP does not notice, and nothing of the rate is wasted."""
    findings = Findings()
    _flood(lab, findings, "one route", {})
    _flood(lab, findings, "two routes", {"routes": _ROUTES})
    return findings


def _flood(lab: Lab, findings: Findings, name: str, sections: dict[str, Any]) -> None:
    seconds = int(min(240, lab.size * 0.55 / 2 / RATE))
    world = lab.world(policy(providers={"p": provider(RATE)}, **sections), name=name)
    otp = Stream([Kind(f"bank{n}", "otp") for n in range(20)], OTP_RATE)
    flood = Stream([Kind("shop", "marketing")], 20_000, amount=lab.size // 2 - OTP_RATE * seconds, pattern="even")
    world.offer(otp, flood)
    world.run(seconds)
    waits = world.waits(lambda message: message.kind.class_name == "otp")
    findings.offered += otp.offered + flood.offered
    findings.keep(name, world.told())
    findings.most(f"{name}: OTP queue p99, ms", quantile(waits, 0.99), 20)
    findings.most(f"{name}: OTP queue max, ms", max(waits), 50)
    findings.most(f"{name}: OTP refused", world.series.total("refused otp"), 0)
    sent = sum(1 for message in world.ledger.messages if message.started_at is not None)
    findings.least(f"{name}: share of capacity used", sent / (RATE * seconds), 0.999)
    findings.most(f"{name}: over burst, any window", world.excess(), 0.001)
    findings.foretold(*world.predictions(lambda message: message.kind.class_name == "marketing"))
