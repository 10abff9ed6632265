"""Where callbacks may go: addresses are checked after they are resolved, and the checked one is connected to.

A tenant names the URL, so it must not reach what only this host can reach (OWASP SSRF; reliability section 5, 36).
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp.abc import AbstractResolver, ResolveResult

# Not private in every release of the library, yet only meaningful inside a network or a cloud's host.
_INNER: Final = (IPv4Network("168.63.129.16/32"), IPv4Network("192.0.0.0/24"), IPv4Network("100.64.0.0/10"))
_NAT64: Final = IPv6Network("64:ff9b::/96")
# Lookups block a thread each; a name server that never answers must not hold up other endpoints.
_LOOKUPS: Final = 32


class AddressRefused(OSError):
    """The address is not one that callbacks may reach; the text names no address."""


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the public internet, whatever it is wrapped in."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv4Address):
        return _is_public_v4(found)
    translated = _translated(found)
    if translated is not None:
        return _is_public_v4(translated)
    tunneled = [found.sixtofour, *(found.teredo or ())]
    return _is_plain(found) and all(one is None or _is_public_v4(one) for one in tunneled)


def check_url(url: str, *, allow_private: bool) -> None:
    """Raises AddressRefused where a URL may not be called; names are checked again when they are resolved."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise AddressRefused("not a URL") from None
    if parts.scheme not in ("http", "https") or not host:
        raise AddressRefused("only http and https")
    if parts.username is not None or parts.password is not None:
        raise AddressRefused("credentials in the URL")
    try:
        literal = ip_address(host.partition("%")[0])
    except ValueError:
        return
    if not allow_private and not is_public(str(literal)):
        raise AddressRefused("not a public address")


class CheckedResolver(AbstractResolver):
    """Resolves names and gives out only addresses that may be reached: aiohttp connects to exactly these."""

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._threads = ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="resolve")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Every address of a name. Raises AddressRefused where one is not public, OSError where there is none."""
        found = await asyncio.get_running_loop().run_in_executor(self._threads, _look_up, host, port, family)
        results: list[ResolveResult] = []
        for kind, _, proto, _, where in found:
            address = str(where[0])
            # One bad address condemns the name: a mixed answer is how rebinding looks.
            if not self._allow_private and not is_public(address):
                raise AddressRefused("resolves to an address that is not public")
            results.append(
                ResolveResult(
                    hostname=host,
                    host=address,
                    port=port,
                    family=kind,
                    proto=proto,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
            )
        if not results:
            raise OSError("the name has no address")
        return results

    async def close(self) -> None:
        """Lets lookups under way end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int, family: int) -> list[Any]:
    return socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)


def _is_public_v4(address: IPv4Address) -> bool:
    return _is_plain(address) and not any(address in network for network in _INNER)


def _is_plain(address: IPv4Address | IPv6Address) -> bool:
    if address.is_multicast or address.is_unspecified or address.is_loopback or address.is_link_local:
        return False
    return address.is_global and not address.is_reserved


def _translated(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that is really reached: an IPv4-mapped one, or one behind the well-known NAT64 prefix."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFF_FFFF) if address in _NAT64 else None
