"""The road against an SMSC that is not ours: npm `smpp` as the carrier of a real `sluicegate up`."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.running_gateway import RunningGateway, ask, wait_for
from tests.interop.node import Node

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]
POLICY = """\
tenant_defaults:
  limits: {{rate_per_s: 100, burst: 100}}
  classes: [otp, transactional]
  default_class: transactional
  default_sender: Interop
tenants: {{demo: {{}}}}
providers:
  node:
    limits: {{rate_per_s: 100, burst: 100}}
    sessions:
      node-1: {{host: 127.0.0.1, port: {port}, system_id: interop, password: "env:INTEROP_PASSWORD", bind: transceiver, window: 10, enquire_link: 2s}}
routes:
  everywhere: {{match: {{}}, provider: node}}
"""  # noqa: E501 - a line of YAML


class NodeCarrier(Node):
    """The Node process as a carrier; `port` once it listens."""

    def __init__(self) -> None:
        super().__init__("server.js")
        self.port = int(wait_for(lambda: self.told("listening"), 20)[0]["port"])


@pytest.fixture(scope="module")
def carrier() -> Iterator[NodeCarrier]:
    node = NodeCarrier()
    yield node
    node.stop()


@pytest.fixture(scope="module")
def gateway(carrier: NodeCarrier) -> Iterator[RunningGateway]:
    parent = Path(tempfile.mkdtemp(prefix="sluicegate-interop-"))
    parent.chmod(0o711)
    policy = parent / "policy.yaml"
    policy.write_text(POLICY.format(port=carrier.port))
    running = RunningGateway(
        parent / "data", "--policy", str(policy), environment={"INTEROP_PASSWORD": "interop"}
    ).start()
    yield running
    running.stop()
    shutil.rmtree(parent, ignore_errors=True)


def submit(gateway: RunningGateway, key: str, **fields: Any) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {gateway.key}", "Idempotency-Key": key}
    status, message = ask("POST", f"{gateway.api_url}/v1/messages", json.dumps(fields).encode(), headers)
    assert status == 202, message
    return dict(message)


def delivered(gateway: RunningGateway, message: dict[str, Any]) -> Any:
    def look() -> Any:
        found = gateway.message(message["id"])
        return found if found["final"] else None

    found = wait_for(look, 30, gateway.tell)
    assert found["status"] == "delivered", found
    return found


def test_one_message_is_delivered(gateway: RunningGateway, carrier: NodeCarrier) -> None:
    message = delivered(gateway, submit(gateway, "one", to="+393331234567", text="Ciao €5 [x]", **{"class": "otp"}))
    assert message["delivery"]["provider"] == "node"
    taken = next(one for one in carrier.told("submit_sm") if one["destination"].endswith("393331234567"))
    assert taken["text"] == "Ciao €5 [x]"
    assert taken["source"] == "Interop"
    assert taken["registered_delivery"] == 1
    answered = wait_for(lambda: [one for one in carrier.told("deliver_sm_resp") if one["id"] == taken["id"]], 10)
    assert answered[0]["status"] == 0


def test_other_alphabets_arrive(gateway: RunningGateway, carrier: NodeCarrier) -> None:
    text = "Привет 😀"
    delivered(gateway, submit(gateway, "ucs2", to="+393331234568", text=text))
    taken = next(one for one in carrier.told("submit_sm") if one["destination"].endswith("393331234568"))
    assert (taken["text"], taken["data_coding"]) == (text, 8)


def test_a_long_message_arrives_in_parts(gateway: RunningGateway, carrier: NodeCarrier) -> None:
    text = "0123456789" * 35
    message = delivered(gateway, submit(gateway, "long", to="+393331234569", text=text))
    assert message["segments"] == 3
    parts = [one for one in carrier.told("submit_sm") if one["destination"].endswith("393331234569")]
    assert "".join(part["text"] for part in sorted(parts, key=lambda part: part["parts"][-1])) == text
    assert {part["parts"][-2] for part in parts} == {3}
    assert len({part["parts"][-3] for part in parts}) == 1


def test_many_messages_in_one_batch(gateway: RunningGateway) -> None:
    body = {"defaults": {"text": "batch"}, "messages": [{"to": f"+39333200{n:04d}"} for n in range(50)]}
    headers = {"Authorization": f"Bearer {gateway.key}", "Idempotency-Key": "batch-1"}
    status, answer = ask("POST", f"{gateway.api_url}/v1/messages/batch", json.dumps(body).encode(), headers)
    assert status == 202, answer
    for result in answer["results"]:
        assert result["status"] == 202
        delivered(gateway, result["message"])


def test_the_link_is_kept_alive(gateway: RunningGateway, carrier: NodeCarrier) -> None:
    wait_for(lambda: carrier.told("enquire_link"), 20)
    assert carrier.told("error") == []
    assert all(one["password_ok"] for one in carrier.told("bind_transceiver"))


def test_the_end_unbinds(gateway: RunningGateway, carrier: NodeCarrier) -> None:
    assert gateway.stop() == 0
    assert gateway.left_over() == []
    wait_for(lambda: carrier.told("unbind"), 5)
