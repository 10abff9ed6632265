"""Receipts into the network column: match, lock, fold, write, in one transaction per batch (design section 4).

The message rows are locked in key order first; their receipts are read in a new statement afterwards, so that what
another transaction committed meanwhile counts. One merger works at a time in the whole installation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.domain import states
from gateway.domain.matching import Asked, Candidate, Submit, choose, is_doubtful, is_full, next_look_ms
from gateway.ledger.adoption import adopt_proven
from gateway.ledger.folds import Refolded, lock_messages, refold
from gateway.ledger.retention import HASH_MARK
from gateway.ledger.unnamed_submits import match_strays, name_submits, still_awaited
from gateway.policy.rules.snapshot import Policy
from scheduler.core.values import valueclass

CHANNEL: Final = "sluicegate_receipts"
BATCH: Final = 500
_MERGER_LOCK: Final = "sluicegate.merge"
# A carrier that uses ids again leaves many candidates; older ones than these cannot be meant.
_CANDIDATES_PER_ID: Final = 20

_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))"
_DUE = """
SELECT id, provider, carrier_id, own_reference, recipient, sender, state, received_at, submitted_at, done_at, tries,
       next_try_at, day, message_id, slot, part
FROM receipts
WHERE merged_at IS NULL AND next_try_at <= $1
ORDER BY next_try_at, id
LIMIT $2
"""
_CANDIDATES = f"""
SELECT w.receipt_id, c.day, c.id AS message_id, c.slot, c.part, c.recipient, c.sent_at
FROM unnest($1::bigint[], $2::text[], $3::text[]) AS w (receipt_id, provider, carrier_id)
CROSS JOIN LATERAL (
    SELECT * FROM carrier_ids i
    WHERE i.provider = w.provider AND i.carrier_id = w.carrier_id
    ORDER BY i.sent_at DESC
    LIMIT {_CANDIDATES_PER_ID}
) AS c
"""  # noqa: S608 - a number of ours
# A carrier whose receipts bear other ids than its answers gives our own reference back: the id of the message.
_REFERRED = """
SELECT w.receipt_id, c.day, c.id AS message_id, c.slot, c.part, c.recipient, c.sent_at
FROM unnest($1::bigint[], $2::text[], $3::uuid[]) AS w (receipt_id, provider, message_id)
JOIN carrier_ids c ON c.id = w.message_id AND c.provider = w.provider
"""
_JOIN = """
UPDATE receipts r
SET day = w.day, message_id = w.message_id, slot = w.slot, part = w.part, tries = r.tries + 1,
    merged_at = CASE WHEN w.next_try_at IS NULL THEN $7::bigint END, next_try_at = w.next_try_at
FROM unnest($1::bigint[], $2::date[], $3::uuid[], $4::smallint[], $5::smallint[], $6::bigint[])
     AS w (id, day, message_id, slot, part, next_try_at)
