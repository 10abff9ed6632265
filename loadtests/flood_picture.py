"""The picture of docs/flood.md: how long codes took, what the flood was told, what the carrier got, by seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from loadtests.flood_evidence import Sides, code_latencies, percentile

ANSWERS = ((202, "202", "#1f6f43"), (503, "503", "#b8860b"), (429, "429", "#9a9a9a"))


def draw(settings: Sequence[tuple[str, float, Sides]], subtitle: str, path: Path) -> None:
    """One column per setting (name, bound of the codes' p99 in ms, what was written down)."""
    figure, axes = plt.subplots(3, len(settings), figsize=(6.5 * len(settings), 9), squeeze=False, sharex="col")
    for column, (name, bound_ms, sides) in enumerate(settings):
        begin_ns = min(call.began_ns for call in sides.calls)
        seconds = int((max(call.began_ns for call in sides.calls) - begin_ns) / 1e9) + 1
        _codes(axes[0][column], sides, begin_ns, bound_ms)
        axes[0][column].set_title(f"{name}: the carrier takes {sides.rate_per_s:g} a second", loc="left", fontsize=11)
        _told(axes[1][column], sides, begin_ns, seconds)
        _carrier(axes[2][column], sides, begin_ns, seconds)
        axes[2][column].set_xlabel("seconds since the flood began")
        axes[2][column].set_xlim(0, seconds)
    for row, label in enumerate(("tenant b: code, request\nto carrier, ms", "tenant a: answers,\nmessages a second", "at the carrier,\nsubmits a second")):  # fmt: skip # noqa: E501
        axes[row][0].set_ylabel(label)
    figure.suptitle(
        f"Tenant a floods marketing at ten times the rate; tenant b sends codes\n{subtitle}",
        x=0.01,
        ha="left",
        fontsize=11,
    )
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _codes(axis: Any, sides: Sides, begin_ns: int, bound_ms: float) -> None:
    found = code_latencies(sides)
    took = [ms for _, ms, _ in found]
    axis.scatter([(at - begin_ns) / 1e9 for at, _, _ in found], took, s=9, color="#1f4e8c", linewidths=0)
    p50, p99 = percentile(took, 0.5), percentile(took, 0.99)
    axis.axhline(bound_ms, color="#b01e1e", linewidth=1, linestyle="--", label=f"bound of p99: {bound_ms:g} ms")
    axis.axhline(p99, color="#1f4e8c", linewidth=1, label=f"p99: {p99:.0f} ms (p50: {p50:.0f} ms)")
    axis.set_ylim(0, max(bound_ms, max(took, default=0)) * 1.3)
    axis.legend(loc="upper right", fontsize=8, frameon=False, ncols=2)


def _told(axis: Any, sides: Sides, begin_ns: int, seconds: int) -> None:
    by_status: dict[int, Counter[int]] = {status: Counter() for status, _, _ in ANSWERS}
    for call in sides.calls:
        second = int((call.began_ns - begin_ns) / 1e9)
        by_status[202][second] += len(call.accepted)
        for status, _ in call.refused:
            by_status.setdefault(status, Counter())[second] += 1
    floor = [0] * seconds
    for status, label, colour in ANSWERS:
        heights = [by_status[status][second] for second in range(seconds)]
        axis.bar(range(seconds), heights, 1.0, floor, color=colour, label=label, align="edge", linewidth=0)
        floor = [low + high for low, high in zip(floor, heights, strict=True)]
    axis.set_ylim(0, max(floor) * 1.2)
    axis.legend(loc="upper right", fontsize=8, frameon=False, ncols=3)


def _carrier(axis: Any, sides: Sides, begin_ns: int, seconds: int) -> None:
    codes: Counter[int] = Counter()
    marketing: Counter[int] = Counter()
    for one in sides.submits:
        (codes if one.ref.startswith("code-") else marketing)[int((one.t_ns - begin_ns) // 1e9)] += 1
    heights = [marketing[second] for second in range(seconds)]
    axis.bar(range(seconds), heights, 1.0, color="#7b4fa3", label="marketing", align="edge", linewidth=0)
    axis.bar(
        range(seconds), [codes[second] for second in range(seconds)], 1.0, heights, color="#1f4e8c", label="codes",
        align="edge", linewidth=0,
    )  # fmt: skip
    axis.axhline(sides.rate_per_s, color="#b01e1e", linewidth=1, linestyle="--", label="limit")
    axis.set_ylim(0, sides.rate_per_s * 1.5)
    axis.legend(loc="upper right", fontsize=8, frameon=False, ncols=3)
