"""Finding messages of any tenant for operators: by the tenant's own reference, or by number.

Numbers have no index (the hot path pays for none), so whole days are read, the newest first, until there is enough or
the time is over; what was looked through is told. A number that retention has hashed is found by its mark.
"""

from __future__ import annotations

import time
from datetime import date
from typing import Any, Final

import asyncpg

from gateway.ledger.retention import hashed
from scheduler.core.values import valueclass

FOUND_MAX: Final = 50
BY_NUMBER_S: Final = 6.0
_COLUMNS: Final = """
m.id, t.name AS tenant, m.class, m.status, m.recipient, m.sender, m.route, m.provider, m.segments, m.client_ref,
m.created_at, m.final_at
"""
_BY_REFERENCE: Final = f"""
SELECT {_COLUMNS} FROM tenants t
 CROSS JOIN LATERAL (SELECT * FROM messages m WHERE m.tenant_id = t.id AND m.client_ref = $1
                      ORDER BY m.id DESC LIMIT $2) AS m
 ORDER BY m.id DESC LIMIT $2
"""  # noqa: S608 - constant text only
_BY_NUMBER: Final = f"""
SELECT {_COLUMNS} FROM messages m JOIN tenants t ON t.id = m.tenant_id
 WHERE m.day = $1 AND m.recipient = ANY ($2::text[]) ORDER BY m.id DESC LIMIT $3
"""  # noqa: S608 - constant text only
_DAYS: Final = """
SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'messages'::regclass
 ORDER BY 1 DESC
"""
_S: Final = 10.0


@valueclass
class Search:
    """What was found, newest first; days from `first` to `last` were looked through, `more` lie before these."""

    rows: list[asyncpg.Record]
    first: date | None = None
    last: date | None = None
    more: bool = False


async def by_reference(conn: asyncpg.Connection[Any], client_ref: str) -> Search:
    """Messages of all tenants with this `client_ref`."""
    return Search(list(await conn.fetch(_BY_REFERENCE, client_ref, FOUND_MAX, timeout=_S)))


async def by_number(conn: asyncpg.Connection[Any], pepper: bytes, number: str, before: date | None = None) -> Search:
    """Messages to a number (`+digits`), on days before one; stops after 50 messages or six seconds."""
    known_as = [number, hashed(pepper, number)]
    days = [row["day"] for row in await conn.fetch(_DAYS) if before is None or row["day"] < before]
    until_mono = time.monotonic() + BY_NUMBER_S
    rows: list[asyncpg.Record] = []
    looked: list[date] = []
    for day in days:
        if looked and (len(rows) >= FOUND_MAX or time.monotonic() > until_mono):
            break
        rows += await conn.fetch(_BY_NUMBER, day, known_as, FOUND_MAX - len(rows), timeout=60.0)
        looked.append(day)
    if not looked:
        return Search(rows)
    return Search(rows, looked[-1], looked[0], more=len(looked) < len(days))
