"""The HTTP side of a callback: one signed POST to a checked address, no redirects, a bounded look at the answer.

A name is resolved and all its addresses are checked each time a connection is opened; the connection goes to exactly
one of them, with the name as Host and for TLS. Connections are kept for the next notices, but not for long, so that a
changed name is looked up again.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from yarl import URL

from gateway.callbacks.addresses import AddressRefused, Resolver, check_url
from gateway.callbacks.tries import Answer, retry_after_ms
from gateway.callbacks.wire import BrokenAnswer, Wire

IDLE_S: Final = 30.0
AGE_S: Final = 300.0
ADDRESSES_TRIED: Final = 4
_CONNECT_SHARE: Final = 0.5  # of a try's time, for all of its addresses
_TARGETS: Final = 4_096
_SWEEP_S: Final = 10.0
_FIXED: Final = b"content-type: application/json\r\nuser-agent: sluicegate\r\naccept: */*\r\n"


@dataclass(frozen=True, slots=True)
class Target:
    """A URL taken apart once: where to connect to, and the beginning of every request."""

    host: str
    port: int
    tls: bool
    head: bytes


class Client:
    """The connections of one process. Those to private addresses are kept apart from those that may not go there."""

    def __init__(self, trust: ssl.SSLContext | None = None, resolver: Resolver | None = None) -> None:
        self._trust = trust if trust is not None else _trust()
        self._resolver = resolver if resolver is not None else Resolver()
        self._targets: OrderedDict[tuple[str, bool], Target] = OrderedDict()
        self._idle: dict[tuple[str, int, bool, bool], list[Wire]] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        self._sweep()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        for wires in self._idle.values():
            for wire in wires:
                wire.close()
        self._idle.clear()
        self._resolver.close()

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool, timeout_ms: int, now_at: int
    ) -> Answer:
        """One try. Never raises for what an endpoint does; the fault has a name instead."""
        wire: Wire | None = None
        try:
            target = self._target(url, allow_private)
            request = _request(target, body, headers)
            key = (target.host, target.port, target.tls, allow_private)
            async with asyncio.timeout(timeout_ms / 1000):
                wire = self._take(key)
                if wire is not None:
                    try:
                        await wire.ask(request)
                    except (BrokenAnswer, OSError) as error:
                        # It was closed at the other end while it was idle: nobody saw the request.
                        if not getattr(error, "unread", True):
                            raise
                        wire = None
                if wire is None:
                    wire = await self._connect(target, allow_private, timeout_ms / 1000 * _CONNECT_SHARE)
                    await wire.ask(request)
        except Exception as error:  # whatever an endpoint causes belongs to its own line
            if wire is None or not isinstance(error, TimeoutError) or wire.status is None:
                if wire is not None:
                    wire.close()
                return Answer(None, fault=_fault(error))
            wire.close()  # the status came, and the rest of the answer takes its time
        except BaseException:
            if wire is not None:
                wire.close()
            raise
        assert wire is not None
        self._put_back(key, wire)
        return Answer(wire.status, retry_after_ms=retry_after_ms(wire.retry_after, now_at))

    def _target(self, url: str, allow_private: bool) -> Target:
        # What a URL itself says never changes; names are checked each time they are resolved.
        found = self._targets.get((url, allow_private))
        if found is None:
            check_url(url, allow_private=allow_private)
            found = self._targets[url, allow_private] = target_of(url)
            if len(self._targets) > _TARGETS:
                self._targets.popitem(last=False)
        return found

    def _take(self, key: tuple[str, int, bool, bool]) -> Wire | None:
        wires = self._idle.get(key)
        now = time.monotonic()
        while wires:
            wire = wires.pop()
            if wire.open and now - wire.idle_mono < IDLE_S and now - wire.opened_mono < AGE_S:
                return wire
            wire.close()
        return None

    def _put_back(self, key: tuple[str, int, bool, bool], wire: Wire) -> None:
        if not wire.reusable or not wire.open:
            wire.close()
            return
        wire.idle_mono = time.monotonic()
        self._idle.setdefault(key, []).append(wire)

    async def _connect(self, target: Target, allow_private: bool, patience_s: float) -> Wire:
        """A connection to the first checked address that takes one."""
        loop = asyncio.get_running_loop()
        addresses = (await self._resolver.resolve(target.host, target.port, allow_private=allow_private))[
            :ADDRESSES_TRIED
        ]
        last: Exception = OSError("the name has no address")
        for address in addresses:
            try:
                async with asyncio.timeout(patience_s / len(addresses)):
                    _, wire = await loop.create_connection(
                        Wire,
                        address,
                        target.port,
                        ssl=self._trust if target.tls else None,
                        server_hostname=target.host if target.tls else None,
                    )
            except (OSError, TimeoutError) as error:
                last = error
                continue
            wire.opened_mono = time.monotonic()
            return wire
        raise last

    def _sweep(self) -> None:
        """Closes what has been idle for long."""
        now = time.monotonic()
        for key, wires in list(self._idle.items()):
            kept = [wire for wire in wires if wire.open and now - wire.idle_mono < IDLE_S]
            for wire in wires:
                if wire not in kept:
                    wire.close()
            if kept:
                self._idle[key] = kept
            else:
                del self._idle[key]
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)


def target_of(url: str) -> Target:
    """Where a URL leads. Raises ValueError where it is none, odd notations of addresses among them."""
    read = URL(url)
    host, port = read.raw_host, read.port
    if read.scheme not in ("http", "https") or not host or not port:
        raise ValueError("not an HTTP URL")
    shown = f"[{host}]" if ":" in host else host
    if port != (443 if read.scheme == "https" else 80):
        shown += f":{port}"
    head = f"POST {read.raw_path_qs or '/'} HTTP/1.1\r\nhost: {shown}\r\n".encode("ascii")
    if head.count(b"\r\n") != 2 or head.count(b"\n") != 2:
        raise ValueError("a line break in the URL")
    return Target(host, port, read.scheme == "https", head + _FIXED)


def _request(target: Target, body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return b"%b%bcontent-length: %d\r\n\r\n%b" % (target.head, lines.encode("ascii"), len(body), body)


def _trust() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


_FAULTS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (AddressRefused, "address_refused"),
    (TimeoutError, "timeout"),
    (ssl.SSLError, "tls"),
    (BrokenAnswer, "broken_answer"),
    (ConnectionResetError, "broken_answer"),
    (OSError, "unreachable"),
    (UnicodeError, "unreachable"),
    (ValueError, "address_refused"),
)


def _fault(error: BaseException) -> str:
    return next((word for kind, word in _FAULTS if isinstance(error, kind)), "broken_answer")
