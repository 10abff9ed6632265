"""Canaries: a text, a number, a key and a password that exist once, sent down every path, errors and DEBUG included.

Afterwards everything that the gateway wrote is read as octets: logs, pages, the index, every column of the ledger,
the database's files as they lie on the disk. A text and a secret are nowhere; a number only where it has to be.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import redis

from gateway.supervisor.addresses import free_port
from tests.integration.running_gateway import ROOT, RunningGateway, ask, wait_for

TEXT = "Qx7canaryTextZv"
HANDSET_TEXT = "Wy8canaryReplyTu"
NUMBER = "+447700900731"
HANDSET = "+447700900732"
PASSWORD = "cnryPw9x"  # at most 8 octets, by the protocol
CALLBACK_SECRET = "whsec_" + b64encode(b"canary-callback-secret-0123456789").decode()
DATA_KEY = "c4" * 32
POLICY = """
tenants:
  bird:
    classes: [otp, transactional, marketing]
    default_class: transactional
    default_sender: "60070"
    inbound_numbers: ["60070"]
    callbacks: {{url: "http://127.0.0.1:{dead}/hooks", secrets: [env:BIRD_CALLBACK_SECRET], events: [all], allow_private: true}}
providers:
  cage:
    dialect: {{receipt_ids: as_is}}
    sessions:
      c1: {{host: 127.0.0.1, port: {carrier}, system_id: bird, password: env:BIRD_PASSWORD, bind: transceiver, window: 10}}
      c2: {{host: 127.0.0.1, port: {wrong}, system_id: bird, password: env:BIRD_PASSWORD, bind: transceiver, window: 10}}
routes:
  all: {{match: {{}}, provider: cage}}
"""  # noqa: E501 - lines of YAML
CARRIER = """
answer_delay_ms: 5
receipt_delay_ms: 20
actions:
  - {{after_bind_s: 0.2, do: inbound, source: "{handset}", destination: "60070", text: "{text}"}}
  - {{after_bind_s: 0.3, do: inbound, source: "{handset}", destination: "60070", text: "STOP"}}