WHERE r.id = w.id
"""
# A receipt of a message whose number is no longer kept does not bring it back.
_FORGET_NUMBERS = "UPDATE receipts SET recipient = NULL, raw = '' WHERE id = ANY ($1::bigint[])"
_LOOK_LATER = """
UPDATE receipts r SET tries = r.tries + 1, next_try_at = w.next_try_at
FROM unnest($1::bigint[], $2::bigint[]) AS w (id, next_try_at)
WHERE r.id = w.id
"""
_WAKE = """
UPDATE receipts r SET next_try_at = $1
FROM (
    SELECT o.id
    FROM (
        SELECT id, provider, carrier_id, recipient FROM receipts
        WHERE merged_at IS NULL AND message_id IS NULL AND carrier_id IS NOT NULL AND next_try_at > $1
        ORDER BY next_try_at
        LIMIT $2
    ) AS o
    CROSS JOIN LATERAL (
        SELECT 1 FROM carrier_ids i
        WHERE i.provider = o.provider AND i.carrier_id = o.carrier_id AND i.sent_at >= $3
          AND right(i.recipient, 7) = right(o.recipient, 7)
        LIMIT 1
    ) AS c
) AS w
WHERE r.id = w.id
"""


@valueclass
class Merged:
    """What one batch came to. `finals`: (provider, ms from sent to the carrier's final word).

    `due_at`: since when (UTC ms) the one that waited longest was to be looked at.
    """

    looked_at: int = 0
    due_at: int | None = None
    merged: int = 0
    unmatched: int = 0
    notices: int = 0
    finals: tuple[tuple[str, int], ...] = ()
    busy: bool = False  # another merger holds the lock


@dataclass(slots=True)
class _Batch:
    """The receipts in hand: id -> the accepted part it speaks of."""

    rows: dict[int, asyncpg.Record] = field(default_factory=dict)
    found: dict[int, Candidate] = field(default_factory=dict)

    def take(self, by_address: Mapping[int, Submit]) -> None:
        for receipt_id, one in by_address.items():
            self.found[receipt_id] = Candidate(
                one.day, one.message_id, one.slot, one.part, one.recipient, one.earliest_at
            )

    def leave(self, receipt_ids: Iterable[int]) -> None:
        for receipt_id in receipt_ids:
            del self.found[receipt_id]

    def keys(self) -> list[tuple[date, UUID]]:
        return sorted({(one.day, one.message_id) for one in self.found.values()})


async def merge_batch(
    conn: asyncpg.Connection[asyncpg.Record], policy: Policy, now_at: int, limit: int = BATCH
) -> Merged:
    """Merge up to `limit` receipts that are due, in one transaction."""
    async with conn.transaction():
        if not await conn.fetchval(_TRY_LOCK, _MERGER_LOCK):
            return Merged(busy=True)
        batch = _Batch({row["id"]: row for row in await conn.fetch(_DUE, now_at, limit)})
        if not batch.rows:
            return Merged()
        await _match(conn, batch)
        strays = [row for rid, row in batch.rows.items() if rid not in batch.found]
        by_address = await match_strays(conn, strays, policy.receipts.cutoff_ms, now_at)
        batch.take(by_address)
        messages = await lock_messages(conn, batch.keys())
        if by_address:
            batch.leave(by_address.keys() - await name_submits(conn, by_address, batch.rows, messages, now_at))
        await _join(conn, batch, messages, now_at)
        await _look_later(conn, batch, messages, now_at, crowded=len(batch.rows) >= limit)
        rows = await adopt_proven(conn, policy, list(messages.values()), now_at)
        changes = await refold(conn, policy, rows, now_at, cut_off=False)
        merged = [one for one in batch.found.values() if one.message_id in messages]
        return Merged(
            looked_at=len(batch.rows),
            due_at=next(iter(batch.rows.values()))["next_try_at"],
            merged=len(merged),
            unmatched=len(batch.rows) - len(merged),
            notices=changes.notices,
            finals=_delays(batch, changes),
        )


async def next_look_at(conn: asyncpg.Connection[asyncpg.Record]) -> int | None:
    """When the next receipt that is not merged must be looked at (UTC ms); None where all are merged."""
    found: int | None = await conn.fetchval("SELECT min(next_try_at) FROM receipts WHERE merged_at IS NULL")
    return found


async def wake_waiting(
    conn: asyncpg.Connection[asyncpg.Record], now_at: int, accepted_since: int, limit: int = 2_000
) -> int:
    """Make receipts due whose carrier id was committed after they were put off; returns how many."""
    return _count(await conn.execute(_WAKE, now_at, limit, accepted_since))


async def _match(conn: asyncpg.Connection[asyncpg.Record], batch: _Batch) -> None:
    """Finds parts by carrier id; a receipt without one that was bound by its address stays where it is."""
    for row in batch.rows.values():
        if row["message_id"] is not None and not row["carrier_id"]:
            batch.found[row["id"]] = Candidate(
                row["day"], row["message_id"], row["slot"], row["part"], row["recipient"], row["received_at"]
            )
    named = [row for row in batch.rows.values() if row["carrier_id"]]
    if named:
        columns = ([row[name] for row in named] for name in ("id", "provider", "carrier_id"))
        await _choose(conn, batch, named, _candidates(await conn.fetch(_CANDIDATES, *columns)))
    await _match_by_reference(conn, batch)


async def _choose(
    conn: asyncpg.Connection[asyncpg.Record],
    batch: _Batch,
    named: Sequence[asyncpg.Record],
    candidates: Mapping[int, Sequence[Candidate]],
) -> None:
    """The part that each receipt is about. One that may be of a newer submit waits while that is not answered."""
    doubtful: list[asyncpg.Record] = []
    for row in named:
        asked = _asked(row)
        chosen = choose(candidates.get(row["id"], ()), asked)
        if chosen is not None:
            batch.found[row["id"]] = chosen
            if is_doubtful(asked, chosen):
                doubtful.append(row)
    batch.leave(await still_awaited(conn, doubtful))


async def _match_by_reference(conn: asyncpg.Connection[asyncpg.Record], batch: _Batch) -> None:
    """Finds messages by their own id where the carrier's says nothing; one with several parts does not tell which."""
    rows = [row for row in batch.rows.values() if row["id"] not in batch.found and is_full(row["own_reference"])]
    if not rows:
        return
    ids = [UUID(row["own_reference"]) for row in rows]
    found = await conn.fetch(_REFERRED, [row["id"] for row in rows], [row["provider"] for row in rows], ids)
    for receipt_id, candidates in _candidates(found).items():
        if len({one.part for one in candidates}) == 1:
            chosen = choose(candidates, _asked(batch.rows[receipt_id]))
            if chosen is not None:
                batch.found[receipt_id] = chosen


def _asked(row: Mapping[str, Any]) -> Asked:
    return Asked(row["recipient"], row["received_at"], row["submitted_at"], row["own_reference"])


def _candidates(rows: Iterable[Mapping[str, Any]]) -> dict[int, list[Candidate]]:
    candidates: dict[int, list[Candidate]] = defaultdict(list)
    for row in rows:
        candidates[row["receipt_id"]].append(
            Candidate(row["day"], row["message_id"], row["slot"], row["part"], row["recipient"], row["sent_at"])
        )
    return candidates


async def _join(
    conn: asyncpg.Connection[asyncpg.Record],
    batch: _Batch,
    messages: Mapping[UUID, Mapping[str, Any]],
    now_at: int,
) -> None:
    """Bind receipts to their parts. One whose message is not settled on our side yet stays due for another look."""
    joined = [(rid, one) for rid, one in sorted(batch.found.items()) if one.message_id in messages]
    if not joined:
        return
    looks: list[int | None] = []
    for receipt_id, one in joined:
        waits = messages[one.message_id]["status"] in (states.QUEUED, states.SCHEDULED, states.UNCONFIRMED)
        age_ms = now_at - batch.rows[receipt_id]["received_at"]
        looks.append(now_at + next_look_ms(age_ms) if waits else None)
    await conn.execute(
        _JOIN,
        [receipt_id for receipt_id, _ in joined],
        [one.day for _, one in joined],
        [one.message_id for _, one in joined],
        [one.slot for _, one in joined],
        [one.part for _, one in joined],
        looks,
        now_at,
    )
    forgotten = [rid for rid, one in joined if messages[one.message_id]["recipient"].startswith(HASH_MARK)]
    if forgotten:
        await conn.execute(_FORGET_NUMBERS, forgotten)


async def _look_later(
    conn: asyncpg.Connection[asyncpg.Record],
    batch: _Batch,
    messages: Mapping[UUID, Mapping[str, Any]],
    now_at: int,
    *,
    crowded: bool,
) -> None:
    lost = sorted(rid for rid in batch.rows if rid not in batch.found or batch.found[rid].message_id not in messages)
    if lost:
        rows = [batch.rows[rid] for rid in lost]
        looks = [now_at + next_look_ms(now_at - row["received_at"], row["tries"], crowded=crowded) for row in rows]
        await conn.execute(_LOOK_LATER, lost, looks)


def _delays(batch: _Batch, changes: Refolded) -> tuple[tuple[str, int], ...]:
    sent_at = {one.message_id: one.sent_at for one in batch.found.values()}
    return tuple(
        (row["provider"], max(0, row["final_at"] - (row["sent_at"] or sent_at[row["id"]])))
        for row, change in changes.settled
        if not change.corrected and row["id"] in sent_at
    )


def _count(status: str) -> int:
    return int(status.rpartition(" ")[2] or 0)
