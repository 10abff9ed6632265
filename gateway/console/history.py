"""The last quarter of an hour of the whole installation, for the console's charts.

A ring in the memory of the process that serves the operators' port, filled from what all processes tell with their
heartbeats. Not a table: a chart of the last minutes is worth no writes on the ledger, and whoever needs more than a
quarter of an hour, or what was before a restart, has Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.figures import ADMITTED, AGE_S, ANSWERS, EXPIRED, REFUSED, SENT

STEP_MS: Final = 5_000
STEPS: Final = 180
_SILENT_MAX_MS: Final = 60_000  # what a process did in a longer silence cannot be put anywhere
_KEYS_MAX: Final = 2_000
RATES: Final = {"admitted": ADMITTED, "sent": SENT, "refused": REFUSED, "expired": EXPIRED}


@dataclass(frozen=True, slots=True)
class Told:
    """What one process told with its last heartbeat; `figures` as `gateway.figures.read` makes them."""

    process_id: int
    started_at: int
    figures: Mapping[str, Any]


@dataclass(slots=True)
class _Step:
    sums: dict[str, float] = field(default_factory=dict)
    now: dict[str, float] = field(default_factory=dict)


class History:
    """Steps of five seconds; counters are spread evenly over the time between two heartbeats."""

    def __init__(self) -> None:
        self._steps: dict[int, _Step] = {}
        self._last: dict[int, tuple[int, Mapping[str, float]]] = {}
        self._since_at: int | None = None
        self._settled_at = 0
        self.now: dict[str, float] = {}

    @property
    def since_at(self) -> int | None:
        """When this process began to look (UTC ms); nothing is known of before."""
        return self._since_at

    def take(self, told: Iterable[Told], now_at: int) -> None:
        """Books one look at all live processes."""
        if self._since_at is None:
            self._since_at = now_at
        alive: dict[int, tuple[int, Mapping[str, float]]] = {}
        gauges: dict[str, float] = {}
        for one in told:
            at, sums = int(one.figures["at"]), one.figures["sums"]
            before = self._last.get(one.process_id)
            if before is None and one.started_at >= self._since_at:
                before = (one.started_at, {})
            if before is not None and before[0] < at <= before[0] + _SILENT_MAX_MS:
                self._spread(before, (at, sums))
            self._gauge(at, one.figures["now"])
            for key, value in one.figures["now"].items():
                gauges[key] = max(gauges.get(key, value), value)
            alive[one.process_id] = (at, sums)
        self._last = alive
        self.now = gauges
        self._settled_at = min((at for at, _ in alive.values()), default=now_at)
        oldest = now_at // STEP_MS - STEPS
        self._steps = {step: kept for step, kept in self._steps.items() if step > oldest}

    def _spread(self, before: tuple[int, Mapping[str, float]], after: tuple[int, Mapping[str, float]]) -> None:
        (from_at, old), (to_at, new) = before, after
        grown = {key: value - old.get(key, 0.0) for key, value in new.items() if value > old.get(key, 0.0)}
        for step in range(from_at // STEP_MS, (to_at - 1) // STEP_MS + 1) if grown else ():
            share = (min(to_at, (step + 1) * STEP_MS) - max(from_at, step * STEP_MS)) / (to_at - from_at)
            sums = self._steps.setdefault(step, _Step()).sums
            for key, value in grown.items():
                if key in sums or len(sums) < _KEYS_MAX:
                    sums[key] = sums.get(key, 0.0) + value * share

    def _gauge(self, at: int, gauges: Mapping[str, float]) -> None:
        kept = self._steps.setdefault(at // STEP_MS, _Step()).now
        for key, value in gauges.items():
            kept[key] = max(kept.get(key, value), value)

    def rate_per_s(self, key: str, over_s: int = 15) -> float | None:
        """How much per second of late; None while nothing is known. `key` counts with all that stands below it."""
        steps = self._settled_steps()[-max(1, over_s * 1000 // STEP_MS) :]
        if not steps:
            return None
        return sum(self._sum(step, key) for step in steps) * 1000 / (len(steps) * STEP_MS)

    def total(self, prefix: str) -> dict[str, float]:
        """What stands below a prefix (`what/which`), summed over the ring: detail -> how many."""
        found: dict[str, float] = {}
        for step in self._steps.values():
            for key, value in step.sums.items():
                if key.startswith(prefix + "/"):
                    detail = key[len(prefix) + 1 :]
                    found[detail] = found.get(detail, 0.0) + value
        return found

    def series(self, classes: Iterable[str]) -> dict[str, Any]:
        """Columns for charts: instants (UTC s), per class its rates per second and the age of its oldest (s)."""
        steps = self._settled_steps()
        by_class: dict[str, dict[str, list[float | None]]] = {}
        for name in classes:
            columns: dict[str, list[float | None]] = {
                label: [round(self._sum(step, f"{key}/{name}") * 1000 / STEP_MS, 3) for step in steps]
                for label, key in RATES.items()
            }
            ages = [self._steps[step].now.get(f"{AGE_S}/{name}") if step in self._steps else None for step in steps]
            by_class[name] = {**columns, "age_s": _carried(ages)}
        return {"step_s": STEP_MS // 1000, "at": [(step + 1) * STEP_MS // 1000 for step in steps], "classes": by_class}

    def _settled_steps(self) -> list[int]:
        """Steps that every live process has told all of, from the first whole one that was looked at."""
        if self._since_at is None:
            return []
        first = max(-(-self._since_at // STEP_MS), self._settled_at // STEP_MS - STEPS)
        return list(range(first, self._settled_at // STEP_MS))

    def _sum(self, step: int, key: str) -> float:
        kept = self._steps.get(step)
        if kept is None:
            return 0.0
        below = key + "/"
        return sum(value for name, value in kept.sums.items() if name == key or name.startswith(below))


def out_per_s(history: History, sessions: Iterable[str]) -> float | None:
    """What carriers answered on these sessions, submits per second of the last 15 s; None while nothing is known."""
    rates = [rate for name in sessions if (rate := history.rate_per_s(f"{ANSWERS}/{name}")) is not None]
    return sum(rates) if rates else None


def _carried(ages: list[float | None]) -> list[float | None]:
    """The queues are looked at every five seconds or less often: a step without a look has the value before it."""
    found: list[float | None] = []
    for age in ages:
        found.append(found[-1] if age is None and found else age)
    return found
