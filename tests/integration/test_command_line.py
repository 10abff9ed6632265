"""The command line beside a running gateway: JSON of every verb, errors for programs, commands of the alert pages."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest
from typer.main import get_command

from gateway.cli.main import app, main
from gateway.supervisor.run_file import read as read_run
from tests.conftest import run_apart
from tests.docs_runner import ROOT, blocks_of, commands_of
from tests.integration.running_gateway import RunningGateway, ask, running, wait_for

pytestmark = pytest.mark.timeout(300)
Say = Callable[..., tuple[int, str, str]]

# They run until they are told to end; what they say is a log.
FOREGROUND: Final = {"up", "api", "egress", "delivery", "carrier-sim"}
# Every other verb, in an order in which each can do what it says. {NAME} is what an earlier one answered.
VERBS: Final = (
    "migrate",
    "tenant create table",
    "tenant list",
    "key create table --scope send",
    "key list",
    "key revoke {key_id}",
    "policy check policy.yaml",
    "policy diff policy.yaml",
    "policy apply policy.yaml",
    "policy show",
    "policy history",
    "policy rollback 1",
    "send --to +447700900123 --text Hello --wait",
    "message {id}",
    "explain {id}",
    "coverage",
    "status",
    "top",
    "session pause sim-1",
    "session resume sim-1",
    "session drain sim-1",
    "route pause everywhere",
    "route resume everywhere",
    "provider pause simulator",
    "provider resume simulator",
    "application pause demo spring",
    "application resume demo spring",
    "application cancel demo spring",
    "replay-callbacks demo --since 1d",
    "backup gateway.dump",
    "restore gateway.dump --data-dir {elsewhere}",
    "restored",
)
REFUSED: Final = (
    ("tenant create table", 1),
    ("key create nobody", 1),
    ("key create table --scope everything", 1),
    ("key revoke nothing", 1),
    ("policy apply invalid.yaml", 1),
    ("policy diff invalid.yaml", 1),
    ("policy diff missing.yaml", 2),
    ("policy show --version 999", 1),
    ("policy rollback 999", 1),
    ("policy rollback x", 2),
    ("send --to 12 --text Hello", 1),
    ("send --text Hello", 2),
    ("message msg_nothing", 1),
    ("explain msg_nothing", 1),
    ("explain nothing", 2),
    ("coverage --since tomorrow", 2),
    ("session pause nobody", 1),
    ("route pause nobody", 1),
    ("provider resume nobody", 1),
    ("application pause nobody spring", 1),
    ("replay-callbacks nobody --since 1d", 1),
    ("backup missing/gateway.dump", 2),
    ("restore missing.dump", 2),
    ("restored --send-again --give-up", 2),
    ("status --bogus", 2),
)
# What belongs to the machine that a page speaks of; docker and kubectl lines are linted (tests/unit/docs).
ELSEWHERE: Final = ("docker", "kubectl", "timedatectl")
PLACES: Final = {
    "CARRIER": "simulator", "SESSION": "sim-1", "ROUTE": "everywhere",
    "TENANT": "demo", "CAMPAIGN": "spring", "VERSION": "1",
}  # fmt: skip


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with running("verbs") as made:
        headers = {"Authorization": f"Bearer {made.key}", "Idempotency-Key": "1", "Content-Type": "application/json"}
        body = b'{"to": "+447700900129", "text": "x", "application": "spring"}'
        wait_for(lambda: ask("POST", f"{made.api_url}/v1/messages", body, headers)[0] == 202, 60, made.tell)
        source = json.loads(made.command("policy", "show", "--json").stdout)["source"]
        parent = made.data_dir.parent
        assert "password: demo" not in source, "a secret that is written out is not shown"
        (parent / "policy.yaml").write_text(source + "# again\n", encoding="utf-8")
        (parent / "invalid.yaml").write_text("classes: 7\n", encoding="utf-8")
        yield made


@pytest.fixture
def say(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Types a command in this process: exit code, standard output, standard error."""
    monkeypatch.chdir(gateway.data_dir.parent)
    monkeypatch.delenv("SLUICEGATE_DATA_KEY", raising=False)

    def speak(line: str, *more: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sluicegate", *shlex.split(line, comments=True), *more])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return int(ended.value.code or 0), told.out, told.err

    return speak


def paths(command: Any, before: str = "") -> dict[str, Any]:
    """Every verb by the words that call it."""
    found: dict[str, Any] = {}
    for name, inner in command.commands.items():
        whole = f"{before} {name}".strip()
        found |= paths(inner, whole) if hasattr(inner, "commands") else {whole: inner}
    return found


def verb_of(line: str, known: dict[str, Any]) -> str:
    return next(name for name in known if line == name or line.startswith(name + " "))


def test_the_table_has_every_verb() -> None:
    known = paths(get_command(app))
    speaks_json = {name for name, verb in known.items() if any("--json" in one.opts for one in verb.params)}
    assert set(known) - speaks_json == FOREGROUND
    assert {verb_of(line, known) for line in VERBS} == speaks_json


def test_every_verb_speaks_json(say: Say, gateway: RunningGateway) -> None:
    seen: dict[str, Any] = {"elsewhere": str(gateway.data_dir.parent / "elsewhere")}
    for line in VERBS:
        code, told, errors = say(line.format_map(seen), "--json")
        assert code == 0, (line, told, errors)
        answer = json.loads(told)
        assert isinstance(answer, (dict, list)), line
        assert "\x1b" not in told + errors, f"{line}: colours in a pipe"
        if isinstance(answer, dict):
            seen |= answer
        if line == "key list":
            seen["key_id"] = next(one["id"] for one in answer if one["tenant"] == "table")
    assert say("session resume sim-1")[0] == 0


def test_every_refusal_is_an_object_too(say: Say) -> None:
    wrong = []
    for line, expected in REFUSED:
        code, told, errors = say(line, "--json")
        if code != expected:
            wrong.append((line, code, told, errors))
            continue
        error = json.loads(told)["error"]
        assert set(error) == {"message", "exit_code"} and error["exit_code"] == code, line
        assert error["message"] and error["message"].splitlines()[0] in errors, line
    assert not wrong
    code, told, _ = say("policy check invalid.yaml", "--json")
    assert code == 1 and json.loads(told)["valid"] is False


def test_where_nothing_runs_every_verb_says_so(say: Say, tmp_path: Path) -> None:
    for line in VERBS:
        if line.startswith(("policy check", "restore ")):
            continue  # they need no gateway
        asked = line.replace("{id}", "msg_0199f3a6c1d27c3e8a4b5c6d7e8f9a0b").replace("{key_id}", "1")
        code, told, _ = say(asked, "--json", "--data-dir", str(tmp_path))
        assert code == 1, line
        assert "nothing runs in" in json.loads(told)["error"]["message"], line


def test_without_json_there_are_no_colours_in_a_pipe(say: Say) -> None:
    for line in ("status", "tenant list", "key list", "policy history", "policy diff policy.yaml", "coverage", "top"):
        code, told, errors = say(line)
        assert code == 0, (line, errors)
        assert told.strip() and "\x1b" not in told + errors, line


def test_the_commands_of_the_alert_pages(say: Say, gateway: RunningGateway) -> None:
    """Each once; what stands in capitals is replaced by a name of the demo."""
    message = json.loads(say("send --to +447700900124 --text Hello --wait", "--json")[1])["id"]
    admin = say("key create --admin")[1].strip()
    done = set()
    for page in sorted((ROOT / "docs" / "alerts").glob("*.md")):
        for command in [one for block in blocks_of(page) if block.language == "sh" for one in commands_of(block)]:
            line = re.sub(r"\b[A-Z]{4,}\b", lambda word: PLACES.get(word[0], word[0]), command)
            line = line.replace("msg_...", message).replace("$ADMIN_KEY", admin)
            words = shlex.split(line, comments=True)
            if tuple(words) in done or words[0] in ELSEWHERE:
                continue
            done.add(tuple(words))
            match words:
                case ["sluicegate", *_]:
                    code, _, errors = say(shlex.join(words[1:]))
                    assert code == 0, f"{page.name}: {command}: {errors}"
                case ["curl", *_]:
                    url = words[-1].replace("http://127.0.0.1:8081", gateway.operators_url)
                    headers = dict(word.split(": ", 1) for word in words if ": " in word)
                    assert ask("GET", url, None, headers)[0] == 200, f"{page.name}: {command}"
                case ["psql", "$SLUICEGATE_DATABASE_URL", "-c", statement]:
                    run_apart(execute(gateway, statement))
                case _:
                    pytest.fail(f"{page.name}: nobody tries {command}")
    assert say("session resume sim-1")[0] == 0
    assert len(done) > 20


async def execute(gateway: RunningGateway, statement: str) -> None:
    run = read_run(gateway.data_dir)
    assert run is not None
    connection = await asyncpg.connect(run.database_url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
