"""The table of a simulation: per scenario and check the worst value over all seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from simulations.plays import Result
from simulations.scenarios import SCENARIOS


@dataclass(slots=True)
class Row:
    """One check of one scenario over its seeds."""

    scenario: int
    check: str
    size: int
    relation: str
    bound: float
    worst: float
    seeds: int
    passed: bool

    def as_object(self) -> dict[str, Any]:
        """For a results file."""
        return asdict(self)


def rows(results: Sequence[Result]) -> list[Row]:
    """One row per scenario, size and check, in order; the seed nearest to (or farthest over) its bound counts."""
    found: dict[tuple[int, int, str], Row] = {}
    for result in sorted(results, key=lambda one: (one.scenario, one.size, one.seed)):
        for name, relation, bound, value in result.checks:
            passed = value <= bound if relation == "<=" else value >= bound
            row = found.get((result.scenario, result.size, name))
            if row is None:
                found[result.scenario, result.size, name] = Row(
                    result.scenario, name, result.size, relation, bound, value, 1, passed
                )
                continue
            row.seeds += 1
            row.passed = row.passed and passed
            # Bounds may differ from seed to seed: the distance to them counts.
            worse = value - bound > row.worst - row.bound if relation == "<=" else value - bound < row.worst - row.bound
            if worse:
                row.worst, row.bound = value, bound
    return list(found.values())


def failures(results: Sequence[Result]) -> list[str]:
    """The checks that did not reach their number, with bound and value."""
    return [
        f"{row.scenario}: {row.check} {number(row.worst)} (bound {row.relation} {number(row.bound)})"
        for row in rows(results)
        if not row.passed
    ]


def number(value: float) -> str:
    """A number as a table shows it."""
    if not math.isfinite(value):
        return "never"
    if value == int(value) and abs(value) < 1e12:
        return f"{int(value):,}"
    return f"{value:.4g}" if abs(value) < 1_000 else f"{value:,.0f}"


def show(table: Sequence[Row]) -> str:
    """The table as text."""
    width = max((len(row.check) for row in table), default=10)
    lines = [f"    {'check':{width}}  {'messages':>9}     {'bound':>9}  {'worst':>9}  seeds"]
    last = None
    for row in table:
        if row.scenario != last:
            last = row.scenario
            lines.append(f"{row.scenario:2}  {SCENARIOS[row.scenario].title}")
        lines.append(
            f"    {row.check:{width}}  {row.size:9,}  {row.relation} {number(row.bound):>9}  {number(row.worst):>9}"
            f"  {row.seeds:5}  {'ok' if row.passed else 'NOT REACHED'}"
        )
    return "\n".join(lines)
