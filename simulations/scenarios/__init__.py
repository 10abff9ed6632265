"""The scenarios, each with the numbers that it must reach (scheduling.md section 4, design.md section 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from simulations.measure import Findings
from simulations.scenarios import (
    also,
    capacity,
    crashes,
    destination,
    flood,
    outages,
    overload,
    refusals,
    surge,
    tenants,
)
from simulations.world import Lab


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario. `server`: it needs the real scripts on a server."""

    number: int
    title: str
    play: Callable[[Lab], Findings]
    server: bool = False


SCENARIOS: Mapping[int, Scenario] = {
    one.number: one
    for one in (
        Scenario(1, "OTP under a flood of marketing", flood.run),
        Scenario(2, "noisy tenant beside quiet ones", tenants.noisy),
        Scenario(3, "weights, and a reload of weights", tenants.weights),
        Scenario(4, "10,000 equal tenants", tenants.equals),
        Scenario(5, "route down for 60 s", outages.down),
        Scenario(6, "slow destination", destination.slow_destination),
        Scenario(7, "threefold OTP overload", overload.threefold),
        Scenario(8, "capacity falls to a fifth", capacity.falls),
        Scenario(9, "obedient clients", overload.obedient),
        Scenario(10, "refusing carrier, hostile clients", refusals.refusals),
        Scenario(11, "killed senders and doors", crashes.kills),
        Scenario(12, "index lost", crashes.flush, server=True),
        Scenario(13, "surge from 1 to 100", surge.surge),
        Scenario(14, "silent carrier", outages.silent),
        Scenario(15, "limit halved, four senders, clock jump", also.also),
    )
}
