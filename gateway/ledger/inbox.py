"""The receipt inbox: what carriers deliver, kept before it is answered (design section 1, hops 9 and 10; I28).

A receipt sent twice is one row by the digest of its body; a handset's message also counts session and sequence_number,
since two people may send the same words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import asyncpg

CHANNEL: Final = "sluicegate_receipts"

_KEEP_RECEIPTS = """
INSERT INTO receipts (provider, digest, session, received_at, carrier_id, raw_id, recipient, sender, state, error_code,
                      done_at, submitted_at, raw, next_try_at)
SELECT r.provider, r.digest, r.session, r.received_at, r.carrier_id, r.raw_id, r.recipient, r.sender, r.state,
       r.error_code, r.done_at, r.submitted_at, r.raw, r.received_at
  FROM unnest($1::text[], $2::bytea[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[],
              $9::text[], $10::text[], $11::bigint[], $12::bigint[], $13::bytea[])
       AS r (provider, digest, session, received_at, carrier_id, raw_id, recipient, sender, state, error_code, done_at,
             submitted_at, raw)
 ORDER BY r.provider, r.digest
ON CONFLICT DO NOTHING
"""

_KEEP_INBOUND = """
INSERT INTO inbound_parts (provider, session, sequence, digest, received_at, sender, recipient, raw)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[], $5::bigint[], $6::text[], $7::text[],
                     $8::bytea[]) AS r (provider, session, sequence, digest, received_at, sender, recipient, raw)
 ORDER BY r.provider, r.session, r.sequence, r.digest
ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, slots=True)
class ReceivedReceipt:
    """A receipt as read in its provider's dialect; `recipient` is its source_addr, digits only."""

    provider: str
    session: str
    received_at: int
    carrier_id: str | None
    raw_id: str | None
    recipient: str
    sender: str
    state: str | None
    error_code: str | None
    done_at: int | None
    raw: bytes
    submitted_at: int | None = None


@dataclass(frozen=True, slots=True)
class ReceivedPart:
    """One PDU of a handset's message, unread."""

    provider: str
    session: str
    sequence: int
    received_at: int
    sender: str
    recipient: str
    raw: bytes


async def keep(
    conn: asyncpg.Connection[Any], receipts: Sequence[ReceivedReceipt], parts: Sequence[ReceivedPart]
) -> None:
    """Keeps a batch in one transaction and wakes the merger once; repeats change nothing."""
    async with conn.transaction():
        if receipts:
            await conn.execute(
                _KEEP_RECEIPTS,
                [r.provider for r in receipts],
                [sha256(r.raw).digest() for r in receipts],
                [r.session for r in receipts],
                [r.received_at for r in receipts],
                [r.carrier_id for r in receipts],
                [_storable(r.raw_id) for r in receipts],
                [_storable(r.recipient) for r in receipts],
                [_storable(r.sender) for r in receipts],
                [r.state for r in receipts],
                [_storable(r.error_code) for r in receipts],
                [r.done_at for r in receipts],
                [r.submitted_at for r in receipts],
                [r.raw for r in receipts],
            )
        if parts:
            await conn.execute(
                _KEEP_INBOUND,
                [p.provider for p in parts],
                [p.session for p in parts],
                [p.sequence for p in parts],
                [sha256(p.raw).digest() for p in parts],
                [p.received_at for p in parts],
                [_storable(p.sender) for p in parts],
                [_storable(p.recipient) for p in parts],
                [p.raw for p in parts],
            )
        await conn.execute("SELECT pg_notify($1, '')", CHANNEL)


def _storable(text: str | None) -> str | None:
    # PostgreSQL's text has no NUL; a carrier's field may.
    return None if text is None else text.replace("\x00", "")
