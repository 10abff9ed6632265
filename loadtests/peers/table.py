"""Medians of the rounds and the one table that is printed."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from loadtests.peers.loads import Came, Load

_NUMBERS: Final = (
    "accepted_per_s", "carrier_per_s", "cpu_s_per_1k", "http_ms_p50", "http_ms_p99", "memory_mb", "others_cores",
)  # fmt: skip
_COUNTS: Final = ("accepted", "refused", "window_max", "callbacks", "missing")
_HEAD: Final = (
    "load", "gateway", "accepted/s", "carrier/s", "CPU s per 1,000", "HTTP ms p50 / p99", "to carrier, ms p50 / p99",
    "refused", "window", "MiB", "not at the carrier", "others, cores", "rounds",
)  # fmt: skip


def medians(runs: Sequence[Came], loads: Sequence[Load], gateways: Iterable[str]) -> list[Came]:
    """One row per load and gateway that was run."""
    found = []
    for load in loads:
        for name in gateways:
            rows = [one for one in runs if (one.gateway, one.load) == (name, load.name)]
            if rows:
                found.append(median([one for one in rows if not one.why_not] or rows))
    return found


def median(rows: Sequence[Came]) -> Came:
    """The median of each figure by itself; `rounds` says how many there were."""
    first = rows[0]
    if first.why_not:
        return first
    figures: dict[str, Any] = {name: statistics.median(values) for name in _NUMBERS if (values := _given(rows, name))}
    figures |= {name: int(statistics.median(getattr(one, name) for one in rows)) for name in _COUNTS}
    classes = sorted({name for one in rows for name in one.waits_ms})
    waits = {
        name: {
            part: statistics.median(one.waits_ms[name][part] for one in rows if name in one.waits_ms)
            for part in ("count", "p50", "p99", "max")
        }
        for name in classes
    }
    parts = {
        part: statistics.median(one.cpu_s_per_1k_by_part[part] for one in rows) for part in first.cpu_s_per_1k_by_part
    }
    return replace(first, **figures, waits_ms=waits, cpu_s_per_1k_by_part=parts, rounds=len(rows))


def _given(rows: Sequence[Came], name: str) -> list[float]:
    return [value for one in rows if (value := getattr(one, name)) is not None]


def markdown(about: dict[str, Any], loads: Sequence[Load], rows: Sequence[Came]) -> str:
    """The table with what it was made of above it."""
    lines = [
        f"{about['at']}, commit {about['commit']}, {about['machine']}; carrier, client and sink in {about['tools']}; "
        f"{about['rounds']} rounds, {about['count']:,} messages, {about['callbacks']} callback(s) each.",
        "",
        _row(_HEAD),
        _row(["---"] * len(_HEAD)),
    ]
    by_name = {load.name: load for load in loads}
    lines += [_row(_cells(one, by_name[one.load])) for one in rows]
    told = [one for one in rows if one.cpu_s_per_1k_by_part]
    if told:
        parts = list(told[0].cpu_s_per_1k_by_part)
        lines += ["", "CPU seconds per 1,000 by part:", "", _row(["load", *parts]), _row(["---"] * (len(parts) + 1))]
        lines += [_row([one.load, *(f"{one.cpu_s_per_1k_by_part[part]:.2f}" for part in parts)]) for one in told]
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cells(one: Came, load: Load) -> list[str]:
    if one.why_not:
        return [one.load, one.gateway, one.why_not, *[""] * (len(_HEAD) - 3)]
    waits = "; ".join(
        f"{name} {ms['p50']:,.0f} / {ms['p99']:,.0f}" for name, ms in one.waits_ms.items() if ms["count"] > 0
    )
    http = "-" if one.http_ms_p50 is None else f"{one.http_ms_p50:,.0f} / {one.http_ms_p99:,.0f}"
    use = (
        f"{one.carrier_per_s:,.0f} of {load.capacity_per_s:,.0f}/s"
        if load.capacity_per_s
        else f"at most {one.window_max}"
    )
    return [
        one.load, one.gateway, f"{one.accepted_per_s:,.0f}", f"{one.carrier_per_s:,.0f}", f"{one.cpu_s_per_1k:.2f}",
        http, waits, f"{one.refused:,}", use, f"{one.memory_mb:,.0f}", f"{one.missing:,}", f"{one.others_cores:.2f}",
        str(one.rounds),
    ]  # fmt: skip
