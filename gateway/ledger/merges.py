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
import orjson

from gateway.domain import states
from gateway.domain.folding import UNTOUCHED, Fact, NetworkWord, Settled, fold, settle
from gateway.domain.matching import Candidate, choose, next_look_ms
from gateway.ledger.callback_lines import CORRECTED, add_events, event_of
from gateway.policy.rules.snapshot import Policy

CHANNEL: Final = "sluicegate_receipts"
BATCH: Final = 500
_MERGER_LOCK: Final = "sluicegate.merge"
# A carrier that uses ids again leaves many candidates; older ones than these cannot be meant.
_CANDIDATES_PER_ID: Final = 20

# Every column of `messages` that decisions and the message object need: all but the text.
MESSAGE_COLUMNS: Final = """
m.day, m.id, m.tenant_id, m.class, m.status, m.version, m.next_slot, m.attempts_spent, m.submit_begun, m.recipient,
m.sender, m.encoding, m.segments, m.application, m.client_ref, m.extras, m.route, m.provider, m.created_at,
m.not_before, m.submit_by, m.expires_at, m.sweep_at, m.final_at, m.predicted_wait_ms, m.policy_version,
m.network_state, m.delivery, m.expiry, m.error, m.possible_duplicate
"""

_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))"
_DUE = """
SELECT id, provider, carrier_id, recipient, received_at
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
# The lateral join makes PostgreSQL lock the rows in the order in which they are given.
LOCK_MESSAGES: Final = f"""
SELECT m.*
FROM unnest($1::date[], $2::uuid[]) AS w (day, id)
CROSS JOIN LATERAL (
    SELECT {MESSAGE_COLUMNS} FROM messages m WHERE m.day = w.day AND m.id = w.id FOR UPDATE
) AS m
"""  # noqa: S608 - column names of ours
_JOIN = """
UPDATE receipts r
SET day = w.day, message_id = w.message_id, slot = w.slot, part = w.part, tries = r.tries + 1,
    merged_at = CASE WHEN w.next_try_at IS NULL THEN $7::bigint END, next_try_at = w.next_try_at
FROM unnest($1::bigint[], $2::date[], $3::uuid[], $4::smallint[], $5::smallint[], $6::bigint[])
     AS w (id, day, message_id, slot, part, next_try_at)
WHERE r.id = w.id
"""
_LOOK_LATER = """
UPDATE receipts r SET tries = r.tries + 1, next_try_at = w.next_try_at
FROM unnest($1::bigint[], $2::bigint[]) AS w (id, next_try_at)
WHERE r.id = w.id
"""
_FACTS = """
SELECT message_id, part, state, provider, error_code, done_at, received_at
FROM receipts
WHERE message_id = ANY ($1::uuid[]) AND state IS NOT NULL
"""
_WRITE = """
UPDATE messages m
SET status = w.status, version = m.version + w.step, network_state = w.network_state, delivery = w.delivery::jsonb,
    error = CASE WHEN w.step > 0 THEN NULL ELSE m.error END,
    final_at = CASE WHEN w.step > 0 THEN $7::bigint ELSE m.final_at END,
    sweep_at = CASE WHEN w.step > 0 THEN NULL ELSE m.sweep_at END
