"""The receipt inbox: what carriers deliver, kept before it is answered (design section 1, hops 9 and 10; I28).

A receipt sent twice on one UTC day is one row by the digest of its body. On another day it is one more row: where a
carrier uses ids again and writes no dates, the same words may be about another message, and the same fact twice
changes nothing. A handset's message also counts session and sequence_number: two people may send the same words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import asyncpg

from gateway.domain.coverage import HOUR_MS
from gateway.ledger.coverage import ADD_UP, SHARD
from gateway.ledger.inbound import CHANNEL as INBOUND
from gateway.sealing import Sealer, about_provider
from scheduler.core.values import valueclass

CHANNEL: Final = "sluicegate_receipts"
_DAY_MS: Final = 86_400_000

_KEEP_RECEIPTS = f"""
WITH kept AS (
INSERT INTO receipts (provider, digest, session, received_at, carrier_id, raw_id, recipient, sender, state, error_code,
                      done_at, submitted_at, raw, next_try_at, own_reference)
SELECT r.provider, r.digest, r.session, r.received_at, r.carrier_id, r.raw_id, r.recipient, r.sender, r.state,
       r.error_code, r.done_at, r.submitted_at, r.raw, r.received_at, r.own_reference
  FROM unnest($1::text[], $2::bytea[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[],
              $9::text[], $10::text[], $11::bigint[], $12::bigint[], $13::bytea[], $14::text[])
       AS r (provider, digest, session, received_at, carrier_id, raw_id, recipient, sender, state, error_code, done_at,
             submitted_at, raw, own_reference)
 ORDER BY r.provider, r.digest
ON CONFLICT DO NOTHING
RETURNING provider, received_at
), counted AS (
INSERT INTO coverage_hours AS c (provider, hour_at, shard, receipts)
SELECT provider, received_at - received_at % {HOUR_MS}, {SHARD}, count(*) FROM kept GROUP BY 1, 2 ORDER BY 1, 2
{ADD_UP})
SELECT pg_notify('{CHANNEL}', '')
"""  # noqa: S608 - constants of ours

_KEEP_INBOUND = f"""
WITH kept AS (
INSERT INTO inbound_parts (provider, session, sequence, digest, received_at, sender, recipient, raw, data_sm)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[], $5::bigint[], $6::text[], $7::text[],
                     $8::bytea[], $9::boolean[])
           AS r (provider, session, sequence, digest, received_at, sender, recipient, raw, data_sm)
 ORDER BY r.provider, r.session, r.sequence, r.digest
ON CONFLICT DO NOTHING)
SELECT pg_notify('{INBOUND}', '')
"""  # noqa: S608 - constants of ours


@valueclass
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
    own_reference: str | None = None  # as `gateway.domain.matching.Asked` has it


@valueclass
class ReceivedPart:
    """One PDU of a handset's message, unread."""

    provider: str
    session: str
    sequence: int
    received_at: int
    sender: str
    recipient: str
    raw: bytes
    data_sm: bool = False  # the body of a data_sm, which is laid out otherwise


async def keep(
    conn: asyncpg.Connection[Any],
    sealer: Sealer,
    receipts: Sequence[ReceivedReceipt],
    parts: Sequence[ReceivedPart],
) -> None:
    """Keeps a batch, a statement for each kind, and wakes whoever works on it; repeats change nothing.

    Where the second statement fails the first stands: its rows are repeats when the batch comes again. PDUs as they
    came are sealed: receipts repeat the beginning of a text, handsets' parts are one. For the same reason their digests
    are keyed: a code of six digits is soon found by trying.
    """
    if receipts:
        await conn.execute(
            _KEEP_RECEIPTS,
            [r.provider for r in receipts],
            [sealer.fingerprint(_told_on(r)) for r in receipts],
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
            [sealer.wrap(r.raw, about_provider(r.provider)) for r in receipts],
            [r.own_reference for r in receipts],
        )
    if parts:
        await conn.execute(
            _KEEP_INBOUND,
            [p.provider for p in parts],
            [p.session for p in parts],
            [p.sequence for p in parts],
            [sealer.fingerprint(p.raw) for p in parts],
            [p.received_at for p in parts],
            [_storable(p.sender) for p in parts],
            [_storable(p.recipient) for p in parts],
            [sealer.wrap(p.raw, about_provider(p.provider)) for p in parts],
            [p.data_sm for p in parts],
        )


def _told_on(receipt: ReceivedReceipt) -> bytes:
    return receipt.raw + (receipt.received_at // _DAY_MS).to_bytes(4, "big")


def _storable(text: str | None) -> str | None:
    # PostgreSQL's text has no NUL; a carrier's field may.
    return None if text is None else text.replace("\x00", "")
