"""Prometheus' own judgement of the rules: each fires on the recorded incident and is over at its end; none in peace."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.interop.alerts.recording import FOLDER, RULES, read, rules, wanted

pytestmark = pytest.mark.interop
PROMTOOL = shutil.which("promtool") or "promtool"


def promtool(*words: str) -> str:
    """What it prints; fails with that where it fails."""
    done = subprocess.run([PROMTOOL, *words], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def play(
    folder: Path, name: str, asked: dict[str, tuple[str, list[float]]], length: int, series: dict[str, str]
) -> None:
    """Plays a recording a minute a sample; `asked`: what an expression must say at the end."""
    test: dict[str, Any] = {
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [
            {
                "expr": expression,
                "eval_time": f"{length - 1}m",
                "exp_samples": [{"labels": "{}", "value": v} for v in values],
            }
            for expression, values in asked.values()
        ],
    }
    path = folder / f"{name}.yaml"
    head = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}
    path.write_text(yaml.safe_dump(head, width=1_000_000, sort_keys=False), encoding="utf-8")
    promtool("test", "rules", str(path))


def fired(name: str, within: str) -> str:
    return f'max(max_over_time(ALERTS{{alertname="{name}",alertstate="firing"}}[{within}]))'


def test_rules_and_configuration_are_sound() -> None:
    assert f"SUCCESS: {len(rules())} rules found" in promtool("check", "rules", str(RULES))
    promtool("check", "config", str(RULES.parent / "prometheus.yaml"))


@pytest.mark.timeout(600)
def test_each_fires_in_the_incident_and_is_over_after_it(tmp_path: Path) -> None:
    """One run of promtool for all: it plays the whole recording each time."""
    asked: dict[str, tuple[str, list[float]]] = {}
    for name in rules():
        asked[f"{name} fired"] = (fired(name, "2d"), [1.0])
        asked[f"{name} over"] = (fired(name, "1m"), [])
    play(tmp_path, "incident", asked, *read(FOLDER / "incident.tsv"))


def test_none_fires_in_peace(tmp_path: Path) -> None:
    length, series = read(FOLDER / "quiet.tsv")
    assert length >= 60 and len(series) > 50
    play(tmp_path, "quiet", {"any": ('count(max_over_time(ALERTS{alertstate="firing"}[2d]))', [])}, length, series)


def test_the_recordings_have_what_the_rules_look_at() -> None:
    shown = {series.partition("{")[0] for series in read(FOLDER / "incident.tsv")[1]}
    assert wanted() <= shown
