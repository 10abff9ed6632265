"""docker and kubectl lines of README, docs and the heads of deployment files: files, services and flags exist.

Neither program is needed: a line is read with a table of what their reference says about the verbs that we use.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from typer.main import get_command

from gateway.cli.main import app
from tests.docs_runner import ROOT

PAGES: Final = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(ROOT.glob("compose*.yaml")), ROOT / "Dockerfile", *sorted((ROOT / "deploy").rglob("*.yaml")),
]  # fmt: skip
SERVICES: Final = set(yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"])
OBJECTS: Final[list[dict[str, Any]]] = [
    document
    for path in sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]
KINDS: Final = {"deploy": "Deployment", "deployment": "Deployment", "job": "Job", "service": "Service"}
# Verb: (flags without a value, flags with one).
COMPOSE: Final = {
    "up": ({"--build", "-d", "--detach", "--wait"}, {"--scale"}),
    "down": ({"-v", "--volumes"}, set()),
    "ps": ({"-a"}, set()),
    "exec": ({"-T"}, {"-u", "--env"}),
    "logs": ({"-f", "--follow"}, {"--since", "--tail"}),
    "restart": (set(), {"-t"}),
    "run": ({"--rm"}, set()),
    "config": ({"-q"}, set()),
}
KUBECTL: Final = {
    "create": (set(), {"--from-file", "--from-literal"}),
    "apply": (set(), {"-f"}),
    "get": ({"-w"}, {"-l", "-o"}),
    "describe": (set(), {"-l"}),
    "exec": ({"-it"}, {"-c"}),
    "logs": ({"-f", "--previous"}, {"--since", "-c"}),
    "rollout": (set(), {"--timeout", "--to-revision"}),
    "scale": (set(), {"--replicas"}),
    "wait": (set(), {"--for", "--timeout"}),
    "port-forward": (set(), set()),
    "delete": (set(), {"-f"}),
}
_LINE: Final = re.compile(r"(?:^[ #]*|`)((?:docker|kubectl) (?:\\\n|[^`\n])+)", re.MULTILINE)


def lines_of(path: Path) -> list[str]:
    """Commands of a page: lines that begin with the program, and those between backticks."""
    text = re.sub(r"\\\n[ #]*", "", path.read_text(encoding="utf-8"))
    return [line.strip() for line in _LINE.findall(text)]


FOUND: Final = [(path, line) for path in PAGES for line in lines_of(path)]


def split(words: list[str], known: tuple[set[str], set[str]], line: str) -> tuple[list[str], dict[str, list[str]]]:
    """Operands and flags with their values; fails for a flag that the verb does not have."""
    alone, valued = known
    operands: list[str] = []
    flags: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word == "--":
            operands += ["--", *rest]
        elif not word.startswith("-"):
            operands.append(word)
            if line.startswith("docker") and words[0] == word:
                continue
        elif name in valued:
            flags.setdefault(name, []).append(value if equals else next(rest))
        else:
            assert name in alone and not equals, f"{line}: {word}"
    return operands, flags


def check_inner(words: list[str], line: str) -> None:
    """What runs inside a container is a verb of ours."""
    assert words and words[0] == "sluicegate", line
    known: dict[str, Any] = dict(getattr(get_command(app), "commands"))  # noqa: B009 - typer's type does not name it
    assert words[1] in known, line


def check_compose(words: list[str], line: str) -> None:
    assert words[0] == "compose", line
    while words[1] == "-f":
        assert (ROOT / words[2]).exists(), line
        del words[1:3]
    verb, rest = words[1], words[2:]
    assert verb in COMPOSE, line
    if verb in ("exec", "run"):
        at = next(at for at, word in enumerate(rest) if not word.startswith("-"))
        _, _ = split(rest[: at + 1], COMPOSE[verb], line)
        assert rest[at] in SERVICES, line
        check_inner(rest[at + 1 :], line)
        return
    services, _ = split(rest, COMPOSE[verb], line)
    assert set(services) <= SERVICES, line


def check_kubectl(words: list[str], line: str) -> None:
    assert words[:2] in (["-n", "sluicegate"], ["create", "namespace"]), f"{line}: which namespace?"
    if words[0] == "create":
        assert words[2:] == ["sluicegate"], line
        return
    verb, rest = words[2], words[3:]
    assert verb in KUBECTL, line
    operands, flags = split(rest, KUBECTL[verb], line)
    for file in flags.get("-f", []):
        assert (ROOT / file).exists(), line
    if "--" in operands:
        check_inner(operands[operands.index("--") + 1 :], line)
        operands = operands[: operands.index("--")]
    if verb == "create":
        assert operands[0] in ("secret", "configmap"), line
        named = {operands[-1]}
        assert named <= set(re.findall(r"(?:secretName|configMap): *\{?(?:name: )?([a-z-]+)", objects_text())), line
    for operand in operands:
        kind, slash, name = operand.partition("/")
        if slash:
            found = [one for one in OBJECTS if one["kind"] == KINDS[kind] and one["metadata"]["name"] == name]
            assert found, f"{line}: there is no {operand}"


def objects_text() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "deploy" / "kubernetes").glob("*.yaml"))


@pytest.mark.parametrize(("path", "line"), FOUND, ids=lambda one: one.name if isinstance(one, Path) else one[:60])
def test_what_a_line_names_exists(path: Path, line: str) -> None:
    words = shlex.split(line, comments=True)
    (check_compose if words[0] == "docker" else check_kubectl)(words[1:], line)


def test_the_lines_are_found() -> None:
    assert len(FOUND) >= 12
    assert {line.split()[0] for _, line in FOUND} == {"docker", "kubectl"}


@pytest.mark.parametrize(
    "line",
    [
        "docker compose up --biuld", "docker compose restart api", "docker compose -f compose.yml ps",
        "docker compose exec api-1 sluicegate statsu", "kubectl get pods", "kubectl -n sluicegate get pods --wtach",
        "kubectl -n sluicegate apply -f deploy/kubernetes/none.yaml",
        "kubectl -n sluicegate rollout restart deployment/sluicegate-pump",
    ],
)  # fmt: skip
def test_a_wrong_line_is_seen(line: str) -> None:
    words = shlex.split(line)
    with pytest.raises(AssertionError):
        (check_compose if words[0] == "docker" else check_kubectl)(words[1:], line)
