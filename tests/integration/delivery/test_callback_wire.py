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
    script: Callable[[int], list[bytes | float | None]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    made = Server(script)
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
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
    assert set(lines[1:]) == {
        f"host: 127.0.0.1:{one.port}".encode(), b"content-type: application/json", b"user-agent: sluicegate",
        b"accept: */*", b"webhook-id: evt_1", b"content-length: 7",
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
        ([9.0], None, "timeout", False),
    ],
)  # fmt: skip
async def test_answers_of_every_kind(
    pieces: list[bytes | float | None], status: int | None, fault: str | None, kept: bool
) -> None:
    async with server(lambda n: pieces if n == 1 else [OK]) as one, Client() as client:
        began = time.monotonic()
        answer = await post(client, f"http://127.0.0.1:{one.port}/", timeout_ms=700)
        assert (answer.status, answer.fault) == (status, fault)
        assert time.monotonic() - began < 3
        assert (await post(client, f"http://127.0.0.1:{one.port}/")).status == 200
        assert one.connections == (1 if kept else 2)


async def test_a_long_answer_is_not_waited_for() -> None:
    long = b"HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n" + b"x" * 10_000
    async with server(lambda n: [long, 20.0]) as one, Client() as client:
        began = time.monotonic()
        answer = await post(client, f"http://127.0.0.1:{one.port}/", timeout_ms=15_000)
        assert answer.status == 200 and time.monotonic() - began < 5


async def test_a_connection_that_was_closed_while_idle_costs_no_try() -> None:
    async with server(lambda n: [OK, None] if n == 1 else [OK]) as one, Client() as client:
        first = await post(client, f"http://127.0.0.1:{one.port}/")
        second = await post(client, f"http://127.0.0.1:{one.port}/")
    assert (first.status, second.status, one.connections) == (200, 200, 2)


async def test_what_nobody_asked_for_ends_the_connection() -> None:
    async with server(lambda n: [OK, 0.05, OK] if n == 1 else [OK]) as one, Client() as client:
        await post(client, f"http://127.0.0.1:{one.port}/")
        await asyncio.sleep(0.15)
        assert (await post(client, f"http://127.0.0.1:{one.port}/")).status == 200
    assert one.connections == 2


async def test_old_connections_are_replaced_so_that_names_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "AGE_S", 0.0)
    asked: list[str] = []

    def look_up(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    async with server(lambda n: [OK]) as one, Client(resolver=Resolver(look_up)) as client:
        for _ in range(3):
            await post(client, f"http://cb.example:{one.port}/")
    assert asked == ["cb.example"] * 3


async def test_a_name_that_turns_inside_is_refused_at_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """H24, rebinding: public at the first look, loopback at the second; nothing is connected to then."""
    answers = iter([["93.184.216.34"], ["127.0.0.1"], ["93.184.216.34", "127.0.0.1"]])
    connected: list[str] = []
    loop = asyncio.get_running_loop()

    async def no_connection(_protocol: Any, address: str, _port: int, **_options: Any) -> Any:
        connected.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(loop, "create_connection", no_connection)
    async with Client(resolver=Resolver(lambda host, port: next(answers))) as client:
        words = [(await post(client, "http://cb.example/", allow_private=False)).fault for _ in range(3)]
    assert words == ["unreachable", "address_refused", "address_refused"]
    assert connected == ["93.184.216.34"]


async def test_a_connection_that_was_allowed_inside_serves_nobody_else() -> None:
    def look_up(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with server(lambda n: [OK]) as one, Client(resolver=Resolver(look_up)) as client:
        assert (await post(client, f"http://cb.example:{one.port}/")).status == 200
        refused = await post(client, f"http://cb.example:{one.port}/", allow_private=False)
    assert refused.fault == "address_refused" and len(one.requests) == 1


async def test_the_next_address_is_tried_where_one_does_not_answer() -> None:
    async with (
        server(lambda n: [OK]) as one,
        Client(resolver=Resolver(lambda h, p: ["127.0.0.2", "127.0.0.1"])) as client,
    ):
        assert (await post(client, f"http://cb.example:{one.port}/")).status == 200


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
    serving.sni_callback = lambda _socket, name, _context: names.append(name)  # type: ignore[assignment]
    resolver = Resolver(lambda host, port: ["127.0.0.1"])
    async with server(lambda n: [OK], serving) as one, Client(trusting, resolver) as client:
        assert (await post(client, f"https://cb.example:{one.port}/")).status == 200
        assert (await post(client, f"https://other.example:{one.port}/")).fault == "tls"
    assert names[0] == "cb.example" and one.requests[0].split(b"\r\n")[1] == f"host: cb.example:{one.port}".encode()
    async with server(lambda n: [OK], serving) as one, Client(resolver=Resolver(lambda h, p: ["127.0.0.1"])) as client:
        assert (await post(client, f"https://cb.example:{one.port}/")).fault == "tls"


@pytest.mark.parametrize(
    ("url", "host", "port", "shown"),
    [
        ("http://cb.example", "cb.example", 80, b"POST / HTTP/1.1\r\nhost: cb.example\r\n"),
        ("https://CB.example:443/a/../b", "cb.example", 443, b"POST /b HTTP/1.1\r\nhost: cb.example\r\n"),
        ("https://cb.example:8443/ä?q=ü", "cb.example", 8443, b"POST /%C3%A4?q=%C3%BC HTTP/1.1\r\nhost: cb.ex"),
        ("http://[2606:4700::1111]/x#y", "2606:4700::1111", 80, b"POST /x HTTP/1.1\r\nhost: [2606:4700::1111]\r\n"),
    ],
)  # fmt: skip
def test_where_a_url_leads(url: str, host: str, port: int, shown: bytes) -> None:
    target = target_of(url)
    assert (target.host, target.port) == (host, port) and target.head.startswith(shown)
