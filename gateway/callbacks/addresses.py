"""Where callbacks may go: addresses are checked after they are resolved, and the checked one is connected to.

A tenant names the URL, so it must not reach what only this host can reach (OWASP SSRF; reliability section 5, 36).
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from gateway.domain.public_addresses import is_public

# Where other protocols listen, which a POST could be made to speak to (the Fetch standard's list, "port blocking").
BLOCKED_PORTS: Final = frozenset(
    {0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109}
    | {110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530}
    | {531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190}
    | {5060, 5061, 6000, 6379, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080}
)
# Lookups block a thread each; a name server that never answers must not hold up other endpoints.
_LOOKUPS: Final = 32
_NAMES: Final = 4_096
# A burst of tries asks once; short enough that the next try after any wait looks again (rebinding).
FRESH_S: Final = 1.0


class AddressRefused(OSError):
    """The address is not one that callbacks may reach; the text names no address."""


def check_url(url: str, *, allow_private: bool) -> None:
    """Raises AddressRefused where a URL may not be called; names are checked again when they are resolved."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise AddressRefused("not a URL") from None
    if parts.scheme not in ("http", "https") or not host:
        raise AddressRefused("only http and https")
    if parts.username is not None or parts.password is not None:
        raise AddressRefused("credentials in the URL")
    if port in BLOCKED_PORTS:
        raise AddressRefused("a port of another protocol")
    try:
        literal = ip_address(host.partition("%")[0])
    except ValueError:
        return
    if not allow_private and not is_public(str(literal)):
        raise AddressRefused("not a public address")


class Resolver:
    """Looks names up and gives out only addresses that may be reached; connections go to exactly these.

    Every try asks: an answer serves those within `fresh_s` seconds, and those that ask while it is looked up. Whether
    its addresses may be reached is judged each time.
    """

    def __init__(self, look_up: Callable[[str, int], list[str]] | None = None, fresh_s: float = FRESH_S) -> None:
        self._look_up = look_up if look_up is not None else _look_up
        self._fresh_s = fresh_s
        self._threads = ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="resolve")
        self._known: OrderedDict[tuple[str, int], tuple[list[str], float]] = OrderedDict()
        self._asked: dict[tuple[str, int], asyncio.Future[list[str]]] = {}

    async def resolve(self, host: str, port: int, *, allow_private: bool) -> list[str]:
        """Every address of a name, or the address that `host` is.

        Raises AddressRefused where one of them is not public, OSError where there is none.
        """
        found = [host] if _is_literal(host) else await self._addresses(host, port)
        # One bad address condemns the name: a mixed answer is how rebinding looks.
        if not allow_private and not all(map(is_public, found)):
            raise AddressRefused("resolves to an address that is not public")
        if not found:
            raise OSError("the name has no address")
        return found

    def forget(self, host: str, port: int) -> None:
        """Has the name looked up again by the next try: nothing took a connection where it led."""
        self._known.pop((host, port), None)

    def close(self) -> None:
        """Lets lookups under way end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _addresses(self, host: str, port: int) -> list[str]:
        key = (host, port)
        known = self._known.get(key)
        if known is not None and time.monotonic() < known[1]:
            return known[0]
        asked = self._asked.get(key)
        if asked is None:
            loop = asyncio.get_running_loop()
            asked = self._asked[key] = loop.run_in_executor(self._threads, self._look_up, host, port)
            asked.add_done_callback(partial(self._learn, key))
        return await asyncio.shield(asked)

    def _learn(self, key: tuple[str, int], asked: asyncio.Future[list[str]]) -> None:
        del self._asked[key]
        self._known.pop(key, None)
        if not asked.cancelled() and asked.exception() is None:
            self._known[key] = (asked.result(), time.monotonic() + self._fresh_s)
            if len(self._known) > _NAMES:
                self._known.popitem(last=False)


@lru_cache(maxsize=4_096)
def _is_literal(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _look_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(dict.fromkeys(str(where[0]) for *_, where in found))
