"""Writes the table of a results file, and the list of mutations, into docs/scheduling.md.

python -m simulations.page results/sim-DATE.json
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from simulations.mutations import MUTATIONS
from simulations.scenarios import SCENARIOS
from simulations.table import Row, number

PAGE = Path(__file__).resolve().parents[1] / "docs" / "scheduling.md"


def table_of(rows: Sequence[Row], commit: str) -> Iterator[str]:
    """The rows as Markdown: a line per check, the worst value over the seeds of each size."""
    sizes = sorted({row.size for row in rows})
    seeds = {size: max(row.seeds for row in rows if row.size == size) for size in sizes}
    ran = ", ".join(f"{seeds[size]} seeds at {size:,} messages" for size in sizes)
    yield f"The worst value over {ran} (commit {commit})."
    yield ""
    yield "| scenario | what is checked | bound | " + " | ".join(f"worst at {size:,}" for size in sizes) + " |"
    yield "| --- | --- | --- |" + " --- |" * len(sizes)
    told = 0
    for row in (row for row in rows if row.size == sizes[0]):
        same = {one.size: one for one in rows if (one.scenario, one.check) == (row.scenario, row.check)}
        values = [_value(same.get(size)) for size in sizes]
        title = f"{row.scenario} {SCENARIOS[row.scenario].title}" if row.scenario != told else ""
        told = row.scenario
        sign = "≤" if row.relation == "<=" else "≥"
        yield f"| {title} | {row.check} | {sign} {number(row.bound)} | " + " | ".join(values) + " |"


def _value(row: Row | None) -> str:
    if row is None:
        return ""
    return number(row.worst) if row.passed else f"**{number(row.worst)}: not reached**"


def mutations() -> Iterator[str]:
    """The rules that can be broken."""
    yield "| scenario | `--mutate` | what is broken | what then is not reached |"
    yield "| --- | --- | --- | --- |"
    for name, one in sorted(MUTATIONS.items(), key=lambda pair: (pair[1].caught_by, pair[0])):
        yield f"| {', '.join(map(str, one.caught_by))} | `{name}` | {one.what} | {one.check} |"


def main() -> None:
    """Replaces what stands between the page's marks."""
    parser = argparse.ArgumentParser(prog="simulations.page")
    parser.add_argument("results", type=Path, nargs="?", help="a results/sim-DATE.json")
    asked = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    page = _put(page, "mutations", "\n".join(mutations()))
    if asked.results is not None:
        found = json.loads(asked.results.read_text(encoding="utf-8"))
        page = _put(page, "table", "\n".join(table_of([Row(**row) for row in found["table"]], found["commit"])))
    PAGE.write_text(page, encoding="utf-8")


def _put(page: str, mark: str, text: str) -> str:
    pattern = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- end of {mark} -->)", re.DOTALL)
    if pattern.search(page) is None:
        raise SystemExit(f"{PAGE} has no mark {mark}")
    return pattern.sub(lambda found: f"{found.group(1)}{text}\n{found.group(2)}", page)


if __name__ == "__main__":
    main()
