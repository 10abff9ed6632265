"""Submits that may be at a carrier under an id that nobody told us, and their receipts (design section 4).

Rows appear with a lost answer (or one that names no id) and go when the id is learnt: by a late answer, or by the one
receipt that can be about them. The common road never comes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.domain.folding import FINAL_WORDS, UNTOUCHED
from gateway.domain.matching import FAIR_CHANCE_MS, Stray, Submit, could_own, match_by_address, other_base, same_number
from gateway.ledger.folds import ADD_MESSAGE_EVENTS
from scheduler.core.values import valueclass

# The cause on the timeline of a receipt that was matched without a carrier id.
BY_ADDRESS: Final = "matched_by_address"

_KEEP = """
INSERT INTO unnamed_submits (day, id, slot, part, provider, recipient, sender, earliest_at, latest_at)
SELECT a.day, a.id, a.slot, w.part, w.provider, m.recipient, m.sender, least(a.claimed_at, w.latest_at), w.latest_at
  FROM unnest($1::date[], $2::uuid[], $3::smallint[], $4::smallint[], $5::text[], $6::bigint[])
       AS w (day, id, slot, part, provider, latest_at)
 CROSS JOIN LATERAL (SELECT * FROM attempts n WHERE n.day = w.day AND n.id = w.id AND n.slot = w.slot OFFSET 0) AS a
 CROSS JOIN LATERAL (SELECT * FROM messages n WHERE n.day = w.day AND n.id = w.id OFFSET 0) AS m
ON CONFLICT DO NOTHING
"""
_TAKE = """
DELETE FROM unnamed_submits u USING unnest($1::date[], $2::uuid[], $3::smallint[], $4::smallint[])
    AS w (day, id, slot, part)
WHERE u.day = w.day AND u.id = w.id AND u.slot = w.slot AND u.part = w.part
RETURNING u.id, u.slot, u.part
"""
_AT_ADDRESSES = """
SELECT DISTINCT u.day, u.id, u.slot, u.part, u.provider, u.recipient, u.sender, u.earliest_at, u.latest_at
  FROM unnest($1::text[], $2::text[]) AS w (provider, tail)
  JOIN unnamed_submits u ON u.provider = w.provider AND right(u.recipient, 7) = w.tail
"""
# What is claimed and not answered yet may be what the receipt is about: its carrier id is on the way.
_OPEN_SLOTS = """
WITH open AS MATERIALIZED (
    SELECT day, id, provider, claimed_at FROM attempts WHERE outcome IS NULL AND provider = ANY ($1::text[])
)
SELECT o.provider, o.claimed_at, m.recipient
  FROM open o
 CROSS JOIN LATERAL (SELECT recipient FROM messages n WHERE n.day = o.day AND n.id = o.id OFFSET 0) AS m
 WHERE right(m.recipient, 7) = ANY ($2::text[])
"""
_KNOWN_IDS = """
SELECT w.receipt_id, i.recipient
  FROM unnest($1::bigint[], $2::text[], $3::text[]) AS w (receipt_id, provider, carrier_id)
 CROSS JOIN LATERAL (SELECT * FROM carrier_ids c WHERE c.provider = w.provider AND c.carrier_id = w.carrier_id) AS i
"""
_NAME = """
INSERT INTO carrier_ids (provider, carrier_id, day, id, slot, part, recipient, sent_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::date[], $4::uuid[], $5::smallint[], $6::smallint[], $7::text[],
                     $8::bigint[])
ON CONFLICT DO NOTHING
"""
_FORGET = """
DELETE FROM unnamed_submits u
USING (SELECT day, id, slot, part FROM unnamed_submits WHERE latest_at < $1 ORDER BY latest_at LIMIT $2) AS o
WHERE u.day = o.day AND u.id = o.id AND u.slot = o.slot AND u.part = o.part
"""


@valueclass
class Unnamed:
    """A part of a slot whose carrier id is not known; `latest_at` (UTC ms): it left before, if it left."""

    day: date
    id: UUID
    slot: int
    part: int
    provider: str
    latest_at: int


async def keep_unnamed(conn: asyncpg.Connection[Any], unnamed: Sequence[Unnamed]) -> None:
    """Keeps submits whose carrier id is not known, in the caller's transaction."""
    if unnamed:
        await conn.execute(
            _KEEP,
            [one.day for one in unnamed],
            [one.id for one in unnamed],
            [one.slot for one in unnamed],
            [one.part for one in unnamed],
            [one.provider for one in unnamed],
            [one.latest_at for one in unnamed],
        )


async def take_named(
    conn: asyncpg.Connection[Any], places: Sequence[tuple[date, UUID, int, int]]
) -> set[tuple[UUID, int, int]]:
    """Forgets submits, each (day, id, slot, part), that are in doubt no more; returns those that were there.

    The caller holds the message rows locked: who deletes a row has settled whose id it is.
    """
    if not places:
        return set()
    rows = await conn.fetch(_TAKE, *(list(column) for column in zip(*places, strict=True)))
    return {(row["id"], row["slot"], row["part"]) for row in rows}


async def forget_unnamed(conn: asyncpg.Connection[Any], before_at: int, limit: int) -> int:
    """Deletes submits that left before an instant; returns how many."""
    return int((await conn.execute(_FORGET, before_at, limit)).rpartition(" ")[2] or 0)