FROM unnest($1::date[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::text[])
     AS w (day, id, status, step, network_state, delivery)
WHERE m.day = w.day AND m.id = w.id
"""
ADD_MESSAGE_EVENTS: Final = """
INSERT INTO message_events (day, id, at, type, cause)
SELECT w.day, w.id, $5, w.type, w.cause
FROM unnest($1::date[], $2::uuid[], $3::text[], $4::text[]) AS w (day, id, type, cause)
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


@dataclass(frozen=True, slots=True)
class Merged:
    """What one batch came to. `finals`: (provider, ms from sent to the carrier's final word)."""

    looked_at: int = 0
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
        messages = await lock_messages(conn, batch.keys())
        await _join(conn, batch, messages, now_at)
        await _look_later(conn, batch, messages, now_at)
        changes = await refold(conn, policy, list(messages.values()), now_at, cut_off=False)
        merged = [one for one in batch.found.values() if one.message_id in messages]
        return Merged(
            looked_at=len(batch.rows),
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


async def lock_messages(
    conn: asyncpg.Connection[asyncpg.Record], keys: Sequence[tuple[date, UUID]]
) -> dict[UUID, asyncpg.Record]:
    """Lock the rows of these messages; `keys` are sorted by (day, id)."""
    if not keys:
        return {}
    rows = await conn.fetch(LOCK_MESSAGES, [day for day, _ in keys], [message_id for _, message_id in keys])
    return {row["id"]: row for row in rows}


@dataclass(frozen=True, slots=True)
class Refolded:
    """Rows that changed status, as they are now, and how many callbacks were written."""

    settled: tuple[tuple[Mapping[str, Any], Settled], ...] = ()
    notices: int = 0


async def refold(
    conn: asyncpg.Connection[asyncpg.Record],
    policy: Policy,
    rows: Sequence[Mapping[str, Any]],
    now_at: int,
    *,
    cut_off: bool,
) -> Refolded:
    """Fold all receipts of locked messages and write what changed: delivery, status, timeline, callbacks.

    `cut_off`: their wait for receipts is over.
    """
    rows = [row for row in rows if row["status"] not in UNTOUCHED]
    facts = await _facts(conn, [row["id"] for row in rows])
    written: list[tuple[Mapping[str, Any], int]] = []
    settled: list[tuple[Mapping[str, Any], Settled]] = []
    for row in rows:
        over = cut_off or (states.is_final(row["status"]) and row["status"] != states.FAILED)
        word = fold(facts[row["id"]], parts_expected(policy, row), cut_off=over)
        outcome = settle(row["status"], (row["error"] or {}).get("code"), word, cut_off=over)
        after = _after(row, word, outcome, now_at)
        if after is None:
            continue
        written.append((after, 0 if outcome is None else 1))
        if outcome is not None:
            settled.append((after, outcome))
    await _write(conn, written, now_at)
    await _tell_timeline(conn, rows, settled, now_at)
    notices = await add_events(conn, policy, [(row, _event(change)) for row, change in settled], now_at)
    return Refolded(tuple(settled), notices)


def parts_expected(policy: Policy, row: Mapping[str, Any]) -> int:
    """How many submits carry the message: one where the dialect takes long texts whole."""
    provider = policy.providers.get(row["provider"])
    if provider is not None and provider.dialect.long_messages == "payload":
        return 1
    return int(row["segments"])


def _event(change: Settled) -> str:
    told = CORRECTED if change.corrected else event_of(change.status)
    if told is None:
        raise ValueError(f"no event tells of status {change.status}")
    return told


def _after(
    row: Mapping[str, Any], word: NetworkWord | None, outcome: Settled | None, now_at: int
) -> Mapping[str, Any] | None:
    delivery = row["delivery"] if word is None else word.stored()
    if outcome is None:
        if delivery == row["delivery"]:
            return None
        return {**row, "delivery": delivery, "network_state": delivery["state"]}
    return {
        **row,
        "status": outcome.status,
        "version": row["version"] + 1,
        "network_state": None if delivery is None else delivery["state"],
        "delivery": delivery,
        "error": None,
        "final_at": now_at,
        "sweep_at": None,
    }


async def _match(conn: asyncpg.Connection[asyncpg.Record], batch: _Batch) -> None:
    named = [row for row in batch.rows.values() if row["carrier_id"]]
    if not named:
        return
    candidates: dict[int, list[Candidate]] = defaultdict(list)
    for row in await conn.fetch(
        _CANDIDATES,
        [row["id"] for row in named],
        [row["provider"] for row in named],
        [row["carrier_id"] for row in named],
    ):
        candidates[row["receipt_id"]].append(
            Candidate(row["day"], row["message_id"], row["slot"], row["part"], row["recipient"], row["sent_at"])
        )
    for row in named:
        chosen = choose(candidates[row["id"]], row["recipient"])
        if chosen is not None:
            batch.found[row["id"]] = chosen


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


async def _look_later(
    conn: asyncpg.Connection[asyncpg.Record],
    batch: _Batch,
    messages: Mapping[UUID, Mapping[str, Any]],
    now_at: int,
) -> None:
    lost = sorted(rid for rid in batch.rows if rid not in batch.found or batch.found[rid].message_id not in messages)
    if lost:
        looks = [now_at + next_look_ms(now_at - batch.rows[rid]["received_at"]) for rid in lost]
        await conn.execute(_LOOK_LATER, lost, looks)


async def _facts(conn: asyncpg.Connection[asyncpg.Record], ids: Iterable[UUID]) -> dict[UUID, list[Fact]]:
    facts: dict[UUID, list[Fact]] = defaultdict(list)
    for row in await conn.fetch(_FACTS, list(ids)):
        facts[row["message_id"]].append(
            Fact(
                part=row["part"],
                state=row["state"],
                provider=row["provider"],
                error_code=row["error_code"],
                done_at=row["done_at"],
                received_at=row["received_at"],
            )
        )
    return facts


async def _write(
    conn: asyncpg.Connection[asyncpg.Record], written: Sequence[tuple[Mapping[str, Any], int]], now_at: int
) -> None:
    if not written:
        return
    await conn.execute(
        _WRITE,
        [row["day"] for row, _ in written],
        [row["id"] for row, _ in written],
        [row["status"] for row, _ in written],
        [step for _, step in written],
        [row["network_state"] for row, _ in written],
        [None if row["delivery"] is None else orjson.dumps(row["delivery"]).decode() for row, _ in written],
        now_at,
    )


async def _tell_timeline(
    conn: asyncpg.Connection[asyncpg.Record],
    before: Sequence[Mapping[str, Any]],
    settled: Sequence[tuple[Mapping[str, Any], Settled]],
    now_at: int,
) -> None:
    was = {row["id"]: row["status"] for row in before}
    corrected = [row for row, change in settled if change.corrected]
    if corrected:
        await conn.execute(
            ADD_MESSAGE_EVENTS,
            [row["day"] for row in corrected],
            [row["id"] for row in corrected],
            ["corrected"] * len(corrected),
            [was[row["id"]] for row in corrected],
            now_at,
        )


def _delays(batch: _Batch, changes: Refolded) -> tuple[tuple[str, int], ...]:
    sent_at = {one.message_id: one.sent_at for one in batch.found.values()}
    return tuple(
        (row["provider"], max(0, row["final_at"] - sent_at[row["id"]]))
        for row, change in changes.settled
        if not change.corrected and row["id"] in sent_at
    )


def _count(status: str) -> int:
    return int(status.rpartition(" ")[2] or 0)
