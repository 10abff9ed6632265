"""Dashboard, alert rules and runbooks name only what exists, and everything that the contract names is looked at."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from gateway.cli.main import app
from gateway.telemetry import REGISTRY

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy/grafana/sluicegate.json").read_text(encoding="utf-8"))
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
}
PAGES = ROOT / "docs" / "alerts"
# Prometheus itself, the scrape configuration and functions add these.
ADDED = {"role", "worker", "job", "instance", "le", "version"}
OF_PROCESSES = {
    "process_start_time_seconds", "process_cpu_seconds_total", "process_resident_memory_bytes", "up", "ALERTS",
}  # fmt: skip
SECTIONS = ["## What it means", "## What users feel", "## Look first", "## Do", "## It is over when"]
# What the brief of the alerts asks for, and the rule that answers.
ASKED = {
    "class age over budget": "SluicegateClassAgeOverBudget",
    "refusals": "SluicegateRefusals",
    "throttle share": "SluicegateThrottled",
    "coverage": "SluicegateCoverageLow",
    "inbox age": "SluicegateReceiptInboxOld",
    "session down": "SluicegateSessionDown",
    "unconfirmed": "SluicegateUnconfirmed",
    "retry share": "SluicegateRetryShare",
    "reload failed": "SluicegateReloadFailed",
    "oldest non-final": "SluicegateOldestNotFinal",
    "partitions ahead": "SluicegatePartitionsAhead",
}


def known() -> dict[str, set[str]]:
    """Every name that a page of ours can show, with its labels."""
    names: dict[str, set[str]] = {}
    for collector in list(REGISTRY._collector_to_names):
        labels = set(getattr(collector, "_labelnames", ()))
        for name in REGISTRY._collector_to_names[collector]:
            names[name] = labels
    return names


def expressions() -> dict[str, str]:
    found = {name: rule["expr"] for name, rule in RULES.items()}
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            found[f"{panel['title']} {target['refId']}"] = target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            found[f"variable {variable['name']}"] = re.sub(r", \w+\)$", ")", variable["definition"])
    for annotation in DASHBOARD["annotations"]["list"]:
        found[f"annotation {annotation['name']}"] = annotation["expr"]
    return found


EXPRESSIONS = expressions()


@pytest.mark.parametrize("place", EXPRESSIONS)
def test_metrics_and_labels_exist(place: str) -> None:
    text = EXPRESSIONS[place]
    names = known()
    labels: set[str] = set(ADDED)
    used = re.findall(r"\b(sluicegate_\w+|process_\w+|up|ALERTS)(?:\{([^}]*)\})?", text)
    assert used, text
    for name, selector in used:
        if name in OF_PROCESSES:
            own = {"alertname", "alertstate"} if name == "ALERTS" else set()
        else:
            assert name in names, name
            own = names[name] | ({"quantile"} if name == "sluicegate_queue_age_seconds" else set())
        asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', selector)))
        assert asked <= own | ADDED, (name, asked - own)
        labels |= own
    for group in re.findall(r"\b(?:by|on|without|group_left)\s*\(([^)]*)\)", text):
        assert {word.strip() for word in group.split(",") if word.strip()} <= labels, (place, group)


def test_everything_that_is_measured_is_on_the_dashboard_or_in_a_rule() -> None:
    seen = " ".join(EXPRESSIONS.values())
    missing = []
    for collector, names in REGISTRY._collector_to_names.items():
        if hasattr(collector, "_labelnames") and not any(re.search(rf"\b{name}\b", seen) for name in names):
            missing.append(min(names))
    assert missing == []


def test_dashboard_can_be_imported() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids)) and DASHBOARD["uid"] == "sluicegate" and DASHBOARD["schemaVersion"] >= 39
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"] and panel["datasource"]["uid"] == "${datasource}"


def test_asked_alerts_exist() -> None:
    assert set(ASKED.values()) <= set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_each_rule_says_how_bad_it_is_and_where_to_read_on(name: str) -> None:
    rule = RULES[name]
    assert re.search(r"\b(critical|warning)\b", rule["labels"]["severity"])
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["runbook"] == f"docs/alerts/{name}.md"


@pytest.mark.parametrize("name", RULES)
def test_each_rule_has_a_page(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {name}\n")
    assert [line for line in page.splitlines() if line.startswith("## ")] == SECTIONS
    assert f"({name}.md)" in (PAGES / "README.md").read_text(encoding="utf-8")


def test_no_page_is_left_over() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} - {"README"} == set(RULES)


def commands() -> list[tuple[str, str]]:
    found = []
    for path in sorted(PAGES.glob("*.md")):
        for block in re.findall(r"```sh\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
            found += [(path.stem, line) for line in block.splitlines() if line.startswith("sluicegate ")]
    return found


@pytest.mark.parametrize(("page", "line"), commands())
def test_commands_of_the_pages_exist(page: str, line: str) -> None:
    """Every verb and option; whether a name like CARRIER fits is the reader's."""
    words = line.split("#", maxsplit=1)[0].split("|", maxsplit=1)[0].split()[1:]
    command: Any = get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    assert not getattr(command, "commands", {}), f"{page}: {line} names no verb"
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word.split("=")[0] for word in words if word.startswith("--")} <= options, line
    given = [word for at, word in enumerate(words) if not word.startswith("-") and not _is_value(words, at, command)]
    places = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    assert len([one for one in places if one.required]) <= len(given) <= len(places), line


def _is_value(words: list[str], at: int, command: Any) -> bool:
    """Whether a word belongs to the option before it."""
    before = words[at - 1] if at else ""
    return any(before in parameter.opts and not parameter.is_flag for parameter in command.params if before[:2] == "--")
