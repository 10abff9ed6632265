"""Matches by address that a late answer proves wrong are undone (design section 4, "Ambiguity is a state").

A submit has one id. Where a receipt of another id was taken for it while its answer was lost, that receipt goes back
into the inbox, and the message to what the rest of its receipts say.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any, Final, Protocol
from uuid import UUID

import asyncpg

from gateway.ledger.folds import lock_messages, unfold
from gateway.policy.rules.snapshot import Policy
from scheduler.core.values import valueclass

_FORGET: Final = """
DELETE FROM carrier_ids c
 USING unnest($1::text[], $2::text[], $3::uuid[], $4::smallint[], $5::smallint[])
       AS w (provider, carrier_id, id, slot, part)
 WHERE c.id = w.id AND c.slot = w.slot AND c.part = w.part AND c.provider = w.provider
   AND c.carrier_id <> w.carrier_id
RETURNING c.provider, c.carrier_id, c.day, c.id, c.slot, c.part
"""
_UNBIND: Final = """
UPDATE receipts r
   SET day = NULL, message_id = NULL, slot = NULL, part = NULL, merged_at = NULL, next_try_at = $6
  FROM unnest($1::text[], $2::text[], $3::uuid[], $4::smallint[], $5::smallint[])
       AS w (provider, carrier_id, id, slot, part)
 WHERE r.message_id = w.id AND r.provider = w.provider AND r.carrier_id = w.carrier_id AND r.slot = w.slot
   AND r.part = w.part
"""


class LateAnswer(Protocol):
    """What of a late closing is read here; `carrier_ids` holds (part, id) of what it says was accepted."""

    day: date
    id: UUID
    slot: int
    provider: str
    carrier_ids: list[tuple[int, str]]


@valueclass
class _Named:
    """A part and an id of it."""

    provider: str
    carrier_id: str
    day: date
    id: UUID
    slot: int
    part: int


async def undo_mistaken(conn: asyncpg.Connection[Any], policy: Policy, late: Sequence[LateAnswer], now_at: int) -> int:
    """Undoes what late answers contradict; returns how many messages were touched.

    The caller holds the message rows locked and has stored the answers' own ids.
    """
    answered = [
        _Named(one.provider, carrier_id, one.day, one.id, one.slot, part)
        for one in late
        for part, carrier_id in one.carrier_ids
        if carrier_id
    ]
    if not answered:
        return 0
    wrong = await conn.fetch(_FORGET, *_columns(answered))
    if not wrong:
        return 0
    await conn.execute(_UNBIND, *_columns([_Named(**row) for row in wrong]), now_at)
    rows = await lock_messages(conn, sorted({(row["day"], row["id"]) for row in wrong}))
    await unfold(conn, policy, list(rows.values()), now_at)
    return len(rows)


def _columns(parts: Sequence[_Named]) -> tuple[list[Any], ...]:
    return (
        [one.provider for one in parts],
        [one.carrier_id for one in parts],
        [one.id for one in parts],
        [one.slot for one in parts],
        [one.part for one in parts],
    )
