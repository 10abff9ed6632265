"""What clients do on the wire beside plain requests: offers of HTTP/2, trailers, large headers, several at once."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from contextlib import suppress
from urllib.parse import urlsplit

from gateway.api.protocol import HEADERS_MAX
from tests.integration.api.conftest import Gateway

NUMBERS = itertools.count()
MESSAGE = json.dumps({"to": "+447700900123", "from": "ACME", "text": "hi"}).encode()
# What Java's HttpClient adds to its first request to an http:// address.
H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\n"
WEBSOCKET = b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"


def request(
    gateway: Gateway, more: bytes = b"", body: bytes = MESSAGE, length: bytes | None = None, tenant: str = "acme"
) -> bytes:
    key = f"Authorization: Bearer {gateway.keys[tenant]}\r\n".encode() if tenant else b""
    length = b"Content-Length: %d\r\n" % len(body) if length is None else length
    key += f"Idempotency-Key: k-{next(NUMBERS)}\r\n".encode()
    return b"POST /v1/messages HTTP/1.1\r\nHost: x\r\n" + key + more + length + b"\r\n" + body


async def statuses(gateway: Gateway, *pieces: bytes, answers: int) -> list[int]:
    """The statuses of so many answers to octets that are sent piece by piece on one connection."""
    url = urlsplit(gateway.base)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    got = b""
    async with asyncio.timeout(60):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)
        while len(found := re.findall(rb"HTTP/1\.1 (?!1)(\d+) ", got)) < answers:
            with suppress(ConnectionResetError):  # what the gateway did not read when it closed
                octets = await reader.read(65_536)
                got += octets
                if octets:
                    continue
            break
    writer.close()
    return [int(status) for status in found]


async def test_an_offer_of_another_protocol_is_passed_over(gateway: Gateway) -> None:
    for offer in (H2C, WEBSOCKET):
        whole, again = request(gateway, offer), request(gateway, offer)
        head, _, body = whole.partition(b"\r\n\r\n")
        assert await statuses(gateway, whole, request(gateway), answers=2) == [202, 202]
        more = request(gateway) + again + request(gateway)
        assert await statuses(gateway, head.replace(b"k-", b"l-") + b"\r\n\r\n", body, more, answers=4) == [202] * 4
        slow = request(gateway, offer)
        assert await statuses(gateway, *(slow[at : at + 40] for at in range(0, len(slow), 40)), answers=1) == [202]
        chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(MESSAGE), MESSAGE)
        sent = request(gateway, offer + b"Expect: 100-continue\r\n", chunked, b"Transfer-Encoding: chunked\r\n")
        assert await statuses(gateway, sent + request(gateway), answers=2) == [202, 202]
        unknown = request(gateway, offer, b"{", tenant="")
        assert await statuses(gateway, unknown, request(gateway), answers=2) == [401, 202]
        closing = offer.replace(b"Connection: ", b"Connection: close, ")
        assert await statuses(gateway, request(gateway, closing), answers=2) == [202]


async def test_trailers_are_no_headers_and_both_are_bounded(gateway: Gateway) -> None:
    def chunked(trailers: bytes, tenant: str) -> bytes:
        body = b"%x\r\n%s\r\n0\r\n%s\r\n" % (len(MESSAGE), MESSAGE, trailers)
        return request(gateway, b"", body, b"Transfer-Encoding: chunked\r\n", tenant=tenant)

    key = f"Authorization: Bearer {gateway.keys['acme']}\r\n".encode()
    assert await statuses(gateway, chunked(key, ""), answers=1) == [401]
    assert await statuses(gateway, chunked(b"Authorization: x\r\nContent-Encoding: gzip\r\n", "acme"), answers=1) == [
        202
    ]
    assert await statuses(gateway, chunked(b"X: y\r\n" * (HEADERS_MAX // 5), "acme"), answers=1) in ([400], [])

    for piece in (b"x", b"\r\nX: y"):
        much, less = (
            b"X: " + piece * (octets // len(piece)) + b"\r\n" for octets in (HEADERS_MAX, HEADERS_MAX - 2_000)
        )
        assert await statuses(gateway, request(gateway, much), answers=1) in ([400], [])  # in one piece
        assert await statuses(gateway, request(gateway, less), answers=1) == [202]


async def test_a_request_names_one_host(gateway: Gateway) -> None:
    """RFC 9112, section 3.2: HTTP/1.1 without Host, or with two, is refused and closes; HTTP/1.0 knew none."""
    good = request(gateway)
    assert await statuses(gateway, good.replace(b"Host: x\r\n", b""), request(gateway), answers=2) == [400]
    assert await statuses(gateway, good.replace(b"Host: x\r\n", b"Host: x\r\nHost: y\r\n"), answers=2) == [400]
    assert await statuses(gateway, good.replace(b"Host: x\r\n", b"").replace(b"/1.1", b"/1.0"), answers=1) == [202]
