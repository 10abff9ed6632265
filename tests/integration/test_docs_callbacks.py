"""The Python examples of docs/receive-callbacks.md, run as they stand there against the gateway's own client."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest

from gateway.callbacks.client import Client
from gateway.callbacks.signing import Signer
from gateway.domain.ids import uuid7
from gateway.inbound.joiner import _opt_out, _shown
from gateway.ledger.inbound import Handed
from gateway.policy.demo import demo_policy
from gateway.policy.rules.parse import read_policy

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "receive-callbacks.md").read_text(encoding="utf-8")
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def example(name: str) -> str:
    """A code block by the file name in its first line."""
    return next(block for block in re.findall(r"```(?:python|js)\n(.*?)```", PAGE, re.DOTALL) if name in block[:40])


@contextmanager
def receiver(command: list[str], folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    """An example as a server; what it prints stands in the file."""
    source, printed = folder / name, folder / "printed"
    source.write_text(example(name), encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = dict(os.environ) | {"CALLBACK_SECRET": SECRET, "PORT": str(port)}
    with printed.open("wb") as out:
        process = subprocess.Popen([*command, str(source)], env=environment, stdout=out, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < until and process.poll() is None
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/hooks", printed
    finally:
        process.kill()
        process.wait()


async def tell(
    url: str,
    seq: int,
    *,
    secrets: tuple[str, ...] = (SECRET,),
    kind: str = "message.delivered",
    data: Mapping[str, Any] | None = None,
    **wrong: Any,
) -> int | None:
    """One callback as the gateway sends it; `wrong` changes it after it was signed."""
    shown = {**(data or {"id": "msg_1", "status": "delivered"}), "seq": seq}
    body = orjson.dumps({"type": kind, "timestamp": "2030-01-31T09:00:00.000Z", "data": shown})
    now_at = int(time.time() * 1000) + int(wrong.pop("shift_ms", 0))
    headers = Signer(secrets).headers(uuid4(), body, now_at) | {k: v for k, v in wrong.items() if k != "body"}
    async with Client() as client:
        answer = await client.post(
            url, wrong.get("body", body), headers, allow_private=True, timeout_ms=10_000, now_at=now_at
        )
    return answer.status


async def check_receiver(url: str, printed: Path) -> None:
    """Good calls are taken, an old `seq` is dropped, forged and stale ones are refused."""
    other = "whsec_bmV3LXNlY3JldC1vZi0zMi1vY3RldHMtbG9uZy1oZXJlIQ=="
    assert await tell(url, 2) == 204
    assert await tell(url, 1) == 204
    assert await tell(url, 3, secrets=(other, SECRET)) == 204
    assert await tell(url, 4, secrets=(other,)) == 401
    assert await tell(url, 5, body=b'{"type":"message.delivered","data":{"id":"msg_1","seq":5}}') == 401
    assert await tell(url, 6, shift_ms=-600_000) == 401
    assert await tell(url, 7, **{"webhook-id": "evt_0"}) == 401
    assert await tell(url, 8, **{"webhook-timestamp": "x"}) == 401
    assert printed.read_text().split() == ["message.delivered", "msg_1", "delivered"] * 2
    # Two people say stop: the texts and the opt-outs are four events, and a repeat of one is none.
    now_at = 1_896_080_400_000
    for n in (1, 2, 2):
        one = Handed(uuid7(now_at + n, bytes(10)), 1, "p", f"+44770090000{n}", "60070", "STOP", now_at, keyword="stop")
        assert await tell(url, 1, kind="message.received", data=_shown(one)) == 204
        assert await tell(url, 1, kind="optout.created", data=_opt_out(one, now_at)) == 204
    told = [line.split()[0] for line in printed.read_text().splitlines()[2:]]
    assert told == ["message.received", "optout.created"] * 2


async def test_the_python_receiver_takes_what_is_ours_and_nothing_else(tmp_path: Path) -> None:
    with receiver([sys.executable], tmp_path, "receive.py") as (url, printed):
        await check_receiver(url, printed)


def test_the_library_example_verifies() -> None:
    spaces: dict[str, Any] = {}
    exec(compile(example("verify_with_library.py"), "verify_with_library.py", "exec"), spaces)
    body = b'{"type":"message.delivered","data":{}}'
    headers = Signer([SECRET]).headers(uuid4(), body, int(time.time() * 1000))
    assert spaces["event_of"](SECRET, body, headers)["type"] == "message.delivered"
    with pytest.raises(Exception, match="signature"):
        spaces["event_of"](SECRET, body + b" ", headers)


def test_the_demo_s_policy_takes_the_receiver_of_try_it(tmp_path: Path) -> None:
    (tmp_path / "hooks.yaml").write_text(demo_policy(2775))
    (command,) = re.findall(r"^sed -i .*hooks\.yaml$", PAGE, re.MULTILINE)
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    target = read_policy((tmp_path / "hooks.yaml").read_text()).tenants["demo"].callbacks
    assert target is not None and target.url == "http://127.0.0.1:9000" and target.allow_private
    assert target.secrets == (f"file:{tmp_path}/callback.secret",)


def test_the_policy_examples_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    rest = (
        "providers: {a: {sessions: {a1: {host: h, port: 1, system_id: a, password: b, bind: transceiver}}}}\n"
        "routes: {main: {match: {}, provider: a}}\n"
    )
    first, second = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert read_policy(first + rest).tenants["acme"].callbacks is not None
    rotating = read_policy("tenants:\n  acme:\n" + second + rest).tenants["acme"].callbacks
    assert rotating is not None and len(rotating.secrets) == 2
