"""Connections to the ledger: one way to make them, so that every one speaks the same types."""

from __future__ import annotations

from typing import Any

import asyncpg
import orjson

_JSONB_VERSION = b"\x01"  # the wire form of jsonb is its version octet and the text
_SERVER_SETTINGS = {"jit": "off", "application_name": "sluicegate", "timezone": "UTC"}
_CONNECT_S = 10.0

# What a statement raises when PostgreSQL is away, goes away under it or refuses it (asyncpg's internal error among
# them: a connection that ends at the wrong octet raises it).
LEDGER_ERRORS = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


async def connect(url: str, **options: Any) -> asyncpg.Connection[Any]:
    """One connection with the jsonb codec (dicts in and out).

    `options` go to asyncpg (server_settings are merged). Raises what asyncpg raises.
    """
    settings = _SERVER_SETTINGS | options.pop("server_settings", {})
    connection = await asyncpg.connect(
        url, server_settings=settings, timeout=options.pop("timeout", _CONNECT_S), **options
    )
    await prepare(connection)
    return connection


async def open_pool(
    url: str, *, min_size: int = 1, max_size: int = 10, command_timeout: float | None = 30.0
) -> asyncpg.Pool[Any]:
    """A pool of connections as `connect` makes them; a statement is given up after `command_timeout` seconds."""
    return await asyncpg.create_pool(
        url,
        min_size=min_size,
        max_size=max_size,
        command_timeout=command_timeout,
        timeout=_CONNECT_S,
        server_settings=_SERVER_SETTINGS,
        init=prepare,
        reset=_keep,
        max_inactive_connection_lifetime=300.0,
    )


async def _keep(_connection: Any) -> None:
    """Nothing to undo when a connection comes back: asyncpg itself rolls an open transaction back.

    Nobody changes the settings of a pooled connection or leaves a lock or a listener on it, so the usual
    `UNLISTEN *; RESET ALL; ...` would only be a second round trip after each first one.
    """


async def prepare(connection: Any) -> None:
    """Teaches a fresh connection the jsonb codec."""
    await connection.set_type_codec("jsonb", schema="pg_catalog", format="binary", encoder=_encode, decoder=_decode)


def _encode(value: Any) -> bytes:
    return _JSONB_VERSION + orjson.dumps(value)


def _decode(value: bytes) -> Any:
    return orjson.loads(value[1:])
