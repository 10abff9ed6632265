"""What `top` looks at: the status, what the counters moved by since the look before, and what holds most."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_SAMPLE: Final = re.compile(r"^sluicegate_(\w+?)\{(.*)\} (\S+)$")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_KEPT: Final = ("admissions_total", "segments_submitted_total", "expired_total", "submits_total", "callbacks_total")
_LAST: Final = (
    "receipt_inbox_depth", "callback_backlog", "receipt_coverage_ratio", "retry_share_ratio",
)  # fmt: skip
_ADMITTED: Final = frozenset({"accept", "defer"})
_REFUSED: Final = frozenset({"refuse", "slow_down"})
Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Counters:
    """Samples of one metrics page by family; `whole` where the page covers every process of the machine."""

    at_mono: float
    families: Mapping[str, Mapping[Labels, float]]
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Rates:
    """Events per second between two looks; `None` members where only one look was possible."""

    classes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    providers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    sessions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sight:
    """One look: `status` as `/admin/status` tells it, rates, and single gauges."""

    status: Mapping[str, Any]
    rates: Rates | None = None
    gauges: Mapping[str, float] = field(default_factory=dict)
    coverage: Mapping[str, float] = field(default_factory=dict)
    whole: bool = True

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        rates = None
        if self.rates is not None:
            rates = {"classes": dict(self.rates.classes), "providers": dict(self.rates.providers)}
            rates["sessions"] = dict(self.rates.sessions)
        return {**self.status, "rates": rates, **self.gauges, "receipt_coverage_ratio": dict(self.coverage)}


def read_page(page: str, at_mono: float) -> Counters:
    """The samples that `top` needs of a Prometheus page; lines it does not know are passed over."""
    families: dict[str, dict[Labels, float]] = {}
    whole = False
    for line in page.splitlines():
        found = _SAMPLE.match(line)
        if found is None or found[1] not in (*_KEPT, *_LAST):
            continue
        labels = frozenset(_LABEL.findall(found[2]))
        whole = whole or any(name == "worker" for name, _ in labels)
        if math.isnan(float(found[3])):  # a gauge that nobody has looked at yet
            continue
        families.setdefault(found[1], {})[labels] = float(found[3])
    return Counters(at_mono, families, whole)


def rates_between(before: Counters, after: Counters) -> Rates:
    """Rates per second; a counter that fell belongs to a process that was started again, and counts from zero."""
    seconds = max(1e-3, after.at_mono - before.at_mono)
    classes: dict[str, dict[str, float]] = {}
    providers: dict[str, dict[str, float]] = {}
    sessions: dict[str, dict[str, float]] = {}

    def add(table: dict[str, dict[str, float]], name: str | None, what: str, moved: float) -> None:
        if name is not None:
            row = table.setdefault(name, {})
            row[what] = round(row.get(what, 0.0) + moved / seconds, 2)

    for family in _KEPT:
        earlier = before.families.get(family, {})
        for labels, value in after.families.get(family, {}).items():
            last = earlier.get(labels, 0.0)
            moved = value - last if value >= last else value
            told = dict(labels)
            if family == "admissions_total":
                verdict = told.get("verdict", "")
                kind = "admitted" if verdict in _ADMITTED else "refused" if verdict in _REFUSED else "repeated"
                add(classes, told.get("class"), kind, moved)
            elif family == "segments_submitted_total":
                add(classes, told.get("class"), "sent", moved)
            elif family == "expired_total":
                add(classes, told.get("class"), "expired", moved)
            elif family == "submits_total":
                add(providers, told.get("provider"), told.get("outcome", ""), moved)
                add(sessions, told.get("session"), "answered", moved)
    return Rates(classes, providers, sessions)


def sight_of(status: Mapping[str, Any], before: Counters | None, after: Counters | None) -> Sight:
    """A sight from a status and up to two readings of the counters."""
    if after is None:
        return Sight(status)
    gauges = {
        name: max(after.families[name].values())
        for name in ("receipt_inbox_depth", "callback_backlog")
        if after.families.get(name)
    }
    coverage = {
        dict(labels)["provider"]: value
        for labels, value in after.families.get("receipt_coverage_ratio", {}).items()
        if "provider" in dict(labels)
    }
    rates = None if before is None else rates_between(before, after)
    return Sight(status, rates, gauges, coverage, after.whole)
