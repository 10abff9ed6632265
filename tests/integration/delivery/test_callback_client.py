"""The callback client against servers that answer as they like, byte by byte; TLS with the checked address (H24)."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.callbacks import addresses
from gateway.callbacks import client as client_module
from gateway.callbacks.addresses import Resolver
from gateway.callbacks.client import Client, target_of
from gateway.callbacks.tries import Answer

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@dataclass
class Server:
    """Answers the nth request with what `script` gives: pieces, and pauses between them (seconds)."""

    script: Callable[[int], list[bytes | float | None]]
    port: int = 0
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    names: list[str | None] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(size))
                for piece in self.script(len(self.requests)):
                    if piece is None:
                        writer.close()
                        return
                    if isinstance(piece, float):
                        await asyncio.sleep(piece)
                    else:
                        writer.write(piece)
                        await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def server(
    script: Callable[[int], list[bytes | float | None]],
    tls: ssl.SSLContext | None = None,
    place: tuple[str, int] = ("127.0.0.1", 0),
) -> AsyncIterator[Server]:
    made = Server(script)
    listening = await asyncio.start_server(made.serve, *place, ssl=tls)
    made.port = listening.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        listening.close()


async def post(client: Client, url: str, *, timeout_ms: int = 3_000, allow_private: bool = True) -> Answer:
    return await client.post(
        url, b'{"n":1}', {"webhook-id": "evt_1"}, allow_private=allow_private, timeout_ms=timeout_ms, now_at=0
    )


async def test_a_request_is_one_whole_request_and_connections_are_kept() -> None:
    async with server(lambda n: [OK]) as one, Client() as client:
        for _ in range(3):
            answer = await post(client, f"http://127.0.0.1:{one.port}/hooks?a=b%20c")
            assert (answer.status, answer.fault) == (200, None)
    assert one.connections == 1
    head, _, body = one.requests[0].partition(b"\r\n\r\n")
    assert body == b'{"n":1}'
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /hooks?a=b%20c HTTP/1.1"
    assert {line.lower() for line in lines[1:]} == {
        f"host: 127.0.0.1:{one.port}".encode(), b"content-type: application/json", b"user-agent: sluicegate",
        b"accept: */*", b"accept-encoding: identity", b"webhook-id: evt_1", b"content-length: 7",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("pieces", "status", "fault", "kept"),
    [
        ([OK[:5], 0.01, OK[5:20], 0.01, OK[20:]], 200, None, True),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], 204, None, True),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"], 200, None, True),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Hints\r\nretry-after: 9\r\n\r\n", OK], 200, None, True),
        ([b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"], 200, None, False),
        ([b"HTTP/1.0 200 OK\r\n\r\nas long as it lasts", None], 200, None, False),
        ([b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n"], 500, None, True),
        ([b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"], 302, None, True),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n" + b"x" * 10_000, 5.0], 200, None, False),
        ([b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nnope"], 200, None, True),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort", None], 200, None, False),
        ([b"HTTP/1.1 202 Accepted\r\ncontent-length: 10\r\n\r\n", 9.0], 202, None, False),  # the body never comes
        ([None], None, "broken_answer", False),
        ([b"SSH-2.0-OpenSSH_9.6\r\n"], None, "broken_answer", False),
        ([b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"], None, "broken_answer", False),
        ([b"HTTP/1.1 200 OK\r\nx: " + b"y" * 40_000], None, "broken_answer", False),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000, 9.0], None, "timeout", False),
        ([b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 1_000 + b"\r\n"], None, "broken_answer", False),
        ([9.0], None, "timeout", False),
    ],
)  # fmt: skip
async def test_answers_of_every_kind(
    pieces: list[bytes | float | None], status: int | None, fault: str | None, kept: bool
) -> None:
    async with server(lambda n: pieces if n == 1 else [OK]) as one, Client() as client:
        # Only what never ends is cut off by the time of a try; the others are not to be on a busy machine.
        ends = fault != "timeout" and pieces[-1] not in (9.0, 5.0)
        answer = await post(client, f"http://127.0.0.1:{one.port}/", timeout_ms=30_000 if ends else 1_500)
        assert (answer.status, answer.fault) == (status, fault)
        assert (await post(client, f"http://127.0.0.1:{one.port}/")).status == 200
        assert one.connections == (1 if kept else 2)


async def test_a_long_answer_is_not_waited_for() -> None:
    long = b"HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n" + b"x" * 10_000
    async with server(lambda n: [long, 20.0]) as one, Client() as client:
        began = time.monotonic()
        answer = await post(client, f"http://127.0.0.1:{one.port}/", timeout_ms=120_000)
        assert answer.status == 200 and time.monotonic() - began < 15  # 20 s until the server goes on


async def test_a_connection_that_was_closed_while_idle_costs_no_try() -> None:
    async with server(lambda n: [OK, None] if n == 1 else [OK]) as one, Client() as client:
        first = await post(client, f"http://127.0.0.1:{one.port}/")
        second = await post(client, f"http://127.0.0.1:{one.port}/")
    assert (first.status, second.status, one.connections) == (200, 200, 2)


async def test_what_nobody_asked_for_ends_the_connection() -> None:
    """An answer before its question is none: the next notice is not lost to it."""
    stray = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    fail = b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n"
    async with server(lambda n: [OK, 0.05, stray] if n == 1 else [fail]) as one, Client() as client:
        await post(client, f"http://127.0.0.1:{one.port}/")
        await asyncio.sleep(0.15)
        for _ in range(2):
            assert (await post(client, f"http://127.0.0.1:{one.port}/")).status == 500
    assert one.connections == 2 and len(one.requests) == 3


async def test_names_are_asked_again_by_each_try_and_connections_kept_all_the_same() -> None:
    asked: list[str] = []

    def look_up(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    async with server(lambda n: [OK]) as one, Client(resolver=Resolver(look_up, fresh_s=0.0)) as client:
        for _ in range(3):
            await post(client, f"http://cb.example:{one.port}/")
    assert asked == ["cb.example"] * 3 and one.connections == 1


async def test_a_name_that_moved_is_followed_and_its_kept_connection_is_not_used() -> None:
    answers = iter([["127.0.0.1"], ["127.0.0.2"], ["127.0.0.2", "127.0.0.1"]])
    resolver = Resolver(lambda host, port: next(answers), fresh_s=0.0)
    async with (
        server(lambda n: [OK]) as old,
        server(lambda n: [OK], place=("127.0.0.2", old.port)) as new,
        Client(resolver=resolver) as client,
    ):
        for _ in range(3):
            assert (await post(client, f"http://cb.example:{old.port}/")).status == 200
    assert (len(old.requests), len(new.requests)) == (1, 2)


async def test_a_name_that_turns_inside_is_refused_at_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """H24, rebinding: public at the first look, loopback at the second; nothing is connected to then."""
    answers = iter([["93.184.216.34"], ["127.0.0.1"], ["93.184.216.34", "127.0.0.1"]])
    connected: list[str] = []
    loop = asyncio.get_running_loop()

    async def no_connection(_socket: Any, place: tuple[str, int]) -> None:
        connected.append(place[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(loop, "sock_connect", no_connection)
    async with Client(resolver=Resolver(lambda host, port: next(answers))) as client:
        words = [(await post(client, "http://cb.example/", allow_private=False)).fault for _ in range(3)]
    assert words == ["unreachable", "address_refused", "address_refused"]
    assert connected == ["93.184.216.34"]


async def test_a_kept_connection_is_of_no_use_once_the_name_turns_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """H24, rebinding while a connection to the address that was allowed is open."""
    monkeypatch.setattr(addresses, "is_public", lambda address: address == "127.0.0.1")
    answers = iter([["127.0.0.1"], ["127.0.0.2"], ["127.0.0.1", "127.0.0.2"]])
    resolver = Resolver(lambda host, port: next(answers), fresh_s=0.0)
    async with server(lambda n: [OK]) as one, Client(resolver=resolver) as client:
        url = f"http://cb.example:{one.port}/"
        told = [await post(client, url, allow_private=False) for _ in range(3)]
    assert [(answer.status, answer.fault) for answer in told] == [(200, None), *[(None, "address_refused")] * 2]
    assert len(one.requests) == 1


async def test_no_socket_is_opened_to_an_address_that_was_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the URL given to the HTTP library says, the socket's address is compared with the checked one."""
    elsewhere = client_module.target_of
    async with server(lambda n: [OK]) as one, Client(resolver=Resolver(lambda h, p: ["127.0.0.2"])) as client:
        for host in ("127.0.0.1", "localhost"):
            url = elsewhere(f"http://{host}:{one.port}/").url
            monkeypatch.setattr(client_module, "_url_at", lambda *_of, url=url: url)
            assert (await post(client, f"http://cb.example:{one.port}/")).fault == "address_refused"
    assert one.connections == 0


