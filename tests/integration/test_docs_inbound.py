"""docs/inbound-and-opt-outs.md on a whole gateway: a handset says stop, the commands of the page do what it says."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.running_gateway import RunningGateway, ask, wait_for

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "inbound-and-opt-outs.md").read_text(encoding="utf-8")
SCRIPT = """
port: {port}
actions:
  - {{after_bind_s: 0, do: inbound, source: "447700900999", destination: "60070", text: " Stop! "}}
  - {{after_bind_s: 0, do: inbound, source: "447700900996", destination: "60099", text: "whose number is this?"}}
  - {{after_bind_s: 0, do: inbound, source: "447700900998", destination: "60070", text: "Привет 😀, {{n}}"}}
  - {{after_bind_s: 0, do: inbound, source: "447700900997", destination: "60070", long_messages: udh16, backwards: true,
     text: "A text that is too long for one part, because it tells everything twice and then once more, and goes on and on until nobody wants to read it any more, not even its author."}}
"""  # noqa: E501
POLICY = """
tenants:
  acme: {{classes: [transactional, marketing], default_class: transactional, default_sender: "60070", inbound_numbers: ["60070"]}}
providers:
  carrier: {{sessions: {{c1: {{host: 127.0.0.1, port: {port}, system_id: a, password: b, bind: transceiver}}}}}}
routes:
  main: {{match: {{}}, provider: carrier}}
"""  # noqa: E501


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[tuple[RunningGateway, str]]:
    """A gateway with a carrier whose subscribers write at once; and a key of the tenant with every scope."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "script.yaml").write_text(SCRIPT.format(port=port), encoding="utf-8")
    (tmp_path / "policy.yaml").write_text(POLICY.format(port=port), encoding="utf-8")
    carrier = subprocess.Popen(
        [sys.executable, "-m", "gateway.cli", "carrier-sim", "--script", str(tmp_path / "script.yaml")],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    running = RunningGateway(tmp_path / "data", "--policy", str(tmp_path / "policy.yaml")).start()
    try:
        made = running.command("key", "create", "acme", "--scope", "send", "--scope", "read", "--scope", "manage")
        yield running, made.stdout.strip()
    finally:
        running.stop()
        carrier.kill()
        carrier.wait()


def test_the_page_is_true(gateway: tuple[RunningGateway, str], tmp_path: Path) -> None:
    running, key = gateway
    headers = {"Authorization": f"Bearer {key}"}

    def texts() -> dict[str, str]:
        page = ask("GET", f"{running.api_url}/v1/inbound", None, headers)[1]
        return {one["from"]: one["text"] for one in page["data"]}

    found = wait_for(lambda: len(texts()) == 3 and texts(), 30, texts)
    assert found["+447700900999"] == " Stop! " and found["+447700900998"].startswith("Привет 😀")
    assert found["+447700900997"].startswith("A text that") and found["+447700900997"].endswith("its author.")
    status, entry = ask("GET", f"{running.api_url}/v1/opt-outs/+447700900999", None, headers)
    assert (status, entry["sender"], entry["source"]) == (200, "60070", "inbound")

    def send(to: str, name: str) -> tuple[int, object]:
        body = f'{{"to": "{to}", "text": "offer", "class": "{name}"}}'.encode()
        status, answer = ask(
            "POST", f"{running.api_url}/v1/messages", body, headers | {"Idempotency-Key": to[1:] + name}
        )
        return status, answer.get("code")

    assert send("+447700900999", "marketing") == (422, "policy.opted_out")
    assert send("+447700900999", "transactional") == (202, None)
    commands = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
    shell = "\n".join(["set -e", f"KEY={key}", f"API={running.api_url}", *commands])
    shell = shell.replace("curl ", "curl --silent --show-error --fail-with-body ").replace(
        "2030-01-01&to=2030-01-31", ""
    )
    done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"status":"done","rows":2,"rows_done":2,"added":2' in done.stdout
    assert send("+447700900126", "marketing") == (422, "policy.opted_out")
    assert send("+447700900124", "marketing") == (202, None)
    admin = running.command("key", "create", "--admin").stdout.strip()
    operators = {"Authorization": f"Bearer {admin}", "Content-Type": "application/json"}
    unowned = ask("GET", f"{running.operators_url}/admin/inbound", None, operators)[1]["data"]
    assert [(one["recipient"], one["messages"]) for one in unowned] == [("60099", 1)]
    assert ask("GET", f"{running.operators_url}/admin/callbacks", None, operators) == (200, {"data": []})
    replay = f"{running.operators_url}/admin/callbacks/{{}}/replay"
    since = b'{"since": "2030-01-31T09:00:00Z"}'
    assert ask("POST", replay.format("acme"), since, operators) == (200, {"tenant": "acme", "replayed": 0})
    assert ask("POST", replay.format("nobody"), since, operators)[0] == 404
    assert ask("POST", replay.format("acme"), b"{}", operators)[0] == 422
