"""The HTTP side of a callback: one signed POST to a checked address, no redirects, a bounded look at the answer.

aiohttp is given a URL whose host is the address that was checked for this very try, with the name as Host and for TLS.
It looks nothing up by itself, and a kept connection serves only tries that were checked for its address and name.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Final, NoReturn, Self

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.connector import Connection
from yarl import URL

from gateway.callbacks.addresses import AddressRefused, Resolver, check_url
from gateway.callbacks.exchange import Reply, exchange, head_of, request_of
from gateway.callbacks.tries import ADDRESS_REFUSED, Answer, retry_after_ms
from scheduler.core.values import valueclass

IDLE_S: Final = 30.0
ADDRESSES_TRIED: Final = 4
_CONNECT_SHARE: Final = 0.5  # of a try's time, for all of its addresses
_KEPT: Final = 4_096


@valueclass
class Target:
    """A URL taken apart once: whose addresses are looked up, and how requests to it begin."""

    host: str
    port: int
    head: str
    url: URL

    def at(self, address: str) -> URL:
        """The same URL with a checked address for its host."""
        return _url_at(self.url, self.port, address)


@dataclass(slots=True)
class _Way:
    """The one address that a try may connect to, and whether it had to."""

    address: str
    opened: bool = False


_way: ContextVar[_Way] = ContextVar("_way")


class Client:
    """The connections of one process: a pool for each address and name."""

    def __init__(self, trust: ssl.SSLContext | None = None, resolver: Resolver | None = None) -> None:
        self._trust = trust if trust is not None else _trust()
        self._resolver = resolver if resolver is not None else Resolver()
        self._connector: aiohttp.TCPConnector | None = None
        self._asked: dict[tuple[URL, str], aiohttp.ClientRequest] = {}  # what the pool goes by; it is never sent
        # Names whose first address took no connection, and the one that did.
        self._preferred: dict[tuple[str, int], str] = {}

    async def __aenter__(self) -> Self:
        self._connector = aiohttp.TCPConnector(
            ssl=self._trust,
            resolver=_NoLookups(),
            limit=0,  # each endpoint's line has its own bound, and endpoints share nothing
            keepalive_timeout=IDLE_S,
            happy_eyeballs_delay=None,
            socket_factory=_open_socket,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connector is not None:
            await self._connector.close()
        self._resolver.close()

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool, timeout_ms: int, now_at: int
    ) -> Answer:
        """One try. Never raises for what an endpoint does; the fault has a name instead."""
        reply: Reply | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                target = _target(url, allow_private)
                addresses = await self._addresses(target, allow_private)
                reply = await self._send(target, addresses, request_of(target.head, headers, body), timeout_ms)
                await reply.skim()
        except Exception as error:  # whatever an endpoint causes belongs to its own line
            if reply is None:
                return Answer(None, fault=_fault(error))
            # A status that came counts, whatever becomes of the rest.
        finally:
            if reply is not None:
                reply.end()
        if reply.status < 200:
            return Answer(None, fault="broken_answer")
        return Answer(reply.status, retry_after_ms=retry_after_ms(reply.retry_after, now_at))

    async def _addresses(self, target: Target, allow_private: bool) -> list[str]:
        """The addresses of this try, all of them checked, the one that is likely to work first."""
        found = await self._resolver.resolve(target.host, target.port, allow_private=allow_private)
        preferred = self._preferred.get((target.host, target.port))
        if preferred in found:
            return [preferred, *(address for address in found if address != preferred)]
        return found

    async def _send(self, target: Target, addresses: list[str], request: bytes, timeout_ms: int) -> Reply:
        """The head of an answer, from the first address that takes the connection."""
        tried = addresses[:ADDRESSES_TRIED]
        timeout = _connect_timeout(timeout_ms, len(tried))
        last: Exception = OSError("the name has no address")
        for address in tried:
            try:
                reply = await self._ask(target, address, request, timeout)
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                last = error
                continue
            if address is not tried[0]:
                self._prefer(target, address)
            return reply
        self._preferred.pop((target.host, target.port), None)
        self._resolver.forget(target.host, target.port)
        raise last

    async def _ask(self, target: Target, address: str, request: bytes, timeout: aiohttp.ClientTimeout) -> Reply:
        while True:
            way = _Way(address)
            _way.set(way)
            connection = await self._connect(target, address, timeout)
            reply: Reply | None = None
            try:
                reply = await exchange(connection, request)
            except (
                aiohttp.ServerDisconnectedError,
                aiohttp.ClientOSError,
                aiohttp.ClientConnectionResetError,
            ) as error:
                # A kept connection was closed at the other end while it was idle: nobody saw the request.
                if way.opened or not _unread(error):
                    raise
                continue
            finally:
                if reply is None:
                    connection.close()
            if reply is not None:
                return reply
            # What was there before anything was asked is no answer to this request, nor would the next one be.
            if way.opened:
                raise aiohttp.ClientPayloadError("an answer that nobody asked for")

    async def _connect(self, target: Target, address: str, timeout: aiohttp.ClientTimeout) -> Connection:
        """A connection of the pool, or a new one, to this address under the URL's name."""
        assert self._connector is not None
        url = target.at(address)
        asked = self._asked.get((url, target.host))
        if asked is None:
            if len(self._asked) >= _KEPT:
                self._asked.clear()
            asked = aiohttp.ClientRequest("POST", url, server_hostname=target.host)
            self._asked[url, target.host] = asked
        try:
            return await self._connector.connect(asked, [], timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError("no connection in time") from error

    def _prefer(self, target: Target, address: str) -> None:
        if len(self._preferred) >= _KEPT:
            self._preferred.clear()
        self._preferred[target.host, target.port] = address


class _NoLookups(AbstractResolver):
    """Names are looked up and checked before; the connector sees addresses only."""

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> NoReturn:
        """Raises AddressRefused."""
        raise AddressRefused("an address that was not checked")

    async def close(self) -> None:
        """Nothing is held."""


def _open_socket(info: aiohttp.AddrInfoType) -> socket.socket:
    """The last look before a connection: it goes to the address that was checked for the try under way."""
    family, kind, protocol, _, place = info
    way = _way.get()
    way.opened = True
    if place[0] != way.address:
        raise AddressRefused("an address that was not checked")
    return socket.socket(family, kind, protocol)


def _unread(error: aiohttp.ClientConnectionError) -> bool:
    """Whether a connection went before any part of an answer came."""
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return isinstance(error.message, str)  # else it is the part that came
    return not isinstance(error, aiohttp.ClientConnectorError)


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
    return Target(host, port, head_of(read, shown), read)


@lru_cache(maxsize=_KEPT)
def _url_at(url: URL, port: int, address: str) -> URL:
    place = f"[{address}]" if ":" in address else address
    return URL.build(
        scheme=url.scheme,
        authority=f"{place}:{port}",
        path=url.raw_path,
        query_string=url.raw_query_string,
        encoded=True,
    )


@lru_cache(maxsize=64)
def _connect_timeout(timeout_ms: int, addresses: int) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=timeout_ms / 1000 * _CONNECT_SHARE / addresses)


def _trust() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


_FAULTS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (AddressRefused, ADDRESS_REFUSED),
    (TimeoutError, "timeout"),
    (ssl.SSLError, "tls"),
    (aiohttp.ClientConnectorError, "unreachable"),
    (aiohttp.InvalidURL, ADDRESS_REFUSED),
    (aiohttp.ClientError, "broken_answer"),
    (OSError, "unreachable"),
    (UnicodeError, "unreachable"),
    (ValueError, ADDRESS_REFUSED),
)


def _fault(error: BaseException) -> str:
    told = [error, error.os_error] if isinstance(error, aiohttp.ClientConnectorError) else [error]
    return next((word for kind, word in _FAULTS if any(isinstance(one, kind) for one in told)), "broken_answer")
