"""compose.yaml, the image, the Makefile and the CI script name things that exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from gateway.cli.main import app
from gateway.policy.rules.parse import read_policy
from gateway.settings import Settings
from smpp.simulator import load_script

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
OURS = {name: service for name, service in COMPOSE["services"].items() if "build" in service}


def verbs(command: Any) -> dict[str, Any]:
    return dict(getattr(command, "commands", {}))


def test_compose_has_every_role() -> None:
    roles = [service["command"][0] for service in OURS.values()]
    assert roles.count("api") == 2
    assert roles.count("egress") == 2
    assert {"delivery", "migrate", "carrier-sim"} <= set(roles)
    assert {"postgres", "valkey"} <= set(COMPOSE["services"])


@pytest.mark.parametrize("name", OURS)
def test_compose_commands_exist(name: str) -> None:
    words = OURS[name]["command"]
    verb = verbs(get_command(app))[words[0]]
    options = {option for parameter in verb.params for option in parameter.opts}
    assert {word for word in words[1:] if word.startswith("--")} <= options


@pytest.mark.parametrize("name", OURS)
def test_compose_settings_are_known(name: str) -> None:
    known = {f"SLUICEGATE_{field.upper()}" for field in Settings.model_fields}
    assert set(OURS[name].get("environment") or {}) <= known


def test_compose_publishes_no_store_and_holds_no_password() -> None:
    for name in ("postgres", "valkey"):
        assert "ports" not in COMPOSE["services"][name]
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    assert not re.search(r"PASSWORD: (?!\$\{)", text)


def test_compose_policy_speaks_to_the_composed_simulator() -> None:
    policy = read_policy((ROOT / "compose.policy.yaml").read_text(encoding="utf-8"))
    script = load_script((ROOT / "compose.carrier.yaml").read_text(encoding="utf-8"))
    assert script.host == "0.0.0.0"
    words = COMPOSE["services"]["carrier-sim"]["command"]
    for provider in policy.providers.values():
        for session in provider.sessions.values():
            assert session.host in COMPOSE["services"]
            assert str(session.port) == words[words.index("--port") + 1]


def test_image_runs_as_nobody_in_particular() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "-slim" in text
    assert re.search(r"^USER (?!root|0)", text, re.MULTILINE)
    assert "--require-hashes" in text


def test_every_verb_has_help_with_an_example() -> None:
    def walk(command: Any, path: str) -> None:
        found = verbs(command)
        if not found:
            assert "Example: " in (command.help or ""), path
        for name, inner in found.items():
            walk(inner, f"{path} {name}")

    walk(get_command(app), "sluicegate")


def test_make_tells_its_targets() -> None:
    told = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True).stdout
    for target in ("up", "test", "test-interop", "install", "check", "bench", "faults"):
        assert re.search(rf"^  make {target}\s", told, re.MULTILINE)


def test_ci_script_is_sound() -> None:
    script = ROOT / ".ci" / "run"
    subprocess.run(["bash", "-n", str(script)], timeout=30, check=True)
    assert script.stat().st_mode & 0o111
