"""Real cases of callbacks, named by id: where they must not go (H24)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.callbacks.addresses import Resolver
from gateway.callbacks.client import Client
from gateway.callbacks.tries import Answer
from tests.integration.delivery.test_callback_client import OK, Server, server

# Each could reach something that only this host, its network or its cloud can reach.
INSIDE = [
    # metadata services
    "http://169.254.169.254/latest", "http://[fd00:ec2::254]/latest", "http://100.100.100.200/", "http://168.63.129.16/",
    "http://192.0.0.192/", "http://[::ffff:169.254.169.254]/", "http://0xa9fea9fe/", "http://2852039166/",
    # loopback, in plain and in odd notations
    "http://127.0.0.1:{port}/", "http://127.0.0.1/", "http://127.8.9.10:{port}/", "http://localhost:{port}/",
    "http://LOCALHOST.:{port}/", "http://2130706433:{port}/", "http://0x7f000001:{port}/", "http://0x7f.1:{port}/",
    "http://017700000001:{port}/", "http://0177.0.0.1:{port}/", "http://127.1:{port}/", "http://127.0.1:{port}/",
    "http://0:{port}/", "http://0.0.0.0:{port}/", "http://[::1]:{port}/", "http://[0:0:0:0:0:0:0:1]:{port}/",
    "http://[::]:{port}/", "http://[::ffff:127.0.0.1]:{port}/", "http://[::ffff:7f00:1]:{port}/",
    "http://[::127.0.0.1]:{port}/", "http://①②⑦.⓪.⓪.①:{port}/", "http://127。0。0。1:{port}/",
    # private networks, shared space, link-local
    "http://10.0.0.5/", "http://172.16.3.4/", "http://172.31.255.255/", "http://192.168.1.1/", "http://100.64.0.1/",
    "http://169.254.1.1/", "http://[fe80::1]/", "http://[fe80::1%25lo]/", "http://[fc00::1]/", "http://[fd12:3456::1]/",
    "http://[fec0::1]/", "http://198.18.0.1/", "http://[::ffff:10.0.0.5]/", "http://[::ffff:192.168.0.1]/",
    # what carries an IPv4 address inside
    "http://[64:ff9b::7f00:1]/", "http://[64:ff9b::a9fe:a9fe]/", "http://[64:ff9b:1::a00:5]/", "http://[2002:7f00:1::]/",
    "http://[2002:a9fe:a9fe::1]/", "http://[2001:0:a00:5::f5ff:fffa]/",
    # multicast, broadcast, reserved, documentation
    "http://224.0.0.1/", "http://239.255.255.250/", "http://255.255.255.255/", "http://240.0.0.1/", "http://[ff02::1]/",
    "http://192.0.2.7/", "http://[2001:db8::1]/",
    # no endpoint at all: other schemes, credentials, other protocols' ports
    "ftp://cb.example/", "file:///etc/passwd", "gopher://cb.example/", "https://user:pw@cb.example/",
    "https://user@cb.example/", "http://cb.example:6379/", "http://cb.example:25/", "http://cb.example:22/",
    "http://cb.example:0/", "http://cb.example:99999/", "http:///hooks", "http://[::1", "//cb.example/", "",
    "http://cb.example\r\nx-injected: 1/", "http://cb.example@127.0.0.1:{port}/",
]  # fmt: skip


@pytest.fixture
async def canary() -> AsyncIterator[Server]:
    """Something inside that would notice to be called."""
    async with server(lambda n: [OK]) as inside:
        yield inside


async def post(client: Client, url: str) -> Answer:
    return await client.post(url, b"{}", {}, allow_private=False, timeout_ms=2_000, now_at=0)


async def test_h24_callbacks_never_go_inside(canary: Server) -> None:
    assert len(INSIDE) >= 60
    async with Client() as client:
        for url in INSIDE:
            answer = await post(client, url.replace("{port}", str(canary.port)))
            assert (answer.status, answer.fault in ("address_refused", "unreachable")) == (None, True), url
    assert canary.connections == 0


async def test_h24_a_name_is_refused_for_every_inner_address_that_it_has(canary: Server) -> None:
    inner = ["127.0.0.1", "169.254.169.254", "10.0.0.5", "::1", "::ffff:10.0.0.5", "fe80::1%lo", "64:ff9b::7f00:1"]
    for address in inner:
        for answers in ([address], ["93.184.216.34", address]):
            async with Client(resolver=Resolver(lambda host, port, answers=answers: answers)) as client:  # type: ignore[misc]
                assert (await post(client, f"http://cb.example:{canary.port}/")).fault == "address_refused", answers
    assert canary.connections == 0


async def test_h24_a_redirect_inside_is_an_answer_and_no_errand(canary: Server) -> None:
    """The endpoint itself may be called (its tenant may go to private addresses here); where it points may not."""
    moved = f"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:{canary.port}/\r\ncontent-length: 0\r\n\r\n".encode()
    async with server(lambda n: [moved]) as outside, Client() as client:
        for status in (b"301", b"302", b"303", b"307", b"308"):
            moved = moved.replace(moved[9:12], status)
            answer = await client.post(
                f"http://127.0.0.1:{outside.port}/", b"{}", {}, allow_private=True, timeout_ms=2_000, now_at=0
            )
            assert (answer.status, answer.taken) == (int(status), False)
    assert canary.connections == 0


async def test_h24_no_proxy_of_the_environment_is_asked(canary: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{canary.port}")
    async with Client(resolver=Resolver(lambda host, port: ["127.0.0.1"])) as client:
        assert (await post(client, "http://cb.example/")).fault == "address_refused"
    await asyncio.sleep(0.05)
    assert canary.connections == 0
