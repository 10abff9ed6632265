"""The fold of receipts into locked message rows: delivery, status, timeline, callbacks (design section 4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Final
from uuid import UUID

import asyncpg
import orjson

from gateway.domain import states
from gateway.domain.folding import PROVING_WORDS, UNTOUCHED, Fact, Settled, fold, retract, settle
from gateway.ledger.callback_lines import CORRECTED, add_events, event_of
from gateway.ledger.coverage import Deltas, Tally
from gateway.ledger.message_rows import LOCK_MESSAGES
from gateway.policy.rules.snapshot import Policy
from scheduler.core.values import valueclass

_FACTS = """
SELECT message_id, part, state, provider, error_code, done_at, received_at
FROM receipts
WHERE message_id = ANY ($1::uuid[]) AND state IS NOT NULL
"""
_WRITE = """
UPDATE messages m
SET status = w.status, version = m.version + w.step, network_state = w.network_state, delivery = w.delivery::jsonb,
    error = CASE WHEN w.step > 0 THEN NULL ELSE m.error END,
    final_at = w.final_at, sweep_at = w.sweep_at,
    sent_at = CASE WHEN w.step > 0 THEN coalesce(m.sent_at, $7::bigint) ELSE m.sent_at END
FROM unnest($1::date[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::text[], $8::bigint[], $9::bigint[])
     AS w (day, id, status, step, network_state, delivery, final_at, sweep_at)
WHERE m.day = w.day AND m.id = w.id
"""
ADD_MESSAGE_EVENTS: Final = """
INSERT INTO message_events (day, id, at, type, cause)
SELECT w.day, w.id, $5, w.type, w.cause
FROM unnest($1::date[], $2::uuid[], $3::text[], $4::text[]) AS w (day, id, type, cause)
"""


async def lock_messages(
    conn: asyncpg.Connection[asyncpg.Record], keys: Sequence[tuple[date, UUID]]
) -> dict[UUID, asyncpg.Record]:
    """Lock the rows of these messages; `keys` are sorted by (day, id)."""
    if not keys:
        return {}
    rows = await conn.fetch(LOCK_MESSAGES, [day for day, _ in keys], [message_id for _, message_id in keys])
    return {row["id"]: row for row in rows}


async def parts_told(conn: asyncpg.Connection[asyncpg.Record], ids: Sequence[UUID]) -> dict[UUID, dict[int, set[str]]]:
    """Message -> part -> the words of its receipts, as far as they prove that a carrier has taken the part."""
    told: dict[UUID, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    if ids:
        for row in await conn.fetch(_FACTS, list(ids)):
            if row["state"] in PROVING_WORDS:
                told[row["message_id"]][row["part"]].add(row["state"])
    return told


_DECIDED: Final = frozenset({states.DELIVERED, states.UNDELIVERED})


@valueclass
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

    def judge(row: Mapping[str, Any], facts: Sequence[Fact]) -> Mapping[str, Any] | None:
        over = cut_off or (states.is_final(row["status"]) and row["status"] != states.FAILED)
        word = fold(facts, parts_expected(policy, row), cut_off=over)
        outcome = settle(row["status"], (row["error"] or {}).get("code"), word, cut_off=over)
        return _after(row, row["delivery"] if word is None else word.stored(), outcome, now_at)

    return await _apply(conn, policy, rows, judge, now_at)


async def unfold(
    conn: asyncpg.Connection[asyncpg.Record], policy: Policy, rows: Sequence[Mapping[str, Any]], now_at: int
) -> Refolded:
    """Fold locked messages anew after receipts were taken from them: what is not decided any more waits again."""

    def judge(row: Mapping[str, Any], facts: Sequence[Fact]) -> Mapping[str, Any] | None:
        word = fold(facts, parts_expected(policy, row), cut_off=False)
        after = _after(row, None if word is None else word.stored(), retract(row["status"], word), now_at)
        if after is not None and after["status"] == states.SENT and row["status"] != states.SENT:
            return {**after, "final_at": None, "sweep_at": now_at + policy.receipts.cutoff_ms}
        return after

    return await _apply(conn, policy, rows, judge, now_at)


async def _apply(
    conn: asyncpg.Connection[asyncpg.Record],
    policy: Policy,
    rows: Sequence[Mapping[str, Any]],
    judge: Callable[[Mapping[str, Any], Sequence[Fact]], Mapping[str, Any] | None],
    now_at: int,
) -> Refolded:
    """Write what `judge` makes of each row and its receipts."""
    rows = [row for row in rows if row["status"] not in UNTOUCHED]
    facts = await _facts(conn, [row["id"] for row in rows])
    written: list[tuple[Mapping[str, Any], int]] = []
    settled: list[tuple[Mapping[str, Any], Settled]] = []
    for row in rows:
        after = judge(row, facts[row["id"]])
        if after is None:
            continue
        written.append((after, after["version"] - row["version"]))
        if after["status"] != row["status"]:
            settled.append((after, Settled(after["status"], corrected=states.is_final(row["status"]))))
    await _write(conn, written, now_at)
    await _tell_timeline(conn, rows, settled, now_at)
    notices = await add_events(conn, policy, [(row, _event(change)) for row, change in settled], now_at)
    await _count(conn, rows, settled, now_at)
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
    row: Mapping[str, Any], delivery: Mapping[str, Any] | None, outcome: Settled | None, now_at: int
) -> Mapping[str, Any] | None:
    state = None if delivery is None else delivery["state"]
    if outcome is None:
        if delivery == row["delivery"]:
            return None
        return {**row, "delivery": delivery, "network_state": state}
    return {
        **row,
        "status": outcome.status,
        "version": row["version"] + 1,
        "network_state": state,
        "delivery": delivery,
        "error": None,
        "final_at": now_at,
        "sweep_at": None,
    }


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


async def _count(
    conn: asyncpg.Connection[asyncpg.Record],
    before: Sequence[Mapping[str, Any]],
    settled: Sequence[tuple[Mapping[str, Any], Settled]],
    now_at: int,
) -> None:
    """Coverage by the hour in which each message was sent; one that was in doubt counts as sent now."""
    was = {row["id"]: row for row in before}
    tally = Tally()
    for row, change in settled:
        old = was[row["id"]]
        deltas = Deltas(
            sent=old["sent_at"] is None,
            decided=(change.status in _DECIDED) - (old["status"] in _DECIDED),
            delivered=(change.status == states.DELIVERED) - (old["status"] == states.DELIVERED),
        )
        tally.add(row["provider"], old["sent_at"] or now_at, deltas)
    await tally.write(conn)


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
        [row["final_at"] for row, _ in written],
        [row["sweep_at"] for row, _ in written],
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
