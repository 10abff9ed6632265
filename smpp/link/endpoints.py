"""Opening links: as ESME by connecting, as MC by listening."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from smpp.link.connection import Connection
from smpp.link.settings import LinkHandler, LinkSettings
from smpp.protocol.states import Side


async def connect(
    host: str, port: int, *, tls: ssl.SSLContext | None, settings: LinkSettings, handler: LinkHandler
) -> Connection:
    """Connects as ESME; the session is open, not bound. With `tls` the certificate is checked against `host`.

    Raises OSError (ssl.SSLError among them) or TimeoutError; the handler hears nothing then.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(settings.connect_timeout_s):
        _, connection = await loop.create_connection(
            lambda: Connection(Side.ESME, settings, lambda _: handler),
            host,
            port,
            ssl=tls,
            server_hostname=host if tls is not None else None,
        )
    return connection


async def serve(
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None,
    settings: LinkSettings,
    attach: Callable[[Connection], LinkHandler],
) -> asyncio.Server:
    """Listens as MC; `attach` is called with every new connection and gives its handler."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: Connection(Side.MC, settings, attach), host, port, ssl=tls)
