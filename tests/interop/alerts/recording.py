"""What a gateway showed over a while, a sample a second, as the series notation of promtool.

One second of the recording is played as one minute: what takes an hour in life fits into a minute or two here. Rates
are therefore a sixtieth of what they were; no rule compares a rate with a constant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yaml"
FOLDER = Path(__file__).resolve().parent
UP = 'up{job="sluicegate",instance="127.0.0.1:8081"}'
_DIGITS = 5


def rules() -> dict[str, dict[str, Any]]:
    """Every rule by its name."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def wanted() -> set[str]:
    """The metrics that the rules look at."""
    return {name for rule in rules().values() for name in re.findall(r"\b(?:sluicegate|process)_\w+", rule["expr"])}


class Recording:
    """Series by their written name; a sample that is not there is None."""

    def __init__(self) -> None:
        self.length = 0
        self._series: dict[str, list[float | None]] = {}
        self._wanted = wanted()

    def take(self, samples: Mapping[tuple[str, frozenset[tuple[str, str]]], float] | None) -> None:
        """One look; None where the page did not come."""
        self._append(UP, 0.0 if samples is None else 1.0)
        for (name, labels), value in (samples or {}).items():
            if name in self._wanted and not math.isnan(value):
                self._append(_written(name, labels), float(f"{value:.{_DIGITS}g}") if name != _START else value)
        self.length += 1

    def _append(self, series: str, value: float) -> None:
        values = self._series.setdefault(series, [])
        values += [None] * (self.length - len(values))
        values.append(value)

    def lines(self) -> Iterator[str]:
        """`series TAB values`; counters that never moved from 0 tell nothing and are left out."""
        for series, values in sorted(self._series.items()):
            if "_total{" not in series or any(values):
                yield f"{series}\t{notation(values)}"

    def write(self, path: Path) -> None:
        """Keeps it as text."""
        path.write_text(f"# {self.length}\n" + "".join(f"{line}\n" for line in self.lines()), encoding="utf-8")


_START = "process_start_time_seconds"


def _written(name: str, labels: frozenset[tuple[str, str]]) -> str:
    has = dict(labels) | ({"job": "sluicegate"} if name == _START else {})
    inner = ",".join(f'{label}="{value}"' for label, value in sorted(has.items()))
    return f"{name}{{{inner}}}"


def notation(values: list[float | None]) -> str:
    """promtool's: `a+bxn` for n steps after a, `_xn` for n samples that are missing."""
    words: list[str] = []
    at = 0
    while at < len(values):
        first = values[at]
        end = at + 1
        while end < len(values) and values[end] == first:
            end += 1
        count = end - at
        if first is None:
            words.append(f"_x{count}")
        else:
            words.append(f"{first:.15g}" if count == 1 else f"{first:.15g}+0x{count - 1}")
        at = end
    return " ".join(words)


def read(path: Path) -> tuple[int, dict[str, str]]:
    """(length, values by series) of a recording."""
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    return int(head.removeprefix("# ")), dict(line.split("\t") for line in lines)