async def test_a_connection_that_was_allowed_inside_serves_nobody_else() -> None:
    def look_up(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with server(lambda n: [OK]) as one, Client(resolver=Resolver(look_up)) as client:
        assert (await post(client, f"http://cb.example:{one.port}/")).status == 200
        refused = await post(client, f"http://cb.example:{one.port}/", allow_private=False)
    assert refused.fault == "address_refused" and len(one.requests) == 1


async def test_the_next_address_is_tried_where_one_does_not_answer_and_comes_first_from_then_on() -> None:
    tried: list[str] = []
    open_socket = client_module._open_socket

    def noting(info: Any) -> Any:
        tried.append(info[4][0])
        return open_socket(info)

    resolver = Resolver(lambda h, p: ["127.0.0.3", "127.0.0.2", "127.0.0.1"])
    closing = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(client_module, "_open_socket", noting)
        async with server(lambda n: [closing, None]) as one, Client(resolver=resolver) as client:
            for _ in range(2):
                assert (await post(client, f"http://cb.example:{one.port}/")).status == 200
    assert tried == ["127.0.0.3", "127.0.0.2", "127.0.0.1", "127.0.0.1"]


async def test_a_name_server_that_hangs_costs_the_try_its_time_and_is_asked_once() -> None:
    asked: list[str] = []

    def look_up(host: str, port: int) -> list[str]:
        asked.append(host)
        time.sleep(1.0)
        return ["127.0.0.1"]

    async with server(lambda n: [OK]) as one, Client(resolver=Resolver(look_up)) as client:
        url = f"http://cb.example:{one.port}/"
        told = await asyncio.gather(*(post(client, url, timeout_ms=100) for _ in range(8)))
        assert {answer.fault for answer in told} == {"timeout"}
        assert (await post(client, url)).status == 200
    assert asked == ["cb.example"]


async def test_no_proxy_of_the_environment_and_no_cookie(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/")
    baked = b"HTTP/1.1 200 OK\r\nset-cookie: a=b\r\ncontent-length: 0\r\n\r\n"
    async with server(lambda n: [baked]) as one, Client() as client:
        for _ in range(2):
            assert (await post(client, f"http://127.0.0.1:{one.port}/")).status == 200
    assert not any(b"cookie" in request.lower() for request in one.requests)


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context for a name, and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(1))
        .not_valid_after(now + timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = folder / f"{name}.pem"
    pem.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.public_bytes(serialization.Encoding.PEM)
    )
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(pem)
    return serving, ssl.create_default_context(cadata=made.public_bytes(serialization.Encoding.PEM).decode())


async def test_tls_speaks_to_the_checked_address_under_the_name(tmp_path: Path) -> None:
    serving, trusting = certificate(tmp_path, "cb.example")
    names: list[str | None] = []
    serving.sni_callback = lambda _socket, name, _context: names.append(name)
    resolver = Resolver(lambda host, port: ["127.0.0.1"])
    async with server(lambda n: [OK], serving) as one, Client(trusting, resolver) as client:
        assert (await post(client, f"https://cb.example:{one.port}/")).status == 200
        assert (await post(client, f"https://other.example:{one.port}/")).fault == "tls"
    assert names[0] == "cb.example" and f"\r\nhost: cb.example:{one.port}\r\n".encode() in one.requests[0]
    async with server(lambda n: [OK], serving) as one, Client(resolver=Resolver(lambda h, p: ["127.0.0.1"])) as client:
        assert (await post(client, f"https://cb.example:{one.port}/")).fault == "tls"


@pytest.mark.parametrize(
    ("url", "name", "at", "shown"),
    [
        ("http://cb.example", ("cb.example", 80), "http://192.0.2.1/", "cb.example"),
        ("https://CB.example:443/a/../b", ("cb.example", 443), "https://192.0.2.1/b", "cb.example"),
        ("https://cb.example:8443/ä?q=ü", ("cb.example", 8443), "https://192.0.2.1:8443/%C3%A4?q=%C3%BC",
         "cb.example:8443"),
        ("http://[2606:4700::1111]/x#y", ("2606:4700::1111", 80), "http://192.0.2.1/x", "[2606:4700::1111]"),
        ("http://bücher.example/a%2Fb", ("xn--bcher-kva.example", 80), "http://192.0.2.1/a%2Fb",
         "xn--bcher-kva.example"),
    ],
)  # fmt: skip
def test_where_a_url_leads(url: str, name: tuple[str, int], at: str, shown: str) -> None:
    target = target_of(url)
    assert (target.host, target.port) == name
    assert f"\r\nhost: {shown}\r\n" in target.head
    assert str(target.at("192.0.2.1")) == at
    inner = target.at("2606:4700::1")
    assert inner.raw_host == "2606:4700::1" and inner.port == name[1]


async def test_an_endpoint_on_ipv6() -> None:
    async with server(lambda n: [OK], place=("::1", 0)) as one, Client() as client:
        assert (await post(client, f"http://[::1]:{one.port}/")).status == 200
    async with (
        server(lambda n: [OK], place=("::1", 0)) as one,
        Client(resolver=Resolver(lambda h, p: ["::1"])) as client,
    ):
        assert (await post(client, f"http://cb.example:{one.port}/")).status == 200
    assert f"cb.example:{one.port}".encode() in one.requests[0]
