"""Outcomes of submits in batches: one road by which a slot of `attempts` is closed (design sections 2 and 4).

Every batch locks its message rows in key order, closes only rows whose outcome is null, and lets
`gateway.domain.outcomes` say what that means. What goes back into the queue gets one outbox row in the same
transaction. All functions but `store_accepted` run inside the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, TypeVar
from uuid import UUID, uuid4

import asyncpg

from gateway.admission.flows import entry_of
from gateway.domain import outcomes, states
from gateway.domain.outcomes import Change, Ending, Refusal, Rules, Standing
from gateway.ledger import outcome_statements as sql
from gateway.ledger.callback_lines import add_events, tells_sent
from gateway.ledger.folds import parts_told
from gateway.ledger.message_rows import LOCK_MESSAGES
from gateway.ledger.mistaken import undo_mistaken
from gateway.ledger.refusals import judge_repeats, signed
from gateway.ledger.unnamed_submits import Unnamed, keep_unnamed, take_named
from gateway.ledger.waiting import RETRY, DueRow, put_due
from gateway.policy.rules.snapshot import Policy, TrafficClass
from scheduler.core.records import Entry, pack_batch
from scheduler.core.values import valueclass

RowT = TypeVar("RowT", bound=Mapping[str, Any])


@dataclass(slots=True)
class Closing:
    """How one claimed slot ended, as egress saw it. Instants are UTC ms on the queue's clock.

    `carrier_ids` holds (part, id in the dialect's normal form) of the parts that this slot got accepted; parts count
    from 1 to `parts_total`. `accepted_parts` counts over all slots. `late`: the slot was closed in doubt before.
    """

    day: date
    id: UUID
    slot: int
    outcome: str
    provider: str
    recipient: str
    parts_total: int
    outcome_at: int
    written_at: int | None = None
    command_status: int | None = None
    refusal: Refusal | None = None
    delay_ms: int | None = None
    repeats_max: int | None = None
    fault: str | None = None
    accepted_parts: int = 0
    carrier_ids: list[tuple[int, str]] = field(default_factory=list)
    parts: dict[str, Any] | None = None
    late: bool = False
    late_part: int = 1

    @property
    def is_plain(self) -> bool:
        """A single part that was accepted in time: the common case, stored by one statement."""
        return self.outcome == outcomes.ACCEPTED and self.parts_total == 1 and not self.late

    @property
    def settles_late(self) -> bool:
        """Whether a late answer says which id the submit has, or that the carrier has not taken it."""
        return self.late and (self.outcome != outcomes.ACCEPTED or bool(self.carrier_ids and self.carrier_ids[0][1]))

    def unnamed(self) -> list[Unnamed]:
        """The submits of this slot that may be at the carrier under an id that nobody told us."""
        parts: Iterable[int] = ()
        if self.outcome == outcomes.UNCONFIRMED:
            parts = (self.parts or {}).get("doubt", ()) if self.parts_total > 1 else (1,)
        elif self.outcome == outcomes.ACCEPTED and self.parts_total == 1 and not self.carrier_ids:
            parts = (1,)
        return [Unnamed(self.day, self.id, self.slot, part, self.provider, self.outcome_at) for part in parts]

    def ending(self) -> Ending:
        """The same as the pure core sees it."""
        return Ending(
            slot=self.slot,
            outcome=self.outcome,
            accepted_parts=self.accepted_parts,
            parts_total=self.parts_total,
            written=self.written_at is not None,
            refusal=self.refusal,
            delay_ms=self.delay_ms,
            fault=self.fault,
        )


@valueclass
class Bench:
    """What storing needs besides the rows: the policy, the key of number tokens, the time, and a source of jitter."""

    policy: Policy
    pepper: bytes
    now_at: int
    jitter: Callable[[], float]


@valueclass
class Stored:
    """What a batch came to. `entries` are in the outbox under `outbox_id` and must be enqueued after the commit."""

    changes: list[tuple[Mapping[str, Any], Change]]
    entries: list[Entry]
    outbox_id: UUID | None


def standing_of(row: Mapping[str, Any]) -> Standing:
    """A locked message row as the pure core sees it."""
    return Standing(
        status=row["status"],
        next_slot=row["next_slot"],
        attempts_spent=row["attempts_spent"],
        submit_begun=row["submit_begun"],
        possible_duplicate=row["possible_duplicate"],
        submit_by=row["submit_by"],
        expires_at=row["expires_at"],
        error=row["error"],
    )


def rules_of(policy: Policy, class_name: str, provider: str) -> Rules:
    """The rules of one message. A class that the policy no longer names is held in doubt and retried twice."""
    traffic = policy.classes.get(class_name) or TrafficClass(class_name, 0, 0.5, 0, 0, 1, 1, "refuse", "hold", 3)
    carrier = policy.providers.get(provider)
    expected = carrier is None or carrier.dialect.register != "none"
    return Rules(traffic, policy.retries, policy.receipts.cutoff_ms, expected)


async def store_accepted(conn: asyncpg.Connection[Any], closings: Sequence[Closing], bench: Bench) -> int:
    """Stores plain acceptances (see `Closing.is_plain`) in one statement; returns how many messages became `sent`.

    Opens a transaction only where there is more to say: the round trips for begin and commit cost more than the work.
    A message that moved on keeps its status; its carrier id is kept all the same, so that a receipt finds it.
    """
    ordered = sorted(closings, key=lambda closing: closing.id.int)
    columns = (
        [c.day for c in ordered],
        [c.id for c in ordered],
        [c.slot for c in ordered],
        [c.written_at for c in ordered],
        [c.outcome_at for c in ordered],
        [c.provider for c in ordered],
        [c.carrier_ids[0][1] if c.carrier_ids else "" for c in ordered],
        [c.recipient for c in ordered],
        bench.policy.receipts.cutoff_ms,
        [_without_receipts(bench.policy, c.provider) for c in ordered],
    )
    nameless = [c for c in ordered if not c.carrier_ids and not _without_receipts(bench.policy, c.provider)]
    is_heard = tells_sent(bench.policy)
    if not nameless and not is_heard:
        return int(await conn.fetchval(sql.ACCEPT_COUNTED, *columns))
    async with conn.transaction():
        await keep_unnamed(conn, [one for c in nameless for one in c.unnamed()])
        if not is_heard:
            return int(await conn.fetchval(sql.ACCEPT_COUNTED, *columns))
        rows = await conn.fetch(sql.ACCEPT_RETURNING, *columns)
        await add_events(conn, bench.policy, [(row, outcomes.EVENTS[states.SENT]) for row in rows], bench.now_at)
        return len(rows)


async def store_endings(conn: asyncpg.Connection[Any], closings: Sequence[Closing], bench: Bench) -> Stored:
    """Stores any endings, each message at most once per call, and all that follows from them."""
    ordered = sorted(closings, key=lambda closing: closing.id.int)
    days, ids = [c.day for c in ordered], [c.id for c in ordered]
    rows = {row["id"]: row for row in await conn.fetch(LOCK_MESSAGES, days, ids)}
    in_time = [c for c in ordered if not c.late]
    await judge_repeats(conn, ordered)
    closed = await _close_attempts(conn, in_time)
    await _keep_carrier_ids(conn, ordered)
    await keep_unnamed(conn, [one for c in in_time if (c.id, c.slot) in closed for one in c.unnamed()])
    await take_named(conn, [(c.day, c.id, c.slot, c.late_part) for c in ordered if c.settles_late])
    changes: list[tuple[asyncpg.Record, Change]] = []
    for closing in in_time:
        row = rows.get(closing.id)
        if row is None or (closing.id, closing.slot) not in closed:
            continue
        rules = rules_of(bench.policy, row["class"], row["provider"])
        change = outcomes.close(standing_of(row), closing.ending(), rules, bench.now_at, bench.jitter())
        if change is not None:
            changes.append((row, change))
    changes += await _late_changes(conn, [c for c in ordered if c.late and c.id in rows], rows, bench)
    changes.sort(key=lambda pair: pair[0]["id"].int)
    stored = await follow(conn, changes, bench)
    await undo_mistaken(conn, bench.policy, [c for c in ordered if c.late], bench.now_at)
    return stored


async def store_changes(
    conn: asyncpg.Connection[Any], changes: Sequence[tuple[Mapping[str, Any], Change]]
) -> list[Mapping[str, Any]]:
    """Writes changes of locked rows; returns the rows as they are afterwards, in the same order."""
    if not changes:
        return []
    written = await conn.fetch(
        sql.STORE_CHANGES,
        [row["day"] for row, _ in changes],
        [row["id"] for row, _ in changes],
        [change.status for _, change in changes],
        [change.next_slot for _, change in changes],
        [change.attempts_spent for _, change in changes],
        [change.submit_begun for _, change in changes],
        [change.possible_duplicate for _, change in changes],
        [change.error for _, change in changes],
        [change.expiry for _, change in changes],
        [change.sweep_at for _, change in changes],
        [change.final_at for _, change in changes],
        [change.sent_at for _, change in changes],
    )
    after = {row["id"]: row for row in written}
    return [after[row["id"]] for row, _ in changes]


async def win_adoption(
    conn: asyncpg.Connection[Any], changes: Sequence[tuple[RowT, Change]], now_at: int
) -> list[tuple[RowT, Change]]:
    """Keeps of the changes to `sent` those that win their message's next slot (a resend cannot be claimed any more)."""
    adopted = [(row, change) for row, change in changes if change.status == states.SENT]
    if not adopted:
        return list(changes)
    won = await conn.fetch(
        sql.ADOPT,
        [row["day"] for row, _ in adopted],
        [row["id"] for row, _ in adopted],
        [row["next_slot"] for row, _ in adopted],
        now_at,
    )
    winners = {row["id"] for row in won}
    return [(row, change) for row, change in changes if change.status != states.SENT or row["id"] in winners]


async def forget_outbox(conn: asyncpg.Connection[Any], ids: Sequence[UUID]) -> None:
    """Deletes outbox rows whose entries the index has taken under its current epoch."""
    await conn.execute("DELETE FROM outbox WHERE id = ANY ($1::uuid[])", list(ids))


async def hurry_receipts(conn: asyncpg.Connection[Any], carrier_ids: Sequence[str], now_at: int) -> None:
    """Looks into the inbox again once new carrier ids are committed: receipts may have come before the answer."""
    if carrier_ids:
        await conn.execute(sql.HURRY_RECEIPTS, list(carrier_ids), now_at)


async def _close_attempts(conn: asyncpg.Connection[Any], closings: Sequence[Closing]) -> set[tuple[UUID, int]]:
    """Writes outcomes where none stands yet; returns the (id, slot) that were closed by this."""
    if not closings:
        return set()
    rows = await conn.fetch(
        sql.CLOSE_ATTEMPTS,
        [c.day for c in closings],
        [c.id for c in closings],
        [c.slot for c in closings],
        [c.outcome for c in closings],
        [c.outcome_at for c in closings],
        [c.written_at for c in closings],
        [signed(c.command_status) for c in closings],
        [c.parts for c in closings],
    )
    return {(row["id"], row["slot"]) for row in rows}


async def _keep_carrier_ids(conn: asyncpg.Connection[Any], closings: Sequence[Closing]) -> None:
    found = [(c, part, carrier_id) for c in closings for part, carrier_id in c.carrier_ids if carrier_id]
    if not found:
        return
    found.sort(key=lambda item: (item[0].provider, item[2]))
    await conn.execute(
        sql.KEEP_CARRIER_IDS,
        [c.provider for c, _, _ in found],
        [carrier_id for _, _, carrier_id in found],
        [c.day for c, _, _ in found],
        [c.id for c, _, _ in found],
        [c.slot for c, _, _ in found],
        [part for _, part, _ in found],
        [c.recipient for c, _, _ in found],
        [c.written_at or c.outcome_at for c, _, _ in found],
    )


async def _late_changes(
    conn: asyncpg.Connection[Any], closings: Sequence[Closing], rows: Mapping[UUID, asyncpg.Record], bench: Bench
) -> list[tuple[asyncpg.Record, Change]]:
    """Answers that came after the doubt: adopted by who wins the next slot (it keeps a resend from being claimed)."""
    if not closings:
        return []
    accepted = await _count_late_parts(conn, closings)
    changes: list[tuple[asyncpg.Record, Change]] = []
    for closing in closings:
        row = rows[closing.id]
        standing, rules = standing_of(row), rules_of(bench.policy, row["class"], row["provider"])
        if closing.outcome == outcomes.ACCEPTED:
            ending = replace(closing.ending(), accepted_parts=accepted.get(closing.id, 0))
            change = outcomes.adopt(standing, ending, rules, bench.now_at)
        else:
            change = outcomes.refuse_late(standing, closing.ending(), rules, bench.now_at, bench.jitter())
        if change is not None:
            changes.append((row, change))
    return await win_adoption(conn, changes, bench.now_at)


async def _count_late_parts(conn: asyncpg.Connection[Any], closings: Sequence[Closing]) -> dict[UUID, int]:
    """Accepted parts per message with the late ones added (kept in the slot's `parts`)."""
    counts = {c.id: 1 for c in closings if c.parts_total == 1 and c.outcome == outcomes.ACCEPTED}
    parted = [c for c in closings if c.parts_total > 1 and c.outcome == outcomes.ACCEPTED]
    if not parted:
        return counts
    columns = [c.day for c in parted], [c.id for c in parted], [c.slot for c in parted]
    known = {row["id"]: row["parts"] or {} for row in await conn.fetch(sql.PARTS_OF, *columns)}
    told = await parts_told(conn, columns[1])
    merged: list[dict[str, Any]] = []
    for closing in parted:
        parts = dict(known.get(closing.id, {}))
        taken = set(parts.get("accepted", ())) | {part for part, _ in closing.carrier_ids}
        parts["accepted"] = sorted(taken)
        parts["doubt"] = [part for part in parts.get("doubt", ()) if part not in taken]
        merged.append(parts)
        # A receipt of a part tells as much as the answer to it that was lost.
        counts[closing.id] = len(taken | set(told.get(closing.id, ())))
    await conn.execute(sql.STORE_PARTS, *columns, merged)
    return counts


async def follow(
    conn: asyncpg.Connection[Any], changes: Sequence[tuple[asyncpg.Record, Change]], bench: Bench
) -> Stored:
    """Writes changes of locked rows and all that hangs on them: due retries, outbox, timeline, callbacks."""
    rows = await store_changes(conn, changes)
    after = [(row, change) for row, (_, change) in zip(rows, changes, strict=True)]
    tenants = {before["id"]: before["tenant"] for before, _ in changes}
    due = [(row, change) for row, change in after if change.requeue == outcomes.DUE]
    if due:
        await put_due(conn, [_due_row(bench, tenants[row["id"]], row, change.due_at or 0) for row, change in due])
        await conn.execute(sql.WAKE_PROMOTER)
    entries = [
        entry_of(bench.policy, bench.pepper, tenants[row["id"]], row, front=True)
        for row, change in after
        if change.requeue == outcomes.FRONT
    ]
    outbox_id = None
    if entries:
        outbox_id = uuid4()
        await conn.execute(sql.PUT_OUTBOX, outbox_id, bench.now_at, pack_batch(entries))
    await _tell_timeline(conn, changes, bench.now_at)
    events = [(row, change.event) for row, change in after if change.event is not None]
    await add_events(conn, bench.policy, events, bench.now_at)
    return Stored(after, entries, outbox_id)


def _due_row(bench: Bench, tenant: str, row: Mapping[str, Any], due_at: int) -> DueRow:
    return DueRow(
        day=row["day"],
        id=row["id"],
        due_at=due_at,
        kind=RETRY,
        class_name=row["class"],
        provider=row["provider"],
        tenant_id=row["tenant_id"],
        flow=entry_of(bench.policy, bench.pepper, tenant, row).queue_key,
        segments=row["segments"],
    )


async def _tell_timeline(
    conn: asyncpg.Connection[Any], changes: Sequence[tuple[asyncpg.Record, Change]], now_at: int
) -> None:
    """What attempts alone do not tell: resends, and final words that were taken back."""
    told: list[tuple[asyncpg.Record, str, str]] = []
    for before, change in changes:
        if change.possible_duplicate and not before["possible_duplicate"]:
            told.append((before, "resent", "unconfirmed"))
        elif change.event == outcomes.CORRECTED:
            told.append((before, "corrected", "late_answer"))
    if told:
        await conn.execute(
            sql.TELL_TIMELINE,
            [row["day"] for row, _, _ in told],
            [row["id"] for row, _, _ in told],
            now_at,
            [kind for _, kind, _ in told],
            [cause for _, _, cause in told],
        )


def _without_receipts(policy: Policy, provider: str) -> bool:
    carrier = policy.providers.get(provider)
    return carrier is not None and carrier.dialect.register == "none"
