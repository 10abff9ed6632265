"""The commands of README and the pages do what they say, beside one gateway for all."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Callable, Iterator

import pytest

from tests.docs_runner import ROOT, make_place, run_page
from tests.integration.running_gateway import RunningGateway, ask, running, wait_for

pytestmark = pytest.mark.timeout(600)  # several gateways start on the way; a busy machine starts slowly
Run = Callable[[str], str]


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with running("docs") as made:
        yield made


@pytest.fixture(scope="module")
def run(gateway: RunningGateway) -> Run:
    directory = gateway.data_dir.parent
    environment = make_place(directory)
    words = {
        "http://127.0.0.1:8080": gateway.api_url,
        "http://127.0.0.1:8081": gateway.operators_url,
        "sg_...": gateway.key,
    }
    leave = ("node ", "git ", "export PATH", ".venv/bin/sluicegate up")
    turns = itertools.count(1)  # a page that is run again makes a tenant of its own

    def run(name: str) -> str:
        return run_page(
            ROOT / name, directory, environment, words | {"docs-example": f"docs-{next(turns)}"}, leave=leave
        )

    return run


def test_quick_start(run: Run) -> None:
    told = run("docs/quick-start.md")
    assert re.search(r"^status +delivered$", told, re.MULTILINE)
    assert "rate_per_s" in told, "the diff says what changes"
    assert re.search(r"^waits for +(provider simulator|session sim-1|fairness)", told, re.MULTILINE), told[-3000:]
    assert "with the text of version 1" in told


def test_api_guide(run: Run) -> None:
    told = run("docs/api-guide.md")
    assert told.count('"status":"queued"') >= 3
    assert '"encoding":"ucs2"' in told
    assert re.search(r"^msg_[0-9a-f]+$", told, re.MULTILINE), "send.py prints the id"


def test_operations(run: Run, gateway: RunningGateway) -> None:
    # Three messages wait when the page makes its backup: afterwards nobody can know whether they were sent.
    headers = {"Authorization": f"Bearer {gateway.key}", "Idempotency-Key": "held", "Content-Type": "application/json"}
    messages = [{"to": f"+44770090014{n}", "text": "held", "application": "held"} for n in range(3)]
    send = f"{gateway.api_url}/v1/messages/batch"
    first = {"messages": [{"to": "+447700900149", "text": "x", "application": "held"}]}  # makes the application
    status, answer = ask("POST", send, json.dumps(first).encode(), headers | {"Idempotency-Key": "first"})
    assert status == 202
    sent = answer["results"][0]["message"]["id"]
    wait_for(lambda: gateway.message(sent)["final"], 30.0)  # the pause would hold it too
    assert ask("POST", f"{gateway.api_url}/v1/applications/held/pause", b"", headers)[0] == 200
    assert ask("POST", send, json.dumps({"messages": messages}).encode(), headers)[0] == 202
    shutil.rmtree(gateway.data_dir.parent / "restored", ignore_errors=True)
    told = run("docs/operations.md")
    assert "nothing to do" in told
    assert re.search(r"^under review +3 transactional\npaused carriers +simulator$", told, re.MULTILINE), told[-3000:]
    assert re.search(r"^settled now +3 messages$", told, re.MULTILINE)
    assert re.search(r"^resumed now +simulator\nunder review +nothing\npaused carriers +none$", told, re.MULTILINE)


def test_readme(run: Run) -> None:
    assert '"status":"queued"' in run("README.md")
