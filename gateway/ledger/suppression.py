"""The last check before a submit: what may not be sent any more is closed in the claim's own place (hop 6, I13)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import asyncpg

from gateway.domain.suppression import rules_of, suppress
from gateway.ledger.callback_lines import add_events
from gateway.ledger.claims import Wanted, accepted_parts_of, columns_of
from gateway.ledger.consents import OPTED_IN, OPTED_OUT
from gateway.ledger.message_rows import LOCK_MESSAGES
from gateway.ledger.outcomes import standing_of, store_changes
from gateway.policy.rules.snapshot import Policy
from scheduler.core.values import valueclass

# $4: the classes that heed the stop list, $5: those that also need consent.
_REFUSED: Final = f"""
SELECT m.day, m.id, CASE WHEN {OPTED_OUT} THEN 'opted_out' ELSE 'no_consent' END AS reason
  FROM unnest($1::date[], $2::uuid[], $3::smallint[]) AS r (day, id, slot)
 CROSS JOIN LATERAL (SELECT * FROM messages n WHERE n.day = r.day AND n.id = r.id OFFSET 0) AS m
 WHERE m.next_slot = r.slot AND m.status = 'queued' AND m.class = ANY ($4::text[])
   AND CASE WHEN {OPTED_OUT} THEN true WHEN m.class = ANY ($5::text[]) THEN NOT {OPTED_IN} ELSE false END
"""  # noqa: S608 - constant text only
_WIN: Final = """
INSERT INTO attempts (day, id, slot, kind, owner_id, claimed_at, outcome, outcome_at)
SELECT r.day, r.id, r.slot, 'suppress', $4, $5, 'closed', $5
  FROM unnest($1::date[], $2::uuid[], $3::smallint[]) AS r (day, id, slot)
ON CONFLICT DO NOTHING
RETURNING day, id
"""


@valueclass
class Suppressed:
    """What a batch closed, for the metrics: `opted_out` or `no_consent`."""

    reason: str


async def suppress_refused(
    conn: asyncpg.Connection[Any], policy: Policy, wanted: Iterable[Wanted], owner_id: int, now_at: int
) -> list[Suppressed]:
    """Closes those of a batch whose recipient opted out or gave no consent, in the caller's transaction.

    Takes the row locks in key order. Safe for any reference: what may be sent, or is claimed, stays.
    """
    rules = rules_of(policy)
    days, ids, slots, _, _ = columns_of(wanted)
    if not ids or not rules.stop_listed:
        return []
    found = await conn.fetch(_REFUSED, days, ids, slots, list(rules.stop_listed), list(rules.opt_in))
    if not found:
        return []
    reasons = {row["id"]: row["reason"] for row in found}
    keys = sorted((row["day"], row["id"]) for row in found)
    rows = await conn.fetch(LOCK_MESSAGES, [day for day, _ in keys], [id_ for _, id_ in keys])
    rows = [row for row in rows if suppress(standing_of(row), 0, reasons[row["id"]], now_at) is not None]
    won = await conn.fetch(
        _WIN,
        [row["day"] for row in rows],
        [row["id"] for row in rows],
        [row["next_slot"] for row in rows],
        owner_id,
        now_at,
    )
    winners = {row["id"] for row in won}
    rows = [row for row in rows if row["id"] in winners]
    accepted = await accepted_parts_of(conn, rows)
    changes = [
        (row, change)
        for row in rows
        if (change := suppress(standing_of(row), accepted.get(row["id"], 0), reasons[row["id"]], now_at)) is not None
    ]
    changed = await store_changes(conn, changes)
    events = [(after, change.event) for after, (_, change) in zip(changed, changes, strict=True) if change.event]
    await add_events(conn, policy, events, now_at)
    return [Suppressed(reasons[row["id"]]) for row, _ in changes]
