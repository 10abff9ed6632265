"""Where callbacks may go: addresses are checked after they are resolved, and the checked one is connected to.

A tenant names the URL, so it must not reach what only this host can reach (OWASP SSRF; reliability section 5, 36).
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp.abc import AbstractResolver, ResolveResult

# Not private by RFC 6890, yet only meaningful inside a cloud's host (Azure's wire server).
_INNER: Final = frozenset({ip_address("168.63.129.16")})
_NAT64: Final = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))
# Lookups block a thread each; a name server that never answers must not hold up other endpoints.
_LOOKUPS: Final = 32


class AddressRefused(OSError):
    """The address is not one that callbacks may reach; the text names no address."""


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the public internet, whatever it is wrapped in."""
    found = ip_address(address.partition("%")[0])
    return all(_is_plain_public(one) for one in (found, *_inside(found)))


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


def _is_plain_public(address: IPv4Address | IPv6Address) -> bool:
    if address in _INNER or address.is_multicast or address.is_unspecified or address.is_loopback:
        return False
    return address.is_global and not address.is_reserved and not address.is_link_local


def _inside(address: IPv4Address | IPv6Address) -> list[IPv4Address]:
    """IPv4 addresses that an IPv6 one carries (mapped, 6to4, Teredo, NAT64)."""
    if isinstance(address, IPv4Address):
        return []
    wrapped = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(isinstance(net, IPv6Network) and address in net for net in _NAT64):
        wrapped.append(IPv4Address(int(address) & 0xFFFF_FFFF))
    return [one for one in wrapped if one is not None]
