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
KEYS_OF_A_SERVICE = {
    "build", "image", "restart", "read_only", "tmpfs", "security_opt", "cap_drop", "stop_grace_period", "networks",
    "environment", "volumes", "depends_on", "healthcheck", "command", "ports",
}  # fmt: skip
OURS = {name: service for name, service in COMPOSE["services"].items() if "build" in service}


def verbs(command: Any) -> dict[str, Any]:
    return dict(getattr(command, "commands", {}))


def test_compose_has_every_role() -> None:
    roles = [service["command"][0] for service in OURS.values()]
    assert roles.count("api") == 2
    assert roles.count("egress") == 2
    assert {"delivery", "migrate", "carrier-sim"} <= set(roles)
    assert {"postgres", "valkey", "prometheus", "grafana"} <= set(COMPOSE["services"])


def test_compose_names_only_what_it_has() -> None:
    """Services, networks, volumes and files; published ports once; no image from a registry of one's own."""
    published: list[str] = []
    for name, service in COMPOSE["services"].items():
        assert set(service) <= KEYS_OF_A_SERVICE, name
        assert ("image" in service) != ("build" in service), name
        assert "." not in service.get("image", "").split("/")[0].split(":")[0], name
        assert re.fullmatch(r"[a-z/-]+:v?\d[\d.]*", service.get("image", "a:1")), name
        assert set(service.get("networks", ())) <= set(COMPOSE["networks"]), name
        assert set(service.get("depends_on", ())) <= set(COMPOSE["services"]), name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (ROOT / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], volume
        published += [port.rsplit(":", 1)[0].split(":")[-1] for port in service.get("ports", ())]
    assert len(published) == len(set(published))


@pytest.mark.parametrize("name", [name for name in COMPOSE["services"] if name not in ("postgres", "valkey")])
def test_compose_gives_no_more_rights_than_needed(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_prometheus_scrapes_every_role_of_compose() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yaml").read_text(encoding="utf-8"))
    (job,) = config["scrape_configs"]
    assert job["job_name"] == "sluicegate" and job["honor_labels"] is True
    found = {}
    for group in job["static_configs"]:
        (target,) = group["targets"]
        host, port = target.split(":")
        assert port == "8081"
        found[host] = (group["labels"]["role"], group["labels"]["worker"])
    roles = {name: one["command"] for name, one in OURS.items() if one["command"][0] in ("api", "egress", "delivery")}
    assert found == {name: (command[0], command[2]) for name, command in roles.items()}


def test_grafana_finds_the_dashboard_and_prometheus() -> None:
    provisioning = ROOT / "deploy" / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((provisioning / "dashboards/sluicegate.yaml").read_text())["providers"]
    mounts = [volume.split(":")[1] for volume in COMPOSE["services"]["grafana"]["volumes"]]
    assert f"{provider['options']['path']}/sluicegate.json" in mounts and "/etc/grafana/provisioning" in mounts


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


def test_image_can_have_a_read_only_root_and_holds_what_the_package_needs() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "PYTHONDONTWRITEBYTECODE=1" in text
    copied = set(re.findall(r"^COPY (\w+) \1$", text, re.MULTILINE))
    assert {"gateway", "scheduler", "smpp", "migrations"} <= copied
    for line in re.findall(r"^ENV (.*)$", text, re.MULTILINE):
        known = {f"SLUICEGATE_{field.upper()}" for field in Settings.model_fields}
        assert set(re.findall(r"SLUICEGATE_\w+", line)) <= known


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
