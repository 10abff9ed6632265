"""6: one slow destination and a tenant that queues for it and for others."""

from __future__ import annotations

from simulations.measure import Findings, quantile
from simulations.scenarios.policies import limit, policy, provider
from simulations.traffic import Kind, Stream
from simulations.world import Lab

_SLOW_RATE, _SLOW_BURST = 10, 5


def slow_destination(lab: Lab) -> Findings:
    """A destination that takes 10/s; a fifth of all waits for it, from the tenant that also sends elsewhere."""
    rate, other_rate = 2_000, 1_600
    slow = Kind("a", "marketing", to="+447700900000")
    other = Kind("a", "marketing")
    world = lab.world(
        policy(
            providers={"p": provider(rate, burst=200, window=400)},
            destinations={"slow": {"prefixes": ["+44"], "limits": limit(_SLOW_RATE, _SLOW_BURST)}},
        )
    )
    seconds = lab.size * 0.8 / other_rate
    queued = Stream([slow], 20_000, amount=min(lab.size // 5, 60_000), pattern="even")
    others = Stream([other], other_rate, end_s=seconds)
    world.offer(queued, others)
    world.run(seconds)
    findings = Findings(offered=queued.offered + others.offered)
    findings.keep("destination", world.told())
    waits = world.waits(lambda message: message.kind == other)
    sent = sum(1 for message in world.ledger.messages if message.kind == slow and message.started_at is not None)
    findings.most("other destinations p99, ms", quantile(waits, 0.99), 20)
    findings.most("slow one over rate x t + burst", sent - (_SLOW_RATE * seconds + _SLOW_BURST), 0)
    findings.least("share of the slow one's rate used", sent / (_SLOW_RATE * seconds), 0.99)
    findings.most("refused", world.series.total("refused marketing"), 0)
    findings.most("over burst, any window", world.excess(), 0.001)
    findings.foretold(*world.predictions(lambda message: message.kind == slow))
    return findings
