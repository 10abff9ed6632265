"""Every refusal of the door by its name, and that nothing is kept of it (contract section 2; I8)."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from gateway.api import protocol
from gateway.api.app import build
from gateway.api.door import Door
from tests.integration.api.conftest import POLICY, Gateway, running, until

MESSAGE = {"to": "+447700900123", "from": "ACME", "text": "hi"}


def rfc3339(ahead: timedelta) -> str:
    return (datetime.now(UTC) + ahead).isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ("", 400, "request.malformed"),
        ("{", 400, "request.malformed"),
        ('{"to": NaN}', 400, "request.malformed"),
        ('{"ttl": 99999999999999999999}', 400, "request.malformed"),
        ("[" * 17 + "]" * 17, 400, "request.malformed"),
        ("[" * 30_000, 400, "request.malformed"),
        ("[]", 422, "request.invalid"),
        ('"x"', 422, "request.invalid"),
        ('{"to":"+447700900123","text":"hi","from":"A","route":"x"}', 422, "request.invalid"),
        ('{"to":"+447700900123","text":"a\\ud800b","from":"A"}', 422, "request.invalid"),
        ('{"to":"+447700900123","text":"hi","from":"A","ttl":60.0}', 422, "request.invalid"),
        ('{"to":"+447700900123","text":"hi","from":"A","\\ud800":1}', 422, "request.invalid"),
    ],
)
async def test_bodies_that_are_not_a_message(gateway: Gateway, body: str, status: int, code: str) -> None:
    reply = await gateway.send(body)
    assert (reply.status, reply.code) == (status, code)
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.headers["x-request-id"]
    assert reply.headers["ratelimit"]
    assert await gateway.count() == await gateway.count("idempotency") == 0


async def test_all_wrong_fields_are_told_at_once(gateway: Gateway) -> None:
    reply = await gateway.send({"to": "12", "text": 5, "class": "x", "ttl": 0, "a/b": 1})
    assert sorted(reply.pointers) == ["/a~1b", "/class", "/from", "/text", "/to", "/ttl"]


@pytest.mark.parametrize(
    ("tenant", "change", "code"),
    [
        ("other", {"class": "marketing"}, "policy.class"),
        ("tight", {"to": "+33612345678"}, "policy.destination"),
        ("tight", {"from": "ACME"}, "policy.sender"),
        ("tight", {"from": None, "tlvs": {"unheard_of": "1"}}, "policy.tlvs"),
        ("acme", {"class": "otp", "ttl": 601}, "policy.ttl"),
        ("acme", {"class": "otp", "text": "x" * 161}, "policy.content"),
        ("acme", {"text": "x" * 400, "max_segments": 2}, "policy.max_segments"),
        ("acme", {"text": "x" * 39_016, "max_segments": 255}, "policy.max_segments"),
        ("acme", {"to": "+819012345678"}, "route.none"),
        ("acme", {"expires_at": "2020-01-01T00:00:00Z"}, "capacity.infeasible_deadline"),
        ("acme", {"to": "+4915112345678", "text": "x" * 1400, "ttl": 5}, "capacity.infeasible_deadline"),
    ],
)
async def test_rules_of_the_policy(gateway: Gateway, tenant: str, change: dict[str, Any], code: str) -> None:
    reply = await gateway.send(MESSAGE | change, tenant)
    assert (reply.status, reply.code) == (422, code)
    assert "retry-after" not in reply.headers
    assert await gateway.count() == 0


async def test_keys_scopes_and_addresses(gateway: Gateway) -> None:
    await gateway.give_key("acme", "reader", scopes=["read"])
    await gateway.give_key("acme", "sender", scopes=["send"])
    await gateway.give_key("acme", "elsewhere", cidrs=["10.0.0.0/8"])
    await gateway.give_key("acme", "home", cidrs=["127.0.0.0/8"])
    await gateway.give_key("acme", "old", expires_at=gateway.rt.clock.now_at() - 1)
    await gateway.give_key(None, "operator")
    forged = gateway.keys["acme"][:-1] + ("0" if gateway.keys["acme"][-1] != "0" else "1")
    for wrong in (None, "", "nonsense", forged, "old"):
        reply = await gateway.call("GET", "/v1/messages", wrong)
        assert (reply.status, reply.code) == (401, "auth.required")
        assert reply.headers["www-authenticate"] == "Bearer"
    expected = {
        "reader": (200, 403),
        "sender": (403, 202),
        "elsewhere": (403, 403),
        "home": (200, 202),
        "operator": (403, 403),
    }
    for name, (reading, sending) in expected.items():
        assert (await gateway.call("GET", "/v1/messages", name)).status == reading
        assert (await gateway.send(MESSAGE, name)).status == sending
    assert (await gateway.send(MESSAGE, "reader")).code == "auth.scope"


@pytest.mark.timing
async def test_a_revoked_key_ends_within_five_seconds(gateway: Gateway) -> None:
    from gateway.ledger import keys

    made = await gateway.give_key("acme", "short")
    assert (await gateway.call("GET", "/v1/messages", "short")).status == 200
    async with gateway.rt.pool.acquire() as conn:
        assert await keys.revoke(conn, made.split("_")[1], "test", gateway.rt.clock.now_at())
        assert not await keys.revoke(conn, made.split("_")[1], "test", gateway.rt.clock.now_at())
    async with asyncio.timeout(15):  # threefold slack
        while (await gateway.call("GET", "/v1/messages", "short")).status != 401:
            await asyncio.sleep(0.1)


async def test_unknown_paths_and_methods_are_problems(gateway: Gateway) -> None:
    missing = await gateway.call("GET", "/v1/nothing")
    assert (missing.status, missing.code) == (404, "not_found")
    assert missing.headers["x-request-id"]
    wrong = await gateway.call("DELETE", "/v1/messages")
    assert (wrong.status, wrong.code) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "GET, HEAD, POST"
    slash = await gateway.call("POST", "/v1/messages/", key="s", json=MESSAGE, allow_redirects=False)
    assert (slash.status, slash.code) == (404, "not_found")
    assert slash.headers["x-request-id"]


async def test_who_asks_for_a_dry_run_in_the_wrong_way_sends_nothing(gateway: Gateway) -> None:
    batch = {"messages": [MESSAGE]}
    for path, body in (
        ("/v1/messages/batch?dry_run=true", batch),
        ("/v1/messages?dry_run", MESSAGE),
        ("/v1/messages?dry_run=", MESSAGE),
    ):
        reply = await gateway.call("POST", path, key="d", json=body)
        assert (reply.status, reply.code, reply.pointers) == (422, "request.invalid", ["/dry_run"])
    assert await gateway.count() == 0


async def test_compressed_bodies_are_refused(gateway: Gateway) -> None:
    body = gzip.compress(json.dumps(MESSAGE).encode())
    reply = await gateway.call("POST", "/v1/messages", key="z", data=body, headers={"Content-Encoding": "gzip"})
    assert (reply.status, reply.code) == (415, "request.encoding")


async def test_a_batch_may_be_larger_than_a_message(gateway: Gateway) -> None:
    large = MESSAGE | {"metadata": {f"k{n}": "x" * 200 for n in range(10)}}
    reply = await gateway.call("POST", "/v1/messages/batch", key="b", json={"messages": [large] * 60})
    assert reply.status == 202
    too_large = await gateway.call("POST", "/v1/messages/batch", key="c", data=io.BytesIO(b"x" * 1_048_577))
    assert (too_large.status, too_large.code) == (413, "request.too_large")
    assert (await gateway.send("x" * 65_537)).code == "request.too_large"


async def slow(gateway: Gateway, octets: bytes) -> bytes:
    """Sends the beginning of a request and nothing more; returns what comes back until the connection closes."""
    url = urlsplit(gateway.base)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write(octets)
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    return answer


async def test_slow_requests_are_cut(database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from gateway.api import front

    monkeypatch.setattr(protocol.BoundedProtocol, "request_s", 0.5)
    monkeypatch.setattr(front.Front.__init__, "__defaults__", (0.5, front.AT_WORK_MAX, front.UNFINISHED_OCTETS_MAX))
    async with running(database_url, redis_url) as gateway:
        head = b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n"
        assert b" 408 " in (await slow(gateway, head))[:20]
        assert b" 408 " in (await slow(gateway, head + b"\r\n{"))[:20]
        assert await slow(gateway, b"") == b""
        assert (await gateway.send(MESSAGE)).status == 202


async def test_headers_are_bounded(gateway: Gateway) -> None:
    head = b"GET /v1/messages HTTP/1.1\r\nhost: x\r\n" + b"x-filler: " + b"x" * 40_000
    assert b" 400 " in (await slow(gateway, head))[:20]


async def test_the_door_rate_is_told_and_kept(gateway: Gateway) -> None:
    replies = [await gateway.send(MESSAGE | {"from": None}, "tight", key=f"r{n}") for n in range(4)]
    assert [reply.status for reply in replies] == [202, 202, 202, 429]
    assert replies[3].code == "quota.rate"
    assert replies[3].headers["retry-after"] == "1"
    assert replies[0].headers["ratelimit-policy"] == '"requests";q=3;w=3'
    assert [reply.headers["ratelimit"].split(";")[1] for reply in replies] == ["r=2", "r=1", "r=0", "r=0"]


async def test_the_door_rate_comes_even_before_a_replay(gateway: Gateway) -> None:
    statuses = [(await gateway.send(MESSAGE | {"from": None}, "tight", key="same")).status for _ in range(4)]
    assert statuses == [202, 202, 202, 429]


async def test_the_daily_cap_counts_segments(gateway: Gateway) -> None:
    long = {"to": "+447700900123", "text": "x" * 400, "max_segments": 3}
    assert (await gateway.send(long, "tight")).status == 202
    over = await gateway.send(long, "tight")
    assert (over.status, over.code) == (429, "quota.daily")
    assert 1 <= int(over.headers["retry-after"]) <= 86_400
    assert (await gateway.send(MESSAGE | {"from": None}, "tight")).status == 202
    assert await gateway.rt.pool.fetchval("SELECT sum(segments) FROM daily_usage") == 4


async def test_a_daily_cap_that_was_lifted_for_a_while_counts_what_was_sent_meanwhile(
    database_url: str, redis_url: str
) -> None:
    capped = POLICY.replace("requests: {rate_per_s: 1, burst: 3}", "requests: {rate_per_s: 1000, burst: 1000}")
    message = {"to": "+447700900123", "text": "x"}
    async with running(database_url, redis_url, capped) as gateway:
        for policy, version, statuses in (
            (capped, 1, [202] * 3),
            (capped.replace("    daily_segments: 5\n", ""), 2, [202] * 3),
            (capped, 3, [429] * 2),
        ):
            if version > 1:
                await gateway.rt.applier.apply(policy, "test")
            await until(_takes(gateway, version))
            assert [(await gateway.send(message, "tight")).status for _ in statuses] == statuses
            told = await gateway.call("POST", "/v1/messages?dry_run=true", "tight", json=message)
            rows = (await gateway.call("GET", "/v1/capacity", "tight")).json["data"]
            if version < 3:
                assert told.json["verdict"] == "accept" and {row["verdict"] for row in rows} == {"accept"}
                continue
            assert (told.json["verdict"], told.json["problem"]["code"]) == ("slow_down", "quota.daily")
            for row in rows:
                assert (row["verdict"], row["scope"]) == ("slow_down", {"kind": "tenant", "name": "tight"})
                assert row["cause"] == "daily" and 1 <= row["retry_after_s"] <= 86_400


def _takes(gateway: Gateway, version: int) -> Callable[[], Awaitable[bool]]:
    async def taken() -> bool:
        return gateway.rt.policies.current.version == version and gateway.rt.policies.in_step

    return taken


async def test_a_paused_provider_refuses_and_defers_by_class(gateway: Gateway) -> None:
    await gateway.rt.scheduler.pause("provider:simulator", gateway.rt.clock.now_at() + 3_600_000)
    await gateway.rt.scheduler.pause("provider:slow", gateway.rt.clock.now_at() + 9 * 3_600_000)
    refused = await gateway.send(MESSAGE | {"class": "otp"})
    assert (refused.status, refused.code) == (503, "capacity.class_budget_exceeded")
    problem = refused.json
    assert problem["scope"] == {"kind": "provider", "name": "simulator"}
    assert problem["cause"] == "paused"
    assert problem["class"] == "otp"
    assert problem["wait_budget_ms"] == 10_000
    assert problem["door_limit_ms"] == 5_000
    assert problem["retry_after_s"] == int(refused.headers["retry-after"])
    assert {"queue_age_ms", "predicted_wait_ms"} <= set(problem)
    deferred = await gateway.send(MESSAGE | {"class": "marketing"})
    assert deferred.status == 202
    assert deferred.json["status"] == "scheduled"
    assert deferred.json["not_before"] is not None
    due = await gateway.rt.pool.fetchrow("SELECT * FROM due")
    assert due["kind"] == "deferral"
    assert await gateway.count("outbox") == 0
    shown = (await gateway.call("GET", deferred.headers["location"])).json
    assert [event["type"] for event in shown["events"]] == ["accepted", "deferred"]


async def test_send_at_schedules_without_asking_the_queue(gateway: Gateway) -> None:
    reply = await gateway.send(MESSAGE | {"send_at": rfc3339(timedelta(hours=2)), "ttl": 600})
    body = reply.json
    assert (reply.status, body["status"]) == (202, "scheduled")
    read = datetime.fromisoformat
    assert read(body["expires_at"]) - read(body["not_before"]) == timedelta(seconds=600)
    assert read(body["submit_by"]) - read(body["not_before"]) == timedelta(seconds=120)
    assert await gateway.rt.pool.fetchval("SELECT kind FROM due") == "send_at"
    assert await gateway.count("outbox") == 0
    far = await gateway.send(MESSAGE | {"send_at": rfc3339(timedelta(days=36))})
    assert (far.status, far.pointers) == (422, ["/send_at"])
    past = await gateway.send(MESSAGE | {"send_at": rfc3339(timedelta(hours=-1))})
    assert past.json["status"] == "queued"


async def test_a_dry_run_keeps_nothing_and_needs_no_key(gateway: Gateway) -> None:
    reply = await gateway.call("POST", "/v1/messages?dry_run=true", json=MESSAGE | {"text": "€" * 100})
    assert reply.status == 200
    body = reply.json
    assert (body["verdict"], body["segments"], body["encoding"], body["route"]) == ("accept", 2, "gsm7", "everywhere")
    assert "predicted_wait_ms" in body
    assert [(part["number"], part["units"], len(part["text"])) for part in body["parts"]] == [(1, 152, 76), (2, 48, 24)]
    assert body["national_shift"] == "none"
    assert reply.headers["ratelimit"]
    await gateway.rt.scheduler.pause("provider:simulator")
    refused = await gateway.call("POST", "/v1/messages?dry_run=1", json=MESSAGE)
    assert (refused.status, refused.json["verdict"]) == (200, "refuse")
    assert refused.json["problem"]["code"] == "capacity.class_budget_exceeded"
    assert (await gateway.call("POST", "/v1/messages?dry_run=true", json={})).status == 422
    assert (await gateway.call("POST", "/v1/messages?dryrun=true", key="x", json=MESSAGE)).status == 422
    assert await gateway.count() == await gateway.count("idempotency") == 0


async def test_openapi_and_docs_need_no_key_and_no_other_host(gateway: Gateway) -> None:
    described = (await gateway.call("GET", "/openapi.json", None)).json
    app: Any = build(gateway.rt, Door(gateway.rt))
    served = {
        (route.path_format, method.lower())
        for route in app._app.routes
        for method in route.methods - {"HEAD"}
        if route.path not in ("/openapi.json", "/docs")
    }
    assert {(path, method) for path, methods in described["paths"].items() for method in methods} == served
    names = [call["operationId"] for methods in described["paths"].values() for call in methods.values()]
    assert len(names) == len(set(names))
    page = await gateway.call("GET", "/docs", None)
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    text = page.octets.decode()
    assert "<script" not in text
    assert "https://" not in text
    assert "capacity.class_budget_exceeded" in text
