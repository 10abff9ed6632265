"""The pictures of docs/scheduling.md: what was offered, taken, refused, sent and expired, and how old the queue was.

python -m simulations.pictures            draws all of them into docs/
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from simulations.measure import Series
from simulations.plays import Play, findings_of

DOCS = Path(__file__).resolve().parents[1] / "docs"
SIZE = 100_000
_COLOURS = {"offered": "#9a9a9a", "accepted": "#1f6f43", "refused": "#b8860b", "sent": "#1f4e8c", "expired": "#b01e1e"}
_AGE = {"otp": "#1f4e8c", "marketing": "#7b4fa3", "transactional": "#1f6f43"}


@dataclass(frozen=True, slots=True)
class Panel:
    """One column of a picture: a series of a scenario, the class whose counts are shown, and what happens when."""

    series: str
    title: str
    class_name: str
    seconds: int
    marks: Sequence[tuple[float, str]] = ()
    ages: Sequence[str] = ("otp",)


@dataclass(frozen=True, slots=True)
class Picture:
    """One file."""

    name: str
    scenario: int
    panels: Sequence[Panel]


PICTURES = (
    Picture(
        "flood", 1, (Panel("one route", "OTP 50/s under a flood of marketing", "otp", 54, (), ("otp", "marketing")),)
    ),
    Picture(
        "outage", 5, (Panel("down", "The only session is down for 60 s", "otp", 110, ((20, "down"), (80, "back"))),)
    ),
    Picture(
        "overload",
        7,
        (
            Panel("door", "Three times the capacity, with the door", "otp", 60, ((48, "load ends"),)),
            Panel("no door", "Three times the capacity, everything accepted", "otp", 30, ((18, "load ends"),)),
        ),
    ),
    Picture(
        "capacity",
        8,
        (Panel("overloaded", "Capacity falls to a fifth", "otp", 120, ((20, "falls"), (80, "returns"))),),
    ),
    Picture("obedient", 9, (Panel("2x", "Clients that obey Retry-After", "otp", 75, ((30, "load ends"),)),)),
    Picture("surge", 13, (Panel("tenants", "1 tenant, then 100", "otp", 62, ((20, "surge"), (50, "load ends"))),)),
    Picture("silent", 14, (Panel("silent", "A silent carrier", "otp", 90, ((20, "silent"), (60, "answers"))),)),
)


def draw(picture: Picture) -> Path:
    """Plays the scenario (seed 1) and draws its picture."""
    found = findings_of(Play(picture.scenario, 1, SIZE))
    columns = len(picture.panels)
    figure, axes = plt.subplots(
        2, columns, figsize=(8.4 * columns, 6.2), squeeze=False, height_ratios=(2, 1), layout="constrained"
    )
    for column, panel in enumerate(picture.panels):
        _flows(axes[0][column], found.series[panel.series], panel)
        _ages(axes[1][column], found.series[panel.series], panel)
    path = DOCS / f"simulation-{picture.name}.png"
    figure.savefig(path, dpi=96)
    plt.close(figure)
    return path


def _flows(axes: Any, series: Series, panel: Panel) -> None:
    seconds = range(panel.seconds)
    for name, colour in _COLOURS.items():
        counts: Mapping[int, int] = series.counts.get(f"{name} {panel.class_name}", {})
        values = [counts.get(second, 0) for second in seconds]
        if name == "expired":
            axes.fill_between(seconds, values, color=colour, alpha=0.75, step="mid", label=name)
        elif any(values):
            style = "--" if name == "offered" else "-"
            axes.plot(seconds, values, style, color=colour, linewidth=1.6, label=name)
    axes.set_title(panel.title, fontsize=13, pad=16)
    axes.set_ylabel("messages per second")
    _dress(axes, panel, words=True)


def _ages(axes: Any, series: Series, panel: Panel) -> None:
    for class_name in panel.ages:
        levels = series.levels.get(f"age {class_name}", {})
        values = [levels.get(second, 0.0) for second in range(panel.seconds)]
        axes.plot(range(panel.seconds), values, color=_AGE[class_name], linewidth=1.6, label=class_name)
    if panel.ages == ("otp",):
        axes.axhline(5, color="#9a9a9a", linewidth=1, linestyle=":", label="door closes above")
        axes.axhline(10, color="#b01e1e", linewidth=1, linestyle=":", label="wait budget")
    axes.set_ylabel("oldest unsent, s")
    axes.set_xlabel("seconds")
    _dress(axes, panel, words=False)


def _dress(axes: Any, panel: Panel, *, words: bool) -> None:
    axes.set_xlim(0, panel.seconds - 1)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    for second, word in panel.marks:
        axes.axvline(second, color="#444444", linewidth=1, linestyle="--")
        if words:
            axes.text(second, axes.get_ylim()[1], f" {word}", va="bottom", fontsize=9, color="#444444")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)


def main() -> None:
    """Draws all pictures, or those named."""
    parser = argparse.ArgumentParser(prog="simulations.pictures")
    parser.add_argument("names", nargs="*", default=[picture.name for picture in PICTURES])
    asked = parser.parse_args()
    DOCS.mkdir(exist_ok=True)
    wanted = [picture for picture in PICTURES if picture.name in asked.names]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for path in pool.map(draw, wanted):
            print(path)


if __name__ == "__main__":
    main()
