"""Queued messages whose send window closed before their turn came: back to wait for its next opening.

The claim's own rule (design section 4): the slot is closed, the message waits in the due table, and nothing vanishes.
A message whose usefulness ends before the window opens again expires at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import asyncpg

from gateway.admission.clocks import IDLE_MS, SEND_WINDOW
from gateway.admission.flows import entry_of
from gateway.admission.send_windows import closed_windows, is_open, opens_at, window_for
from gateway.domain import outcomes, states
from gateway.ledger.callback_lines import add_events
from gateway.ledger.claims import Expired, Wanted, columns_of
from gateway.ledger.message_rows import LOCK_MESSAGES, MESSAGE_COLUMNS
from gateway.ledger.waiting import WINDOW, DueRow, close_slots, put_due
from gateway.policy.rules.snapshot import Policy, SendWindow
from scheduler.core.values import valueclass

_SUSPECTS: Final = """
SELECT m.day, m.id
  FROM unnest($1::date[], $2::uuid[], $3::smallint[]) AS r (day, id, slot)
 CROSS JOIN LATERAL (SELECT * FROM messages n WHERE n.day = r.day AND n.id = r.id OFFSET 0) AS m
 WHERE m.next_slot = r.slot AND m.status = 'queued' AND m.class = ANY ($4::text[])
   AND EXISTS (SELECT FROM unnest($5::text[]) AS p (prefix) WHERE starts_with(m.recipient, p.prefix))
"""
_HOLD: Final = """
UPDATE messages m
   SET status = CASE WHEN m.submit_begun THEN m.status ELSE 'scheduled' END, next_slot = m.next_slot + 1,
       version = m.version + 1, not_before = r.opens_at,
       submit_by = CASE WHEN m.submit_begun THEN m.submit_by ELSE r.submit_by END,
       sweep_at = CASE WHEN m.submit_begun THEN m.expires_at ELSE r.submit_by END
  FROM unnest($1::date[], $2::uuid[], $3::bigint[], $4::bigint[]) AS r (day, id, opens_at, submit_by)
 WHERE m.day = r.day AND m.id = r.id
"""
_EXPIRE: Final = f"""
UPDATE messages m
   SET status = 'expired', version = m.version + 1, sweep_at = NULL, final_at = $3,
       expiry = jsonb_build_object('at', $3::bigint, 'cause', 'send_window',
                                   'stage', CASE WHEN m.submit_begun THEN 'retry' ELSE 'queued' END)
  FROM unnest($1::date[], $2::uuid[]) AS r (day, id)
 WHERE m.day = r.day AND m.id = r.id
RETURNING {MESSAGE_COLUMNS}
"""  # noqa: S608 - constant columns only


@valueclass
class _Closed:
    """A locked message, and when its window opens again (UTC ms)."""

    row: Mapping[str, Any]
    opens_at: int

    @property
    def is_hopeless(self) -> bool:
        """Whether nothing of it can be told otherwise: it never left, and can never leave."""
        in_doubt = self.row["possible_duplicate"] or self.row["submit_begun"]
        return not in_doubt and self.row["expires_at"] - self.opens_at < IDLE_MS


def classes_closed(policy: Policy, now_at: int) -> frozenset[str]:
    """Classes that some destination does not take now: only their references need `turn_back`."""
    return closed_windows(policy, now_at)[0]


async def turn_back(
    conn: asyncpg.Connection[Any], policy: Policy, wanted: Iterable[Wanted], now_at: int
) -> list[Expired]:
    """Sends those of a batch whose window is closed back to wait; returns those that expired instead.

    Runs in the caller's transaction, before the claim of the batch: their references are void after it.
    """
    classes, prefixes = closed_windows(policy, now_at)
    days, ids, slots, _, _ = columns_of(wanted)
    if not ids or not classes:
        return []
    suspects = await conn.fetch(_SUSPECTS, days, ids, slots, list(classes), list(prefixes))
    if not suspects:
        return []
    keys = sorted((row["day"], row["id"]) for row in suspects)
    rows = await conn.fetch(LOCK_MESSAGES, [day for day, _ in keys], [id_ for _, id_ in keys])
    closed = _closed(policy, rows, now_at)
    won = await close_slots(conn, [one.row for one in closed], WINDOW, now_at)
    closed = [one for one in closed if one.row["id"] in won]
    await _hold(conn, policy, [one for one in closed if not one.is_hopeless])
    return await _expire(conn, policy, [one.row for one in closed if one.is_hopeless], now_at)


def _closed(policy: Policy, rows: Sequence[Mapping[str, Any]], now_at: int) -> list[_Closed]:
    found = []
    for row in rows:
        window: SendWindow | None = window_for(policy, row["class"], row["recipient"])
        if row["status"] == states.QUEUED and window is not None and not is_open(window, now_at):
            found.append(_Closed(row, opens_at(window, now_at)))
    return found


async def _hold(conn: asyncpg.Connection[Any], policy: Policy, closed: Collection[_Closed]) -> None:
    if not closed:
        return
    submit_by = [
        min(one.opens_at + policy.classes[one.row["class"]].wait_budget_ms, one.row["expires_at"]) for one in closed
    ]
    await conn.execute(
        _HOLD,
        [one.row["day"] for one in closed],
        [one.row["id"] for one in closed],
        [one.opens_at for one in closed],
        submit_by,
    )
    await put_due(conn, [_due(policy, one) for one in closed])


def _due(policy: Policy, one: _Closed) -> DueRow:
    row = one.row
    entry = entry_of(policy, b"", row["tenant"], {**row, "not_before": one.opens_at})
    return DueRow(
        day=row["day"],
        id=row["id"],
        due_at=one.opens_at,
        kind=SEND_WINDOW,
        class_name=row["class"],
        provider=row["provider"],
        tenant_id=row["tenant_id"],
        flow=entry.queue_key,
        segments=row["segments"],
    )


async def _expire(
    conn: asyncpg.Connection[Any], policy: Policy, rows: Sequence[Mapping[str, Any]], now_at: int
) -> list[Expired]:
    if not rows:
        return []
    after = await conn.fetch(_EXPIRE, [row["day"] for row in rows], [row["id"] for row in rows], now_at)
    await add_events(conn, policy, [(row, outcomes.EVENTS[states.EXPIRED]) for row in after], now_at)
    return [Expired(row["class"], row["expiry"]["cause"], row["expiry"]["stage"]) for row in after]
