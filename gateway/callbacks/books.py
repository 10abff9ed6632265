"""What all lines read from and write to the ledger, gathered: with an endpoint per notice a statement each is too dear.

A page is asked for by whoever looks at that moment, in one statement; results wait a moment for those of other lines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

import asyncpg

from gateway.clock import Clock
from gateway.gathering import Gatherer
from gateway.ledger import callback_lines
from gateway.ledger.callback_lines import Endpoint, Line, Verdict
from gateway.loops import end
from gateway.sealing import Sealer

PAGE: Final = 200
_LINES_MAX: Final = 300
_ROWS_MAX: Final = 2_000  # of one statement, whatever the number of lines
_LINGER_S: Final = 0.02

_Page = tuple[Endpoint, frozenset[int]]
_Results = tuple[Sequence[int], Sequence[Verdict]]


class Books:
    """The ledger as lines use it; `run` must be running while any line is."""

    def __init__(self, pool: asyncpg.Pool[Any], sealer: Sealer, clock: Clock) -> None:
        self._pool, self._sealer, self._clock = pool, sealer, clock
        self._pages: Gatherer[_Page, tuple[list[Line], bool]] = Gatherer(self._read, _LINES_MAX)
        self._results: Gatherer[_Results, None] = Gatherer(self._write, _LINES_MAX, linger_s=_LINGER_S)

    async def run(self) -> None:
        """Reads and writes until it is cancelled."""
        tasks = [
            asyncio.create_task(self._pages.run(), name="callback_pages"),
            asyncio.create_task(self._results.run(), name="callback_results"),
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            await end(tasks)

    async def page(self, endpoint: Endpoint, in_hand: Iterable[int]) -> tuple[list[Line], bool]:
        """The next due notices of one endpoint besides those in hand, and whether there may be more.

        At most PAGE, fewer where many lines ask at once. Raises what the ledger raises.
        """
        return await self._pages.ask((endpoint, frozenset(in_hand)))

    async def settle(self, taken: Sequence[int], put_back: Sequence[Verdict]) -> None:
        """Writes what tries came to; returns once it is committed. Raises what the ledger raises."""
        await self._results.ask((taken, put_back))

    async def _read(self, asked: list[_Page]) -> list[tuple[list[Line], bool]]:
        limit = min(PAGE, max(1, _ROWS_MAX // len(asked)))
        async with self._pool.acquire() as conn:
            found = await callback_lines.pages(conn, self._sealer, asked, now_at=self._clock.now_at(), limit=limit)
        return [(lines, len(lines) == limit) for lines in found]

    async def _write(self, results: list[_Results]) -> list[None]:
        taken = [one for ids, _ in results for one in ids]
        put_back = [verdict for _, verdicts in results for verdict in verdicts]
        async with self._pool.acquire() as conn:
            if not put_back:  # one statement is its own transaction
                await callback_lines.remove(conn, taken)
            else:
                async with conn.transaction():
                    await callback_lines.remove(conn, taken)
                    await callback_lines.put_back(conn, put_back)
        return [None] * len(results)