"""
# Where a number may stand in clear, for as long as the policy says.
NUMBERS_ALLOWED = {
    ("messages", "recipient"), ("carrier_ids", "recipient"), ("receipts", "recipient"),
    ("unnamed_submits", "recipient"),
    ("idempotency", "answer"), ("callbacks", "body"), ("inbound", "sender"), ("inbound_parts", "sender"),
    ("opt_outs", "recipient"), ("opt_ins", "recipient"), ("list_imports", "source"), ("erasures", "number"),
}  # fmt: skip


@dataclass
class Aviary:
    """A gateway that has seen everything, and what it must not repeat."""

    gateway: RunningGateway
    key: str

    @property
    def secrets(self) -> dict[str, bytes]:
        return {
            "text": TEXT.encode(),
            "handset's text": HANDSET_TEXT.encode(),
            "text as UCS-2": TEXT.encode("utf-16-be"),
            "text in base64": b64encode(TEXT.encode())[:16],
            "key": self.key.rsplit("_", 1)[-1].encode(),
            "password": PASSWORD.encode(),
            "callback secret": CALLBACK_SECRET.removeprefix("whsec_").encode(),
            "data key": DATA_KEY.encode(),
        }

    @property
    def numbers(self) -> list[bytes]:
        return [number.removeprefix("+").encode() for number in (NUMBER, HANDSET)]


def send(gateway: RunningGateway, key: str, body: Any, idempotency: str | None, query: str = "") -> int:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    if idempotency is not None:
        headers["Idempotency-Key"] = idempotency
    octets = body if isinstance(body, bytes) else json.dumps(body).encode()
    path = "/v1/messages/batch" if isinstance(body, dict) and "messages" in body else "/v1/messages"
    return ask("POST", f"{gateway.api_url}{path}{query}", octets, headers)[0]


def fly(gateway: RunningGateway, key: str) -> None:
    """Every path that a text can take through the door, good and bad."""
    good = {"to": NUMBER, "text": TEXT, "client_ref": "r1", "metadata": {"order": "4711"}}
    codes = [
        send(gateway, key, good, "one"),
        send(gateway, key, good, "one"),
        send(gateway, key, good | {"text": TEXT + " other"}, "one"),
        send(gateway, key, good | {"class": "otp"}, "two"),
        send(gateway, key, good | {"encoding": "ucs2"}, "three"),
        send(gateway, key, good | {"text": (TEXT + " ") * 30}, "four"),
        send(gateway, key, good | {"send_at": "2099-01-01T00:00:00Z"}, "five"),
        send(gateway, key, good | {"to": NUMBER + "x"}, "six"),
        send(gateway, key, good | {TEXT: TEXT}, "seven"),
        send(gateway, key, good | {"text": TEXT + "\x00"}, "eight"),
        send(gateway, key, good | {"encoding": "gsm7", "text": TEXT + "Ж"}, "nine"),
        send(gateway, key, good | {"from": "NOBODYKNOWSME"}, "ten"),
        send(gateway, key, good, None),
        send(gateway, key, good, "k" * 300),
        send(gateway, key, good, "dry", "?dry_run=true"),
        send(gateway, key, b'{"to":"' + NUMBER.encode() + b'","text":"' + TEXT.encode() + b'"', "cut"),
        send(gateway, key, b'{"text":"' + TEXT.encode() + b'","text":"x"}', "twice"),
        send(gateway, key, b'{"text":"' + TEXT.encode() * 6_000 + b'"}', "large"),
        send(gateway, key + "x", good, "wrong"),
        send(gateway, "sg_" + TEXT, good, "wrong"),
        send(gateway, key, {"messages": [good, good | {"to": "nobody"}, good | {"class": TEXT}]}, "batch"),
    ]
    assert codes[:3] == [202, 202, 422], codes
    assert codes.count(202) >= 6 and not [code for code in codes if code >= 500], codes
    done = gateway.command("send", "--tenant", "bird", "--to", NUMBER, "--text", TEXT, "--wait")
    assert done.returncode == 0, done.stderr
    failed = gateway.command("send", "--tenant", "bird", "--to", "12", "--text", TEXT)
    assert failed.returncode == 1 and TEXT not in failed.stderr + failed.stdout


@pytest.fixture(scope="module")
def aviary() -> Iterator[Aviary]:
    parent = Path(tempfile.mkdtemp(prefix="sluicegate-canary-"))
    parent.chmod(0o711)
    carrier, wrong, dead = free_port(), free_port(), free_port()
    (parent / "policy.yaml").write_text(POLICY.format(carrier=carrier, wrong=wrong, dead=dead))
    (parent / "carrier.yaml").write_text(CARRIER.format(handset=HANDSET.removeprefix("+"), text=HANDSET_TEXT))
    words = ["carrier-sim", "--port", str(carrier), "--script", str(parent / "carrier.yaml")]
    simulator = subprocess.Popen(
        [sys.executable, "-m", "gateway.cli", *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    environment = {
        "BIRD_PASSWORD": PASSWORD,
        "BIRD_CALLBACK_SECRET": CALLBACK_SECRET,
        "SLUICEGATE_LOG_LEVEL": "debug",
        "SLUICEGATE_DATA_KEY": DATA_KEY,
    }
    running = RunningGateway(parent / "data", "--policy", str(parent / "policy.yaml"), environment=environment).start()
    try:
        key = running.command("key", "create", "bird", "--scope", "send", "--scope", "read", "--scope", "manage").stdout
        made = Aviary(running, key.strip())
        fly(running, made.key)
        headers = {"Authorization": f"Bearer {made.key}"}
        listing = f"{running.api_url}/v1/messages?status=delivered"
        wait_for(lambda: len(ask("GET", listing, None, headers)[1]["data"]) >= 6, 30, running.tell)
        inbound = f"{running.api_url}/v1/inbound"
        texts = wait_for(lambda: len(found := ask("GET", inbound, None, headers)[1]["data"]) == 2 and found, 30)
        assert {one["text"] for one in texts} == {HANDSET_TEXT, "STOP"}
        yield made
    finally:
        running.stop()
        simulator.send_signal(signal.SIGTERM)
        simulator.wait(20)
        shutil.rmtree(parent, ignore_errors=True)


def found_in(octets: bytes, needles: dict[str, bytes]) -> list[str]:
    return [name for name, needle in needles.items() if needle in octets]


def test_logs_and_output_hold_no_canary(aviary: Aviary) -> None:
    gateway = aviary.gateway
    needles = aviary.secrets | {f"number {at}": number for at, number in enumerate(aviary.numbers)}
    files = [gateway.output, gateway.errors, *gateway.data_dir.glob("logs/*")]
    written = {path.name: path.read_bytes() for path in files}
    assert {"api-1.log", "egress-1.log", "delivery-1.log"} <= {name for name, octets in written.items() if octets}
    assert {name: found for name, octets in written.items() if (found := found_in(octets, needles))} == {}


def test_pages_hold_no_canary(aviary: Aviary) -> None:
    gateway = aviary.gateway
    needles = aviary.secrets | {f"number {at}": number for at, number in enumerate(aviary.numbers)}
    pages = [ask("GET", f"{gateway.operators_url}{path}")[1] for path in ("/metrics", "/healthz", "/readyz")]
    pages.append(gateway.command("status", "--json").stdout)
    pages.append(gateway.command("policy", "show").stdout)
    assert found_in(json.dumps(pages).encode(), needles) == []


def test_the_index_holds_no_canary(aviary: Aviary) -> None:
    run = json.loads((aviary.gateway.data_dir / "run.json").read_text())
    needles = aviary.secrets | {f"number {at}": number for at, number in enumerate(aviary.numbers)}
    with redis.Redis.from_url(run["redis_url"]) as client:
        keys = list(client.scan_iter(count=1000))
        assert keys
        dumped = b"".join(key + (client.dump(key) or b"") for key in keys)
    assert found_in(dumped, needles) == []


async def _columns(url: str) -> dict[tuple[str, str], bytes]:
    """All that stands in each column, as octets."""
    conn = await asyncpg.connect(url)
    try:
        names = await conn.fetch(
            "SELECT c.relname AS name, a.attname AS column, t.typname AS type FROM pg_class c"
            " JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid"
            " WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped"
            " AND c.relnamespace = 'public'::regnamespace"
        )
        found = {}
        for row in names:
            cast = row["column"] if row["type"] == "bytea" else f"convert_to({row['column']}::text, 'UTF8')"
            values = await conn.fetch(f"SELECT {cast} AS value FROM {row['name']}")
            found[row["name"], row["column"]] = b"\n".join(one["value"] or b"" for one in values)
        return found
    finally:
        await conn.close()


def test_the_ledger_holds_numbers_only_where_it_must_and_texts_nowhere(aviary: Aviary) -> None:
    run = json.loads((aviary.gateway.data_dir / "run.json").read_text())
    columns = asyncio.run(_columns(run["database_url"]))
    assert len(columns) > 100 and columns["messages", "body"]
    assert {place: found for place, octets in columns.items() if (found := found_in(octets, aviary.secrets))} == {}
    places = {place for place, octets in columns.items() if any(number in octets for number in aviary.numbers)}
    assert ("messages", "recipient") in places and ("inbound", "sender") in places
    assert places <= NUMBERS_ALLOWED


def test_the_disk_holds_no_text_and_no_secret(aviary: Aviary) -> None:
    stores = (aviary.gateway.data_dir / "stores").resolve()
    assert aviary.gateway.stop() == 0  # whatever PostgreSQL still held in memory is on the disk then
    looked, found = 0, {}
    for directory, _, names in os.walk(stores):
        for name in names:
            path = Path(directory) / name
            if path.is_file() and not path.is_socket():
                octets = path.read_bytes()
                looked += len(octets)
                if hit := found_in(octets, aviary.secrets):
                    found[str(path.relative_to(stores))] = hit
    assert looked > 10_000_000
    assert found == {}