async def match_strays(
    conn: asyncpg.Connection[Any], rows: Iterable[Mapping[str, Any]], cutoff_ms: int, now_at: int
) -> dict[int, Submit]:
    """Receipt id -> the submit it is about, for receipts that no carrier id explains.

    The order of the statements matters, each sees what was committed before it. What is not claimed any more at the
    second has left either an unnamed submit for the third to see or a carrier id for the fourth.
    """
    strays = [stray for row in rows if (stray := _stray_of(row, now_at)) is not None]
    strays = await _fitting(conn, strays, cutoff_ms)
    if not strays:
        return {}
    claims = await _awaited(conn, strays)
    strays = [stray for stray in strays if not any(could_own(stray, *claim) for claim in claims)]
    submits = await _submits_at(conn, strays)
    return match_by_address(await _without_known(conn, strays), submits, cutoff_ms)


async def still_awaited(conn: asyncpg.Connection[Any], rows: Sequence[Mapping[str, Any]]) -> set[int]:
    """Of these receipts those that may be of a submit to their handset that is claimed and not answered yet."""
    strays = [_stray(row) for row in rows if row["recipient"]]
    claims = await _awaited(conn, strays)
    return {stray.id for stray in strays if any(could_own(stray, *claim) for claim in claims)}


async def _awaited(conn: asyncpg.Connection[Any], strays: Sequence[Stray]) -> list[tuple[str, str, int]]:
    """(provider, recipient, claimed_at) of what is claimed and not answered yet at these handsets."""
    if not strays:
        return []
    providers, tails = {stray.provider for stray in strays}, {_tail(stray) for stray in strays}
    rows = await conn.fetch(_OPEN_SLOTS, list(providers), list(tails))
    return [(row["provider"], row["recipient"], row["claimed_at"]) for row in rows]


async def name_submits(
    conn: asyncpg.Connection[Any],
    found: Mapping[int, Submit],
    receipts: Mapping[int, Mapping[str, Any]],
    messages: Mapping[UUID, Mapping[str, Any]],
    now_at: int,
) -> dict[int, Submit]:
    """Settles matches by address under the lock of their messages; returns those that hold.

    A submit learns its carrier id from the receipt, so that later receipts come by the ordinary road. Messages that
    nothing of the network may touch are left alone.
    """
    allowed = {
        receipt_id: one
        for receipt_id, one in found.items()
        if one.message_id in messages and messages[one.message_id]["status"] not in UNTOUCHED
    }
    places = sorted({(one.day, one.message_id, one.slot, one.part) for one in allowed.values()})
    taken = await take_named(conn, places)
    held = {rid: one for rid, one in allowed.items() if (one.message_id, one.slot, one.part) in taken}
    if not held:
        return {}
    named = sorted(
        {(one.provider, receipts[rid]["carrier_id"], one) for rid, one in held.items() if receipts[rid]["carrier_id"]},
        key=lambda name: name[:2],
    )
    if named:
        await conn.execute(
            _NAME,
            [provider for provider, _, _ in named],
            [carrier_id for _, carrier_id, _ in named],
            [one.day for _, _, one in named],
            [one.message_id for _, _, one in named],
            [one.slot for _, _, one in named],
            [one.part for _, _, one in named],
            [one.recipient for _, _, one in named],
            [one.earliest_at for _, _, one in named],
        )
    told = sorted({(one.day, one.message_id) for one in held.values()})
    columns = [day for day, _ in told], [message_id for _, message_id in told]
    await conn.execute(ADD_MESSAGE_EVENTS, *columns, ["receipt"] * len(told), [BY_ADDRESS] * len(told), now_at)
    return held


def _stray_of(row: Mapping[str, Any], now_at: int) -> Stray | None:
    """A receipt that may be matched by its address; without an id only a final word is worth it."""
    if row["state"] is None or now_at - row["received_at"] < FAIR_CHANCE_MS:
        return None
    if not row["recipient"] or not row["sender"] or (not row["carrier_id"] and row["state"] not in FINAL_WORDS):
        return None
    return _stray(row)


def _stray(row: Mapping[str, Any]) -> Stray:
    return Stray(
        id=row["id"],
        provider=row["provider"],
        carrier_id=row["carrier_id"],
        recipient=row["recipient"] or "",
        sender=row["sender"] or "",
        received_at=row["received_at"],
        submitted_at=row["submitted_at"],
        done_at=row["done_at"],
        reference=row["own_reference"],
    )


async def _fitting(conn: asyncpg.Connection[Any], strays: Sequence[Stray], cutoff_ms: int) -> list[Stray]:
    found = match_by_address(strays, await _submits_at(conn, strays), cutoff_ms)
    return [stray for stray in strays if stray.id in found]


async def _submits_at(conn: asyncpg.Connection[Any], strays: Sequence[Stray]) -> list[Submit]:
    addresses = sorted({(stray.provider, _tail(stray)) for stray in strays})
    if not addresses:
        return []
    rows = await conn.fetch(_AT_ADDRESSES, [provider for provider, _ in addresses], [tail for _, tail in addresses])
    return [Submit(*row) for row in rows]


async def _without_known(conn: asyncpg.Connection[Any], strays: Sequence[Stray]) -> list[Stray]:
    """Drops receipts whose id is known after all, as it stands or in the other base, for that handset."""
    asked = [
        (stray.id, stray.provider, form)
        for stray in strays
        if stray.carrier_id
        for form in (stray.carrier_id, *other_base(stray.carrier_id))
    ]
    if not asked:
        return list(strays)
    rows = await conn.fetch(_KNOWN_IDS, *(list(column) for column in zip(*asked, strict=True)))
    recipients = {stray.id: stray.recipient for stray in strays}
    known = {row["receipt_id"] for row in rows if same_number(row["recipient"], recipients[row["receipt_id"]])}
    return [stray for stray in strays if stray.id not in known]


def _tail(stray: Stray) -> str:
    return stray.recipient[-7:]
