"""What every locust user of ours needs: a tenant's key, the door's manners, a journal, an endpoint for callbacks.

Statistics are named by class and answer ("otp 202", "marketing 503"). A refusal is not a failure of the run. Failures
are: another status, a 429 or 503 without a usable Retry-After, a repeated key that is answered with another message.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import gevent
from gevent.pywsgi import WSGIServer
from locust import FastHttpUser, events
from locust.env import Environment

SLUICEGATE = Path(sys.executable).with_name("sluicegate")
_ACCEPTED_MAX = 100_000  # messages whose callback is timed

_keys: dict[str, str] = {}
_accepted_mono: dict[str, float] = {}
_journal: BinaryIO | None = None
_sink: WSGIServer | None = None
_run = f"{os.getpid():x}{int(time.time()) & 0xFFFFFF:06x}"
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Told:
    """One answer of the door. `retry_after_s` is None where there is none that can be used."""

    status: int
    retry_after_s: int | None
    body: Any
    replayed: bool


@events.init_command_line_parser.add_listener
def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--data-dir", default=".sluicegate", help="data directory of the running gateway")
    parser.add_argument("--keys", default="", metavar="FILE", help="JSON of tenant to key; else keys are made")
    parser.add_argument("--journal", default="", metavar="FILE", help="one line of JSON per request")
    parser.add_argument("--callback-port", type=int, default=0, help="take the tenants' callbacks on this port")


@events.init.add_listener
def _begin(environment: Environment, **_: Any) -> None:
    global _journal, _sink  # noqa: PLW0603 - a locust process has one of each
    options = environment.parsed_options or Namespace(keys="", journal="", data_dir=".sluicegate", callback_port=0)
    if options.keys:
        _keys.update(json.loads(Path(options.keys).read_text()))
    if not environment.host:
        with suppress(OSError, ValueError, KeyError):
            environment.host = json.loads((Path(options.data_dir) / "run.json").read_text())["api_url"]
    make_keys((one.tenant for one in environment.user_classes if issubclass(one, TenantUser)), options.data_dir)
    if options.journal:
        _journal = Path(options.journal).open("ab", buffering=0)  # noqa: SIM115 - closed by _end
    if options.callback_port:
        _sink = WSGIServer(("127.0.0.1", options.callback_port), _Endpoint(environment), log=None)
        _sink.start()


@events.quitting.add_listener
def _end(environment: Environment, **_: Any) -> None:
    if _sink is not None:
        _sink.stop(timeout=1)
    if _journal is not None:
        _journal.close()


def make_keys(tenants: Iterable[str], data_dir: str) -> None:
    """A key for each tenant that has none yet, through the command line; accounts that are missing are created."""
    wanted = sorted(set(tenants) - set(_keys))
    for again in (False, True):
        makers = {tenant: _command("key", "create", tenant, "--data-dir", data_dir) for tenant in wanted}
        for tenant, maker in makers.items():
            written, complaint = maker.communicate(timeout=60)
            if maker.returncode == 0:
                _keys[tenant] = written.strip()
            elif again:
                raise RuntimeError(f"no key for {tenant}: {complaint.strip()}")
        wanted = [tenant for tenant in wanted if tenant not in _keys]
        for tenant in wanted:
            _command("tenant", "create", tenant, "--data-dir", data_dir).communicate(timeout=60)


def _command(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([str(SLUICEGATE), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def new_ref() -> str:
    """A reference that no other message of any run has: idempotency key and `client_ref`."""
    return f"{_run}-{next(_numbers):07d}"


def new_number() -> str:
    """Some handset of the range kept for fiction and tests."""
    return f"+4477{next(_numbers) % 100_000_000:08d}"


class TenantUser(FastHttpUser):
    """A client of one tenant."""

    abstract = True
    tenant = "small"
    network_timeout = 30.0
    connection_timeout = 30.0

    def on_start(self) -> None:
        """Takes its key."""
        self.key = _keys[self.tenant]

    def post(self, path: str, key: str, body: Any, name: str, *, also: tuple[int, ...] = ()) -> Told:
        """One request; `also`: statuses that are expected besides 202, 429 and 503."""
        raw = json.dumps(body)
        headers = {
            "Authorization": f"Bearer {self.key}", "Idempotency-Key": key, "Content-Type": "application/json",
            "Accept-Encoding": "identity",
        }  # fmt: skip
        began_ns = time.monotonic_ns()
        with self.client.post(path, data=raw, headers=headers, catch_response=True) as answer:
            ended_ns = time.monotonic_ns()
            answer.request_meta["name"] = f"{name} {answer.status_code}"
            told = _read(answer)
            if answer.status_code not in (202, 429, 503, *also):
                answer.failure(f"{answer.status_code} {told.body.get('code') or answer.error}")
            elif answer.status_code in (429, 503) and told.retry_after_s is None:
                answer.failure("no usable Retry-After")
            else:
                answer.success()
        _note(self, key, told, (began_ns, ended_ns), len(body["messages"]) if "messages" in body else 1)
        return told

    def submit(self, fields: dict[str, Any], *, patience_s: float = 60.0) -> Told:
        """One message, as an obedient client: refused, it comes again at its Retry-After with the same key."""
        ref, until_mono = new_ref(), time.monotonic() + patience_s
        body = {"to": new_number(), "client_ref": ref, **fields}
        while True:
            told = self.post("/v1/messages", ref, body, str(fields.get("class", "default")))
            pause_s = told.retry_after_s or 1
            if told.status not in (429, 503) or time.monotonic() + pause_s > until_mono:
                return told
            gevent.sleep(pause_s)

    def complain(self, name: str, what: str) -> None:
        """A broken promise: a failure in the statistics."""
        self.environment.events.request.fire(
            request_type="PROMISE", name=name, response_time=0, response_length=0, exception=AssertionError(what),
            context={},
        )  # fmt: skip


def _read(answer: Any) -> Told:
    try:
        body = json.loads(answer.content or b"{}")
    except ValueError:
        body = {}
    wait = str((answer.headers or {}).get("Retry-After", ""))
    usable = int(wait) if wait.isdecimal() and int(wait) >= 1 else None
    replayed = (answer.headers or {}).get("Idempotent-Replayed") == "true"
    return Told(answer.status_code, usable, body, replayed)


def _note(user: TenantUser, key: str, told: Told, took_ns: tuple[int, int], messages: int) -> None:
    made = [told.body] if "id" in told.body else [one["message"] for one in _results(told) if one["status"] == 202]
    if told.status == 202 and len(_accepted_mono) < _ACCEPTED_MAX:
        for message in made:
            _accepted_mono.setdefault(message["id"], time.monotonic())
    if _journal is None:
        return
    refused = [one["problem"] for one in _results(told) if one["status"] != 202]
    line = {
        "user": type(user).__name__, "tenant": user.tenant, "key": key, "began_ns": took_ns[0], "ended_ns": took_ns[1],
        "status": told.status, "code": told.body.get("code", ""), "retry_after_s": told.retry_after_s,
        "messages": messages, "accepted": [message["id"] for message in made],
        "refused": [[problem["status"], problem["code"], problem.get("retry_after_s")] for problem in refused],
    }  # fmt: skip
    _journal.write(json.dumps(line).encode() + b"\n")


def _results(told: Told) -> list[Any]:
    results: list[Any] = told.body.get("results", [])
    return results


class _Endpoint:
    """Takes callbacks; each is a request of type CALLBACK in the statistics, timed from the 202."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def __call__(self, request: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        raw = request["wsgi.input"].read()
        notice = json.loads(raw)
        began_mono = _accepted_mono.pop(notice["data"].get("id", ""), None)
        took_ms = 0.0 if began_mono is None else (time.monotonic() - began_mono) * 1000
        self._environment.events.request.fire(
            request_type="CALLBACK", name=notice["type"], response_time=took_ms, response_length=len(raw),
            exception=None, context={},
        )  # fmt: skip
        start("204 No Content", [])
        return []
