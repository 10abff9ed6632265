"""The HTTP side of a callback: one signed POST to a checked address, no redirects, a bounded look at the answer.

A connection goes to the address that was checked for this very try, with the name as Host and for TLS. A kept one
serves only tries that were checked for its address and name.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Final, Self

from yarl import URL

from gateway.callbacks.addresses import AddressRefused, Resolver, check_url
from gateway.callbacks.connections import AnswerBroken, Connection, Connections, Place, Unconnected, Unread
from gateway.callbacks.tries import ADDRESS_REFUSED, Answer, retry_after_ms

ADDRESSES_TRIED: Final = 4
_CONNECT_SHARE: Final = 0.5  # of a try's time, for all of its addresses
_KEPT: Final = 4_096
_HEAD: Final = (
    "POST {path} HTTP/1.1\r\nhost: {shown}\r\ncontent-type: application/json\r\nuser-agent: sluicegate\r\n"
    "accept: */*\r\naccept-encoding: identity\r\n"
)


@dataclass(frozen=True, slots=True)
class Target:
    """A URL taken apart once: whose addresses are looked up, and the part of the request that is always the same."""

    tls: bool
    host: str
    port: int
    head: str

    def at(self, address: str) -> Place:
        """The place behind a checked address."""
        return Place(self.tls, self.host, self.port, address)

    def request(self, headers: Mapping[str, str], body: bytes) -> bytes:
        """The whole request; `headers` are our own words."""
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        return f"{self.head}{lines}content-length: {len(body)}\r\n\r\n".encode("ascii") + body


@dataclass(slots=True)
class _Try:
    """One try: what is sent, and the connection on which it was asked last."""

    request: bytes
    connection: Connection | None = None


class Client:
    """The connections of one process: a pool for each address and name."""

    def __init__(self, trust: ssl.SSLContext | None = None, resolver: Resolver | None = None) -> None:
        self._connections = Connections(trust if trust is not None else _trust())
        self._resolver = resolver if resolver is not None else Resolver()
        # Names whose first address took no connection, and the one that did.
        self._preferred: dict[tuple[str, int], str] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connections.close()
        self._resolver.close()

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool, timeout_ms: int, now_at: int
    ) -> Answer:
        """One try. Never raises for what an endpoint does; the fault has a name instead."""
        one = _Try(b"")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                target = _target(url, allow_private)
                addresses = await self._addresses(target, allow_private)
                one.request = target.request(headers, body)
                await self._send(target, addresses, one, timeout_ms)
        except Exception as error:  # whatever an endpoint causes belongs to its own line
            if one.connection is None or one.connection.status is None:
                return Answer(None, fault=_fault(error))
            # A status that came counts, whatever becomes of the rest.
        finally:
            if one.connection is not None:
                self._connections.give_back(one.connection)
        assert one.connection is not None
        return Answer(one.connection.status, retry_after_ms=retry_after_ms(one.connection.retry_after, now_at))

    async def _addresses(self, target: Target, allow_private: bool) -> list[str]:
        """The addresses of this try, all of them checked, the one that is likely to work first."""
        found = await self._resolver.resolve(target.host, target.port, allow_private=allow_private)
        preferred = self._preferred.get((target.host, target.port)) if self._preferred else None
        if preferred in found:
            return [preferred, *(address for address in found if address != preferred)]
        return found

    async def _send(self, target: Target, addresses: list[str], one: _Try, timeout_ms: int) -> None:
        """Asks at the first address that takes the connection."""
        tried = addresses[:ADDRESSES_TRIED]
        patience_s = timeout_ms / 1000 * _CONNECT_SHARE / max(1, len(tried))
        last: Exception = OSError("the name has no address")
        for address in tried:
            try:
                await self._ask(target.at(address), one, patience_s)
            except Unconnected as error:
                last = error
                continue
            if address is not tried[0]:
                self._prefer(target, address)
            return
        self._preferred.pop((target.host, target.port), None)
        self._resolver.forget(target.host, target.port)
        raise last

    async def _ask(self, place: Place, one: _Try, patience_s: float) -> None:
        while True:
            connection = self._connections.take(place)
            was_kept = connection is not None
            if connection is None:
                connection = await self._connections.connect(place, patience_s)
            one.connection = connection
            try:
                await connection.ask(one.request)
            except Unread:
                # A kept connection was closed at the other end while it was idle: nobody saw the request.
                if not was_kept:
                    raise
                one.connection = None
                self._connections.give_back(connection)
                continue
            return

    def _prefer(self, target: Target, address: str) -> None:
        if len(self._preferred) >= _KEPT:
            self._preferred.clear()
        self._preferred[target.host, target.port] = address


# What a URL itself says never changes; names are checked each time they are resolved.
@lru_cache(maxsize=_KEPT)
def _target(url: str, allow_private: bool) -> Target:
    check_url(url, allow_private=allow_private)
    return target_of(url)


def target_of(url: str) -> Target:
    """Where a URL leads. Raises ValueError where it is none, odd notations of addresses among them."""
    read = URL(url)
    host, port, shown = read.raw_host, read.port, read.host_port_subcomponent
    if read.scheme not in ("http", "https") or not host or not port or not shown:
        raise ValueError("not an HTTP URL")
    head = _HEAD.format(path=read.raw_path_qs, shown=shown)
    if not head.isascii() or head.count("\r\n") != _HEAD.count("\r\n") or " " in read.raw_path_qs:
        raise ValueError("not a URL of plain characters")
    return Target(read.scheme == "https", host, port, head)


def _trust() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


_FAULTS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (AddressRefused, ADDRESS_REFUSED),
    (TimeoutError, "timeout"),
    (ssl.SSLError, "tls"),
    (Unconnected, "unreachable"),
    (AnswerBroken, "broken_answer"),
    (OSError, "unreachable"),
    (UnicodeError, "unreachable"),
    (ValueError, ADDRESS_REFUSED),
)


def _fault(error: BaseException) -> str:
    told = [error, error.__cause__] if isinstance(error, Unconnected) else [error]
    return next((word for kind, word in _FAULTS if any(isinstance(one, kind) for one in told)), "broken_answer")
