"""Who did what and when: rows that are only ever added, read newest first."""

from __future__ import annotations

from typing import Any, Final

import asyncpg

PAGE: Final = 100
_ADD = "INSERT INTO audit (at, actor, action, detail) VALUES ($1, $2, $3, $4)"
_PAGE = """
SELECT id, at, actor, action, detail FROM audit
 WHERE id < $1 AND ($2 = '' OR starts_with(action, $2)) AND ($3 = '' OR position($3 in actor) > 0)
 ORDER BY id DESC LIMIT $4
"""
_S = 5.0


async def note(conn: asyncpg.Connection[Any], now_at: int, actor: str, action: str, detail: dict[str, Any]) -> None:
    """One row. `detail` holds names and ids, never a text, number or key."""
    await conn.execute(_ADD, now_at, actor, action, detail)


async def page(
    conn: asyncpg.Connection[Any], before_id: int, action: str = "", actor: str = ""
) -> list[asyncpg.Record]:
    """Up to 101 rows before an id, newest first: actions that begin so, of actors whose name holds that."""
    return list(await conn.fetch(_PAGE, before_id, action, actor, PAGE + 1, timeout=_S))
