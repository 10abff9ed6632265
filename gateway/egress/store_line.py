"""A writer's own connection to the ledger: held for good, made again when it breaks."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import asyncpg

from gateway.ledger.connect import LEDGER_ERRORS, connect

STATEMENT_S: Final = 10.0

# Everything that means "the ledger did not take it": the caller keeps its work and comes again.
STORE_ERRORS: Final = LEDGER_ERRORS


class StoreLine:
    """One connection for one task; `settings` are SQL statements run on each new connection."""

    def __init__(self, url: str, settings: str = "", **options: Any) -> None:
        self._url = url
        self._settings = settings
        self._options = options
        self._connection: asyncpg.Connection[Any] | None = None

    async def connection(self) -> asyncpg.Connection[Any]:
        """The live connection, made anew where it broke. Raises one of STORE_ERRORS."""
        held = self._connection
        if held is not None and not held.is_closed():
            return held
        self._connection = None
        fresh = await connect(self._url, command_timeout=STATEMENT_S, **self._options)
        try:
            if self._settings:
                await fresh.execute(self._settings)
        except BaseException:
            fresh.terminate()
            raise
        self._connection = fresh
        return fresh

    def drop(self) -> None:
        """Forgets a connection whose state is not known any more."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def close(self) -> None:
        """Ends it in good order."""
        held, self._connection = self._connection, None
        if held is not None and not held.is_closed():
            with suppress(*STORE_ERRORS):
                await held.close(timeout=2.0)
