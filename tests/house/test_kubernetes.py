"""The Kubernetes manifests, read as they are: probes, drain, rights, secrets, names that fit each other.

Whether each is an object that Kubernetes knows was looked at with its published schemas; here is what they cannot say.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from gateway.cli.main import app
from gateway.settings import FILE_SUFFIX, Settings

ROOT = Path(__file__).resolve().parents[2]
OBJECTS: list[dict[str, Any]] = [
    one
    for path in sorted((ROOT / "deploy/kubernetes").glob("*.yaml"))
    for one in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]
DEPLOYMENTS = {one["metadata"]["name"]: one for one in OBJECTS if one["kind"] == "Deployment"}
SETTINGS: dict[str, str] = next(one for one in OBJECTS if one["kind"] == "ConfigMap")["data"]
PODS = {
    one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in OBJECTS if one["kind"] in ("Deployment", "Job")
}


def labels_of(deployment: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = deployment["spec"]["template"]["metadata"]["labels"]
    return labels


def test_every_role_is_there_twice() -> None:
    roles = {one["spec"]["template"]["spec"]["containers"][0]["args"][0] for one in DEPLOYMENTS.values()}
    assert roles == {"api", "egress", "delivery"}
    assert all(one["spec"]["replicas"] >= 2 for one in DEPLOYMENTS.values())


@pytest.mark.parametrize("name", PODS)
def test_pods_have_few_rights(name: str) -> None:
    pod = PODS[name]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert container["resources"]["requests"].keys() == {"cpu", "memory"} and container["resources"]["limits"]["memory"]
    assert "." not in container["image"].split("/")[0].split(":")[0]


@pytest.mark.parametrize("name", PODS)
def test_pods_mount_what_they_name(name: str) -> None:
    pod = PODS[name]
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/tmp"}


def test_settings_are_known_and_secrets_are_files() -> None:
    known = {f"SLUICEGATE_{field.upper()}" for field in Settings.model_fields}
    given = set(SETTINGS) | {
        variable["name"] for pod in PODS.values() for variable in pod["containers"][0].get("env", ())
    } - {"POD_NAME"}
    assert {name.removesuffix(FILE_SUFFIX) for name in given} <= known
    for secret in ("DATABASE_URL", "REDIS_URL", "DATA_KEY"):
        assert f"SLUICEGATE_{secret}" not in given
        assert SETTINGS[f"SLUICEGATE_{secret}_FILE"].startswith("/run/secrets/sluicegate/")


@pytest.mark.parametrize("name", PODS)
def test_commands_exist(name: str) -> None:
    words = PODS[name]["containers"][0]["args"]
    verb = get_command(app).commands[words[0]]  # type: ignore[attr-defined]
    assert {word for word in words[1:] if word.startswith("--")} <= {opt for one in verb.params for opt in one.opts}


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_roll_drains_before_it_kills(name: str) -> None:
    deployment = DEPLOYMENTS[name]
    pod = PODS[name]
    (container,) = pod["containers"]
    before_s = int(container["lifecycle"]["preStop"]["exec"]["command"][1]) if "lifecycle" in container else 0
    # Draining, then ten seconds to close what is left and leave: as `sluicegate up` allows its roles.
    assert pod["terminationGracePeriodSeconds"] >= before_s + float(SETTINGS["SLUICEGATE_DRAIN_S"]) + 10
    strategy = deployment["spec"]["strategy"]
    assert strategy["type"] == "RollingUpdate" and strategy["rollingUpdate"]["maxUnavailable"] in (0, 1)
    assert strategy["rollingUpdate"]["maxUnavailable"] < deployment["spec"]["replicas"]


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_probes_ask_the_operators_port(name: str) -> None:
    (container,) = PODS[name]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["operators"] == Settings.model_fields["admin_port"].default
    for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "operators"}
    # A role waits up to a minute for its stores before it shows a page.
    assert container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"] > 60


def test_selectors_find_their_pods() -> None:
    for kind in ("Deployment", "PodDisruptionBudget"):
        for one in (one for one in OBJECTS if one["kind"] == kind):
            wanted = one["spec"]["selector"]["matchLabels"].items()
            assert [1 for each in DEPLOYMENTS.values() if wanted <= labels_of(each).items()] == [1], one["metadata"]
    service = next(one for one in OBJECTS if one["kind"] == "Service")
    (door,) = [one for one in DEPLOYMENTS.values() if service["spec"]["selector"].items() <= labels_of(one).items()]
    named = {port["name"] for port in door["spec"]["template"]["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= named
    assert len([one for one in OBJECTS if one["kind"] == "PodDisruptionBudget"]) == len(DEPLOYMENTS)
