"""The less urgent a request, the sooner a crowded process turns it away."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

from gateway.api.front import Front
from gateway.api.shedding import class_named, share


@pytest.mark.parametrize(
    ("method", "path", "body", "name"),
    [
        ("POST", "/v1/messages", b'{"class":"otp"}', "otp"),
        ("POST", "/v1/messages", b'{"text":"x", "class" : "marketing"}', "marketing"),
        ("POST", "/v1/messages", b'{"text":"\\"class\\":\\"otp\\"","class":"non_priority"}', "non_priority"),
        ("POST", "/v1/messages", b"{}", "transactional"),
        ("POST", "/v1/messages", b'{"class":"' + b" " * 60_000, "transactional"),
        ("POST", "/v1/messages/batch", b'{"class":"otp"}', None),
        ("GET", "/v1/messages", b"", None),
    ],
)
def test_the_class_of_a_request(method: str, path: str, body: bytes, name: str | None) -> None:
    assert class_named(method, path, body) == name


def test_the_order_in_which_classes_go() -> None:
    shares = [share(name) for name in ("non_priority", "marketing", "transactional", "otp")]
    assert shares == sorted(set(shares))
    assert shares[-1] == 1.0
    assert share(None) < share("transactional")


def request_of(name: str | None) -> tuple[dict[str, Any], bytes]:
    body = b"" if name is None else json.dumps({"class": name}).encode()
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET" if name is None else "POST",
        "path": "/v1/usage" if name is None else "/v1/messages",
        "headers": [(b"host", b"x"), (b"content-length", str(len(body)).encode())],
    }
    return scope, body


async def test_a_crowded_process_sheds_in_order_and_says_when_to_come_again() -> None:
    """Ten places; everybody stays. Each kind is let in up to its share, one-time passwords to the last place."""
    stay = asyncio.Event()
    at_work: list[str | None] = []

    async def app(scope: Any, receive: Any, _send: Any) -> None:
        body = (await receive())["body"]
        at_work.append(json.loads(body)["class"] if body else None)
        await stay.wait()

    front = Front(app, at_work_max=10)
    answers: list[tuple[str | None, int, dict[bytes, bytes]]] = []

    async def ask(name: str | None) -> None:
        scope, body = request_of(name)

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answers.append((name, message["status"], dict(message["headers"])))

        await front(scope, receive, send)

    waiting = []
    for name in itertools.chain(
        ["non_priority"] * 7, ["marketing"] * 4, [None] * 2, ["transactional"] * 4, ["otp"] * 3
    ):
        waiting.append(asyncio.create_task(ask(name)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert [at_work.count(name) for name in ("non_priority", "marketing", None, "transactional", "otp")] == [
        5, 2, 0, 2, 1,
    ]  # fmt: skip
    assert len(answers) == 10
    assert all(status == 503 and int(headers[b"retry-after"]) >= 1 for _, status, headers in answers)
    stay.set()
    await asyncio.gather(*waiting)
    await ask("non_priority")
    assert len(answers) == 10
