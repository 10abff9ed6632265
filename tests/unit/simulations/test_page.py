"""The page of the simulation tells by which engine each size was played."""

from __future__ import annotations

import json
from pathlib import Path

from simulations.page import _read, table_of


def _row(scenario: int, size: int, worst: float, seeds: int) -> dict[str, object]:
    return {
        "scenario": scenario, "check": "late", "size": size, "relation": "<=", "bound": 1.0, "worst": worst,
        "seeds": seeds, "passed": worst <= 1.0,
    }  # fmt: skip


def test_of_two_files_the_first_counts_and_each_engine_is_named(tmp_path: Path) -> None:
    scripts, model = tmp_path / "scripts.json", tmp_path / "model.json"
    rows = [_row(1, 100_000, 0.5, 20), _row(12, 100_000, 0.5, 20), _row(12, 1_000_000, 0.25, 3)]
    scripts.write_text(json.dumps({"commit": "aaa", "engine": "scripts", "table": rows}))
    rows = [_row(1, 100_000, 0.1, 2), _row(1, 1_000_000, 2.0, 3)]
    model.write_text(json.dumps({"commit": "aaa", "engine": "model", "table": rows}))
    found, engines, commits = _read([scripts, model])
    told = list(table_of(found, ", ".join(commits), engines))
    assert told[0] == (
        "The worst value over 100,000 messages: 20 seeds with the scripts on Valkey; 1,000,000 messages: 3 seeds "
        "with the scripts on Valkey (scenarios 12) and 3 seeds with the model of the scripts (scenarios 1) "
        "(commit aaa)."
    )
    assert [line.split("|")[-3:-1] for line in told[4:]] == [[" 0.5 ", " **2: not reached** "], [" 0.5 ", " 0.25 "]]
