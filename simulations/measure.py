"""What a simulation counts: limits over all windows, series per second, quantiles, and named checks."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Check:
    """A number that must be reached: `value` at most (`<=`) or at least (`>=`) the `bound`."""

    name: str
    relation: str
    bound: float
    value: float

    @property
    def passed(self) -> bool:
        """Whether it is; not a number never is."""
        return self.value <= self.bound if self.relation == "<=" else self.value >= self.bound


def most(name: str, value: float, bound: float) -> Check:
    """A value that must not be larger."""
    return Check(name, "<=", float(bound), float(value))


def least(name: str, value: float, bound: float) -> Check:
    """A value that must not be smaller."""
    return Check(name, ">=", float(bound), float(value))


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest value that so large a share does not exceed; 0 of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def jain(values: Sequence[float]) -> float:
    """Jain's fairness index: 1 where all are equal."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


class LimitWatch:
    """The largest excess of what left over rate x time, over all windows: at most the burst (I18).

    What left until any instant, less the integral of the rate, may rise by the burst above any earlier value.
    """

    def __init__(self, rate_per_s: float, burst: int, at: float) -> None:
        self.rate_per_s = rate_per_s
        self.burst = burst
        self.sent = 0
        self.allowed = 0.0
        self.excess = 0.0
        self._at = at
        self._lowest = 0.0

    def change(self, rate_per_s: float, burst: int, at: float) -> None:
        """Another limit from now on; the larger of the two bursts bounds windows over the change."""
        self._advance(at)
        self.rate_per_s = rate_per_s
        self.burst = max(self.burst, burst)

    def add(self, at: float, segments: int) -> None:
        """Segments that left at an instant."""
        self._advance(at)
        self._lowest = min(self._lowest, self.sent - self.allowed)
        self.sent += segments
        self.excess = max(self.excess, self.sent - self.allowed - self._lowest)

    def _advance(self, at: float) -> None:
        self.allowed += self.rate_per_s * (at - self._at) / 1000
        self._at = at


@dataclass(slots=True)
class Series:
    """Counts per second of simulated time, by name."""

    counts: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    levels: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))

    def count(self, name: str, second: int, amount: int = 1) -> None:
        """So many more in that second."""
        self.counts[name][second] += amount

    def level(self, name: str, second: int, value: float) -> None:
        """How high something stood in that second."""
        self.levels[name][second] = value

    def total(self, name: str, start_s: int = 0, end_s: int = 1 << 40) -> int:
        """The sum over some seconds."""
        return sum(amount for second, amount in self.counts[name].items() if start_s <= second < end_s)


@dataclass(slots=True)
class Findings:
    """What one run of a scenario came to."""

    checks: list[Check] = field(default_factory=list)
    notes: dict[str, float] = field(default_factory=dict)
    series: dict[str, Series] = field(default_factory=dict)
    offered: int = 0

    def keep(self, name: str, series: Series) -> None:
        """A series for the pictures."""
        self.series[name] = series

    def most(self, name: str, value: float, bound: float) -> None:
        """Adds a check of an upper bound."""
        self.checks.append(most(name, value, bound))

    def least(self, name: str, value: float, bound: float) -> None:
        """Adds a check of a lower bound."""
        self.checks.append(least(name, value, bound))

    def foretold(self, median_ms: float, share: float) -> None:
        """Where half of the waits are 5 s or longer, 90 % must have been foretold within 30 %."""
        self.notes["median wait s"] = median_ms / 1000
        self.notes["foretold share"] = share
        if median_ms >= 5_000:
            self.least("starts foretold within 30 %", share, 0.9)

    @property
    def failed(self) -> list[Check]:
        """The checks that did not reach their number."""
        return [check for check in self.checks if not check.passed]
