"""Which IP addresses belong to the public internet, whatever they are wrapped in (reliability section 5, 36)."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

# Not private in every release of the library, yet only meaningful inside a network or a cloud's host, or meant for
# nobody: relays of 6to4 (RFC 7526), examples in texts (RFC 9637), protocols' own addresses (RFC 2928: identities of
# hosts and drones in 2001:20::/27 among them, which CPython 3.11.2 calls global and 3.11.7 does not).
_INNER: Final = (
    IPv4Network("168.63.129.16/32"),
    IPv4Network("192.0.0.0/24"),
    IPv4Network("100.64.0.0/10"),
    IPv4Network("192.88.99.0/24"),
    IPv6Network("2001::/23"),
    IPv6Network("3fff::/20"),
)
_NAT64: Final = IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")  # all that is assigned (RFC 4291, 2.4): not the old site-local ones


@lru_cache(maxsize=4_096)
def is_public(address: str) -> bool:
    """Whether an address is one of the public internet. Raises ValueError where it is none at all."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv4Address):
        return _is_public_v4(found)
    translated = _translated(found)
    if translated is not None:
        return _is_public_v4(translated)
    if found not in _GLOBAL_UNICAST or not _is_plain(found) or _is_inner(found):
        return False
    tunneled = [found.sixtofour, *(found.teredo or ()), _isatap(found)]
    return all(one is None or _is_public_v4(one) for one in tunneled)


def _is_public_v4(address: IPv4Address) -> bool:
    return _is_plain(address) and not _is_inner(address)


def _is_inner(address: IPv4Address | IPv6Address) -> bool:
    return any(address in network for network in _INNER)


def _isatap(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an ISATAP interface tunnels to, whatever its prefix (RFC 5214, 6.1)."""
    interface = int(address) & 0xFFFF_FFFF_FFFF_FFFF
    return IPv4Address(interface & 0xFFFF_FFFF) if interface >> 32 in (0x5EFE, 0x0200_5EFE) else None


def _is_plain(address: IPv4Address | IPv6Address) -> bool:
    if address.is_multicast or address.is_unspecified or address.is_loopback or address.is_link_local:
        return False
    return address.is_global and not address.is_reserved


def _translated(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that is really reached: an IPv4-mapped one, or one behind the well-known NAT64 prefix."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFF_FFFF) if address in _NAT64 else None
