"""What operators ordered a session to do by hand, as egress reads it each second: pause, drain, try again.

A pause or a drain is a row of `pauses` until somebody ends it. Trying again after a refusal stopped a session is an
instant: it counts where it lies after the refusal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import asyncpg

from gateway.ledger.pauses import DRAIN, PAUSE
from scheduler.core.values import valueclass

__all__ = ["DRAIN", "PAUSE", "Orders", "read_orders", "resume"]

_ORDERS = """
SELECT p.name AS session, p.mode, NULL::bigint AS resumed_at FROM pauses p WHERE p.kind = 'session'
UNION ALL
SELECT o.session, NULL, o.resumed_at FROM session_orders o
"""
_RESUME = """
INSERT INTO session_orders (session, resumed_at) VALUES ($1, $2)
ON CONFLICT (session) DO UPDATE SET resumed_at = greatest(session_orders.resumed_at, excluded.resumed_at)
"""


@valueclass
class Orders:
    """`modes`: session -> PAUSE | DRAIN; `resumed_at`: session -> when it was last told to try again (UTC ms)."""

    modes: Mapping[str, str] = field(default_factory=dict)
    resumed_at: Mapping[str, int] = field(default_factory=dict)


async def read_orders(conn: asyncpg.Connection[Any]) -> Orders:
    """Every order that stands."""
    rows = await conn.fetch(_ORDERS)
    return Orders(
        {row["session"]: row["mode"] for row in rows if row["mode"] is not None},
        {row["session"]: row["resumed_at"] for row in rows if row["resumed_at"] is not None},
    )


async def resume(conn: asyncpg.Connection[Any], session: str, now_at: int) -> None:
    """Tells a session that was refused to try again (`session resume`); its pause is ended in `pauses`."""
    await conn.execute(_RESUME, session, now_at)
