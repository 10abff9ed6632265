"""Messages in doubt that receipts prove to be with the carrier become `sent`, as by a late answer (design section 4).

A receipt is as good as the answer that was lost: no carrier tells of what it has not taken. Where final words for all
parts are there the fold says more, and decides alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import asyncpg

from gateway.domain import outcomes, states
from gateway.domain.folding import FINAL_WORDS
from gateway.domain.outcomes import Change, Ending
from gateway.ledger.callback_lines import add_events
from gateway.ledger.folds import parts_expected, parts_told
from gateway.ledger.outcomes import rules_of, standing_of, store_changes, win_adoption
from gateway.policy.rules.snapshot import Policy

_ANSWERED_PARTS = """
SELECT a.id, a.parts -> 'accepted' AS accepted
  FROM unnest($1::date[], $2::uuid[]) AS r (day, id) JOIN attempts a ON a.day = r.day AND a.id = r.id
 WHERE a.parts IS NOT NULL
"""


async def adopt_proven(
    conn: asyncpg.Connection[Any], policy: Policy, rows: Sequence[Mapping[str, Any]], now_at: int
) -> list[Mapping[str, Any]]:
    """The locked rows after those in doubt whose every part is proven became `sent`.

    A message that waits for its resend is adopted by who wins its next slot: while the resend is under way it stays.
    """
    doubtful = [row for row in rows if _waits_in_doubt(row)]
    if not doubtful:
        return list(rows)
    told = await parts_told(conn, [row["id"] for row in doubtful])
    answered = await _answered_parts(conn, [row for row in doubtful if row["segments"] > 1])
    changes: list[tuple[Mapping[str, Any], Change]] = []
    for row in doubtful:
        words, total = told.get(row["id"], {}), parts_expected(policy, row)
        final = {part for part, states_told in words.items() if states_told & FINAL_WORDS}
        if row["status"] == states.UNCONFIRMED and len(final) >= total:
            continue
        known = len(answered.get(row["id"], set()) | set(words)) if words else 0
        ending = Ending(row["next_slot"], outcomes.ACCEPTED, accepted_parts=known, parts_total=total)
        rules = rules_of(policy, row["class"], row["provider"])
        change = outcomes.adopt(standing_of(row), ending, rules, now_at)
        if change is not None:
            changes.append((row, change))
    changes = await win_adoption(conn, changes, now_at)
    changed = {row["id"]: row for row in await store_changes(conn, changes)}
    event = outcomes.EVENTS[states.SENT]
    await add_events(conn, policy, [(row, event) for row in changed.values()], now_at)
    return [changed.get(row["id"], row) for row in rows]


def _waits_in_doubt(row: Mapping[str, Any]) -> bool:
    """Not `failed`: a final status is corrected by final words only."""
    if row["status"] == states.QUEUED:
        return bool(row["possible_duplicate"])
    return bool(row["status"] == states.UNCONFIRMED)


async def _answered_parts(conn: asyncpg.Connection[Any], rows: Sequence[Mapping[str, Any]]) -> dict[UUID, set[int]]:
    if not rows:
        return {}
    found: dict[UUID, set[int]] = {}
    kept = await conn.fetch(_ANSWERED_PARTS, [row["day"] for row in rows], [row["id"] for row in rows])
    for one in kept:
        found.setdefault(one["id"], set()).update(one["accepted"] or ())
    return found
