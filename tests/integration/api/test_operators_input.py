"""The operators' port and input that is wrong: always a problem with a code, never 500."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from yarl import URL

from gateway.api import authentication
from gateway.ledger import tenants
from gateway.operators.app import build_app
from gateway.operators.desk import Desk
from gateway.operators.server import OperatorsServer
from tests.integration.api.conftest import Gateway

SINCE = {"since": "2026-01-01T00:00:00Z"}
WRONG: list[tuple[str, str, Any, int]] = [
    ("POST", "callbacks/%00/replay", SINCE, 422),
    ("POST", "callbacks/nobody/replay", SINCE, 404),
    ("POST", "callbacks/acme/replay", {"since": ["x"]}, 422),
    ("GET", "applications/%00", None, 422),
    ("GET", "applications/nobody", None, 404),
    ("POST", "applications/acme/%00/pause", None, 422),
    ("POST", "applications/%00/x/pause", None, 422),
    ("POST", "applications/acme/never%2Fseen/cancel", None, 404),
    ("POST", "routes/%00/pause", None, 404),
    ("POST", "sessions/never/drain", None, 404),
    ("GET", "numbers/%00", None, 422),
    ("DELETE", "numbers/nobody", None, 422),
    ("GET", "messages/%00/explain", None, 404),
    ("GET", "policy/", None, 404),
    ("POST", "tenants/", {"name": "x"}, 404),
    ("DELETE", "keys/%00", None, 422),
    ("DELETE", "keys/0123456789ab", None, 404),
    ("POST", "messages", {"tenant": "\0"}, 422),
    ("POST", "messages", {"tenant": ["acme"]}, 422),
    ("POST", "tenants", {"name": "a/b"}, 422),
    ("POST", "tenants", {"name": "\0"}, 422),
    *(
        ("POST", "keys", wish, 422)
        for wish in (
            {"tenant": "\0"},
            {"tenant": ["acme"]},
            {"tenant": "acme", "scopes": {"send": 1}},
            {"tenant": "acme", "scopes": "send"},
            {"tenant": "acme", "scopes": [1]},
            {"tenant": "acme", "cidrs": [1]},
            {"tenant": "acme", "expires_at": "soon"},
            {"tenant": "acme", "expires_at": True},
            {"tenant": "acme", "expires_at": 2**63},
            {"tenant": "acme", "expires_at": 1.5},
            {"tenant": "acme", "admin": True},
            [],
            b'{"tenant":"nobody","tenant":"acme"}',
            b'{"tenant":"acme","expires_at":NaN}',
            b'{"tenant":"acme","expires_at":1e400}',
            b'{"tenant":"\\ud800"}',
            b'{"tenant":"acme","scopes":' + b"[" * 30_000,
            b'{"tenant":"acme"}x',
            "\ufeff{}".encode(),
            b"",
        )
    ),
]


@pytest.fixture
async def ask(gateway: Gateway) -> AsyncIterator[Any]:
    """Asks the operators' port of the running role: (method, path below /admin, body)."""
    listener = socket.create_server(("127.0.0.1", 0))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}/admin/"

    async def asked(method: str, path: str, body: Any = None) -> tuple[int, str, bytes]:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": "Bearer operator"}
        async with gateway.session.request(method, URL(base + path, encoded=True), data=data, headers=headers) as reply:
            return reply.status, reply.headers.get("content-type", ""), await reply.read()

    asked.base = base  # type: ignore[attr-defined]
    async with OperatorsServer(build_app(Desk(gateway.rt, token="operator")), listener):
        yield asked


async def test_wrong_input_is_told_and_breaks_nothing(gateway: Gateway, ask: Any) -> None:
    keys_before = await gateway.count("api_keys")
    for method, path, body, status in WRONG:
        got, kind, octets = await ask(method, path, body)
        assert (got, kind) == (status, "application/problem+json"), (method, path, body, octets)
        assert json.loads(octets)["code"] in ("request.invalid", "not_found")
    for method, path in (("PUT", "keys"), ("GET", "policy/rollback/1")):
        got, kind, octets = await ask(method, path)
        assert (got, kind, json.loads(octets)["code"]) == (405, "application/problem+json", "method_not_allowed")
    assert await gateway.count("api_keys") == keys_before


async def test_an_application_with_a_slash_is_held_by_an_operator(gateway: Gateway, ask: Any) -> None:
    await gateway.send({"to": "+447700900123", "from": "ACME", "text": "x", "application": "spring/sale"})
    for action, paused in (("pause", True), ("resume", False)):
        status, _, octets = await ask("POST", f"applications/acme/spring%2Fsale/{action}")
        assert (status, json.loads(octets)["paused"]) == (200, paused)


async def test_a_store_that_is_away_is_no_fault_of_ours(
    gateway: Gateway, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (
        asyncpg.CannotConnectNowError("starting up"),
        asyncpg.AdminShutdownError("shutting down"),
        asyncpg.ConnectionDoesNotExistError("gone"),
        asyncpg.InterfaceError("closed"),
        ConnectionRefusedError("refused"),
        TimeoutError(),
    ):

        async def away(*_: Any, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr(tenants, "list_all", away)
        status, _, octets = await ask("GET", "tenants")
        assert (status, json.loads(octets)["code"]) == (503, "capacity.storage"), error
    monkeypatch.setattr(tenants, "list_all", lambda _: 1 / 0)
    assert (await ask("GET", "tenants"))[0] == 500


async def test_an_address_that_tries_keys_is_turned_away_and_the_local_operator_is_not(
    gateway: Gateway, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "_FAILURES_PER_S", 0.0001)  # however slow the machine is
    monkeypatch.setattr(authentication, "_FAILURES_BURST", 5.0)
    base = ask.base
    operators = await gateway.give_key(None, "operators")

    async def status(key: str) -> int:
        async with gateway.session.get(base + "pauses", headers={"Authorization": f"Bearer {key}"}) as reply:
            assert reply.headers["x-request-id"]
            return reply.status

    assert await status(operators) == 200
    assert [await status("sg_wrong") for _ in range(6)] == [401] * 6
    assert await status(operators) == 401  # until the bucket has room again
    assert (await ask("GET", "pauses"))[0] == 200


async def test_the_operators_port_has_bounds(gateway: Gateway, ask: Any) -> None:
    for options, status, code in (
        ({"data": io.BytesIO(b" " * (1 << 20) + b"{}")}, 413, "request.too_large"),
        ({"data": b"{}", "headers": {"Content-Encoding": "gzip"}}, 415, "request.encoding"),
    ):
        async with gateway.session.post(ask.base + "tenants", **options) as reply:  # without any key
            assert (reply.status, (await reply.json(content_type=None))["code"]) == (status, code)
            assert reply.headers["x-request-id"]
