"""What an Idempotency-Key was answered (contract section 2; invariant I27): looked up for many requests at once.

Rows are written by `gateway.ledger.acceptance` in the transaction that keeps the message, and only there: a refusal is
never kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from scheduler.core.values import valueclass

_LOOK_UP = """
SELECT r.n, i.fingerprint, i.answer, i.status_code
  FROM unnest($1::int[], $2::text[], $3::text[]) WITH ORDINALITY AS r (tenant_id, endpoint, key, n)
  JOIN idempotency i ON i.tenant_id = r.tenant_id AND i.endpoint = r.endpoint AND i.key = r.key
"""


@valueclass
class KeyPlace:
    """Where a key is unique: per tenant and endpoint."""

    tenant_id: int
    endpoint: str
    key: str


@valueclass
class Kept:
    """The first answer under a key, and the body that it answered."""

    fingerprint: bytes
    status: int
    body: bytes


async def look_up(conn: asyncpg.Connection[Any], places: Sequence[KeyPlace]) -> list[Kept | None]:
    """What is kept under each of the keys, in their order; one statement."""
    found: list[Kept | None] = [None] * len(places)
    columns = ([p.tenant_id for p in places], [p.endpoint for p in places], [p.key for p in places])
    for row in await conn.fetch(_LOOK_UP, *columns, timeout=2.0):
        found[row["n"] - 1] = Kept(bytes(row["fingerprint"]), row["status_code"], bytes(row["answer"]))
    return found
