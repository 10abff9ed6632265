"""Writes the table of a results file, and the list of mutations, into docs/scheduling.md.

python -m simulations.page results/sim-DATE.json [another.json]     a size is told by the first file that has it
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from simulations.mutations import MUTATIONS
from simulations.scenarios import SCENARIOS
from simulations.table import Row, number

PAGE = Path(__file__).resolve().parents[1] / "docs" / "scheduling.md"


ENGINES = {"scripts": "with the scripts on Valkey", "model": "with the model of the scripts"}


def table_of(rows: Sequence[Row], commit: str, engines: Mapping[tuple[int, int], str]) -> Iterator[str]:
    """The rows as Markdown: a line per check, the worst value over the seeds of each size.

    `engines` names what played a (scenario, size).
    """
    sizes = sorted({row.size for row in rows})
    ran = "; ".join(_ran([row for row in rows if row.size == size], engines) for size in sizes)
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


def _ran(rows: Sequence[Row], engines: Mapping[tuple[int, int], str]) -> str:
    """What was played at one size, in words: how many seeds, by which engine, and which scenarios differ."""
    size, parts = rows[0].size, []
    for engine, how in ENGINES.items():
        mine = [row for row in rows if engines[row.scenario, size] == engine]
        if mine:
            only = sorted({row.scenario for row in mine})
            some = (
                "" if len(only) == len({row.scenario for row in rows}) else f" (scenarios {', '.join(map(str, only))})"
            )
            parts.append(f"{min(row.seeds for row in mine)} seeds {how}{some}")  # a check may count twice a run
    return f"{size:,} messages: {' and '.join(parts)}"


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
    parser.add_argument("results", type=Path, nargs="*", help="results/sim-DATE.json files")
    asked = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    page = _put(page, "mutations", "\n".join(mutations()))
    if asked.results:
        rows, engines, commits = _read(asked.results)
        page = _put(page, "table", "\n".join(table_of(rows, ", ".join(commits), engines)))
    PAGE.write_text(page, encoding="utf-8")


def _read(files: Sequence[Path]) -> tuple[list[Row], dict[tuple[int, int], str], list[str]]:
    """Rows, who played each (scenario, size), and the commits; of what stands twice the first counts."""
    rows: list[Row] = []
    engines: dict[tuple[int, int], str] = {}
    commits: list[str] = []
    for file in files:
        found = json.loads(file.read_text(encoding="utf-8"))
        fresh = [row for row in map(lambda raw: Row(**raw), found["table"]) if (row.scenario, row.size) not in engines]
        engines |= {(row.scenario, row.size): found["engine"] for row in fresh}
        rows += fresh
        if found["commit"] not in commits:
            commits.append(found["commit"])
    return sorted(rows, key=lambda row: row.scenario), engines, commits


def _put(page: str, mark: str, text: str) -> str:
    pattern = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- end of {mark} -->)", re.DOTALL)
    if pattern.search(page) is None:
        raise SystemExit(f"{PAGE} has no mark {mark}")
    return pattern.sub(lambda found: f"{found.group(1)}{text}\n{found.group(2)}", page)


if __name__ == "__main__":
    main()
