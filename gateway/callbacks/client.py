"""The HTTP side of a callback: one signed POST to a checked address, no redirects, a bounded look at the answer."""

from __future__ import annotations

import asyncio
import ssl
from functools import lru_cache
from types import TracebackType
from typing import Final, Self

import aiohttp
from yarl import URL

from gateway.callbacks.addresses import AddressRefused, CheckedResolver, check_url
from gateway.callbacks.tries import Answer, retry_after_ms

ANSWER_BYTES: Final = 4_096
_HEADERS: Final = {"content-type": "application/json", "user-agent": "sluicegate"}


class Client:
    """Two pools of connections, since a connection that was allowed inside must not serve who may not go there."""

    def __init__(self) -> None:
        self._guarded = _session(allow_private=False)
        self._open = _session(allow_private=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._guarded.close()
        await self._open.close()

    async def post(
        self, url: str, body: bytes, headers: dict[str, str], *, allow_private: bool, timeout_ms: int, now_at: int
    ) -> Answer:
        """One try. Never raises for what an endpoint does; the fault has a name instead."""
        session = self._open if allow_private else self._guarded
        try:
            target, timeout = _target(url, allow_private), _timeout(timeout_ms)
            async with session.post(
                target, data=body, headers=headers, allow_redirects=False, timeout=timeout
            ) as response:
                await response.content.read(ANSWER_BYTES)
                wait_ms = retry_after_ms(response.headers.get("retry-after"), now_at)
                return Answer(response.status, retry_after_ms=wait_ms)
        except ValueError:  # not a URL for the client: odd notations of addresses among them (aiohttp.InvalidURL)
            return Answer(None, fault="address_refused")
        except asyncio.CancelledError:
            raise
        except Exception as error:  # whatever an endpoint causes belongs to its own line
            return Answer(None, fault=_fault(error))


# The literal part of the check never changes for a URL; names are checked each time they are resolved.
@lru_cache(maxsize=4_096)
def _target(url: str, allow_private: bool) -> URL:
    check_url(url, allow_private=allow_private)
    return URL(url)


@lru_cache(maxsize=16)
def _timeout(timeout_ms: int) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=timeout_ms / 1000)


def _session(*, allow_private: bool) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(
        limit=0,  # each endpoint's line has its own bound
        resolver=CheckedResolver(allow_private=allow_private),
        ttl_dns_cache=10,
        keepalive_timeout=30,
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        headers=_HEADERS,
        trust_env=False,
    )


def _fault(error: BaseException) -> str:
    causes: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and len(causes) < 8:
        causes.append(found)
        found = getattr(found, "os_error", None) or found.__cause__ or found.__context__
    if any(isinstance(cause, AddressRefused) for cause in causes):
        return "address_refused"
    if any(isinstance(cause, TimeoutError) for cause in causes):
        return "timeout"
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return "tls"
    return "unreachable" if isinstance(error, aiohttp.ClientConnectorError) else "broken_answer"
