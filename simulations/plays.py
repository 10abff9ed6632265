"""One run of one scenario, in a process that has nothing else to do, and its result as plain data."""

from __future__ import annotations

import gc
import resource
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from simulations.index import Engine, ModelEngine, ScriptsEngine
from simulations.measure import Findings
from simulations.mutations import mutated
from simulations.scenarios import SCENARIOS
from simulations.stores import valkey
from simulations.world import Lab


@dataclass(frozen=True, slots=True)
class Play:
    """What to run: `mutation` names a rule of the scripts that is broken for it."""

    scenario: int
    seed: int
    size: int
    engine: str = "scripts"
    mutation: str | None = None

    @property
    def key(self) -> str:
        """Names the run among others of the same code."""
        return f"{self.scenario}/{self.seed}/{self.size}/{self.engine}/{self.mutation or '-'}"


@dataclass(slots=True)
class Result:
    """What came of it; checks as (name, relation, bound, value)."""

    key: str
    scenario: int
    seed: int
    size: int
    checks: list[tuple[str, str, float, float]] = field(default_factory=list)
    notes: dict[str, float] = field(default_factory=dict)
    offered: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0

    def as_object(self) -> dict[str, Any]:
        """For a results file."""
        return asdict(self)


def findings_of(play: Play) -> Findings:
    """Plays it, with everything that was measured on the way."""
    scenario = SCENARIOS[play.scenario]
    with ExitStack() as stack:
        if gc.isenabled():  # a ledger keeps every message to the end: looking through them frees nothing
            gc.disable()
            stack.callback(gc.enable)
        stack.enter_context(mutated(play.mutation))
        engine: Engine
        if play.engine == "model":
            if scenario.server:
                raise ValueError(f"scenario {play.scenario} needs a server")
            engine = ModelEngine()
        else:
            engine = ScriptsEngine(stack.enter_context(valkey()))
        return scenario.play(Lab(engine, play.seed, play.size))


def run(play: Play) -> Result:
    """Plays it and keeps what a table needs."""
    wall, cpu = time.perf_counter(), _cpu_s()
    found = findings_of(play)
    return Result(
        play.key,
        play.scenario,
        play.seed,
        play.size,
        [(check.name, check.relation, check.bound, check.value) for check in found.checks],
        found.notes,
        found.offered,
        round(time.perf_counter() - wall, 2),
        round(_cpu_s() - cpu, 2),
    )


def _cpu_s() -> float:
    """Processor seconds of this process and of the servers that it started and ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
