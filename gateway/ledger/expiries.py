"""Expiry: what waits and is out of time, OTP first, thousands a second (contract, "The two clocks"; I10, I17).

Nothing of it needs the index or a session. What never began is ended by one statement; what did begin is decided by
`gateway.domain.outcomes`, since an earlier submit may have left something behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.domain import outcomes, states
from gateway.ledger.callback_lines import add_events
from gateway.ledger.claims import PLANNER_SETTINGS, Expired, expire_messages
from gateway.ledger.message_rows import MESSAGE_COLUMNS
from gateway.policy.rules.snapshot import Policy
from scheduler.core.values import valueclass

ROUND: Final = 2_000
_LOCK: Final = "sluicegate.sweep.expiry"
# The plan is always: batch -> primary key; without statistics (fresh partitions) the planner guesses worse.
_PLAN: Final = PLANNER_SETTINGS.replace("SET ", "SET LOCAL ")
_TRY_LOCK: Final = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))"
_LATE: Final = """
SELECT m.day, m.id, m.sweep_at, NOT (m.submit_begun OR m.possible_duplicate) AS is_plain
  FROM messages m
 WHERE m.sweep_at <= $1 AND m.status IN ('queued', 'scheduled') {condition}
   AND NOT EXISTS (
       SELECT FROM attempts a WHERE a.day = m.day AND a.id = m.id AND a.slot = m.next_slot AND a.outcome IS NULL)
 ORDER BY m.sweep_at
 LIMIT $2
"""
_LATE_OTP: Final = _LATE.format(condition="AND m.class = 'otp'")
_LATE_OTHERS: Final = _LATE.format(condition="AND m.class <> 'otp'")

# The row lock comes first and in key order, then the slot is won, as everywhere. Every step joins one batch with one
# table by its primary key, never two batches with each other. A message whose application is paused
# is spared until `expires_at`: it is only looked at again then (or when the pause's end moves its submit_by).
_EXPIRE: Final = f"""
WITH late AS MATERIALIZED (
    SELECT * FROM unnest($1::date[], $2::uuid[]) AS r (day, id)
), locked AS MATERIALIZED (
    SELECT m.* FROM late l CROSS JOIN LATERAL (
           SELECT m.day, m.id, m.next_slot, m.status, m.submit_by, m.expires_at, m.tenant_id, m.application
             FROM messages m
            WHERE m.day = l.day AND m.id = l.id AND m.status IN ('queued', 'scheduled') AND NOT m.submit_begun
              AND NOT m.possible_duplicate AND m.submit_by <= $3 FOR UPDATE) AS m
), judged AS MATERIALIZED (
    SELECT l.*, l.expires_at > $3 AND l.application IS NOT NULL AND (
               EXISTS (SELECT FROM pauses p
                        WHERE p.kind = 'application' AND p.tenant_id = l.tenant_id AND p.name = l.application)
               OR EXISTS (SELECT FROM resumptions s
                           WHERE s.kind = 'application' AND s.tenant_id = l.tenant_id AND s.name = l.application)
           ) AS is_spared
      FROM locked l
), spared AS (
    UPDATE messages m SET sweep_at = j.expires_at FROM judged j WHERE j.is_spared AND m.day = j.day AND m.id = j.id
), won AS (
    INSERT INTO attempts (day, id, slot, kind, claimed_at, outcome, outcome_at)
    SELECT day, id, next_slot, 'expire', $3, 'closed', $3 FROM judged WHERE NOT is_spared
    ON CONFLICT DO NOTHING
    RETURNING day, id
), undue AS (
    DELETE FROM due d USING won w WHERE d.day = w.day AND d.id = w.id
), unheld AS (
    DELETE FROM held h USING won w WHERE h.day = w.day AND h.id = w.id
)
UPDATE messages m
   SET status = 'expired', version = m.version + 1, sweep_at = NULL, final_at = $3,
       expiry = jsonb_build_object(
           'at', $3::bigint,
           'cause', CASE WHEN m.expires_at <= $3 AND EXISTS (
                                  SELECT FROM due d WHERE d.day = m.day AND d.id = m.id AND d.kind = 'send_window')
                         THEN 'send_window'
                         WHEN m.submit_by < m.expires_at THEN 'wait_budget' ELSE 'ttl' END,
           'stage', m.status)
  FROM won w
 WHERE m.day = w.day AND m.id = w.id
RETURNING {MESSAGE_COLUMNS}
"""  # noqa: S608 - constant columns only


@valueclass
class Ended:
    """What one round came to. `oldest_at`: the due time of what waited longest (UTC ms).

    `void` are references that may still stand in the index with a later deadline.
    """

    found: int = 0
    oldest_at: int | None = None
    expired: tuple[Expired, ...] = ()
    void: tuple[UUID, ...] = ()
    busy: bool = False

    @property
    def full(self) -> bool:
        """Whether more is likely to be due."""
        return self.found >= ROUND


async def expire_due(conn: asyncpg.Connection[Any], policy: Policy, now_at: int) -> Ended:
    """Expire what waits and is out of time, OTP first, in one transaction; a submit under way stays as it is."""
    async with conn.transaction():
        if not await conn.fetchval(_TRY_LOCK, _LOCK):
            return Ended(busy=True)
        await conn.execute(_PLAN)
        late = await conn.fetch(_LATE_OTP, now_at, ROUND)
        if len(late) < ROUND:
            late += await conn.fetch(_LATE_OTHERS, now_at, ROUND - len(late))
        if not late:
            return Ended()
        begun = [(row["day"], row["id"]) for row in late if not row["is_plain"]]
        expired = await _expire_plain(
            conn, policy, [(row["day"], row["id"]) for row in late if row["is_plain"]], now_at
        )
        ended = [Expired(row["class"], row["expiry"]["cause"], row["expiry"]["stage"]) for row in expired]
        if begun:
            ended += await expire_messages(conn, policy, begun, None, now_at)
            await forget_waiting(conn, begun)
        void = tuple(row["id"] for row in expired if row["application"] is not None)
        return Ended(len(late), min(row["sweep_at"] for row in late), tuple(ended), void)


async def forget_waiting(conn: asyncpg.Connection[Any], keys: Sequence[tuple[date, UUID]]) -> None:
    """Drop the due and held rows of messages that wait no more."""
    days, ids = [day for day, _ in keys], [message_id for _, message_id in keys]
    for table in ("due", "held"):
        await conn.execute(_FORGET[table], days, ids)


_FORGET: Final = {
    table: f"""
DELETE FROM {table} w USING unnest($1::date[], $2::uuid[]) AS r (day, id), messages m
 WHERE w.day = r.day AND w.id = r.id AND m.day = r.day AND m.id = r.id AND m.status NOT IN ('queued', 'scheduled')
"""  # noqa: S608 - two constant names
    for table in ("due", "held")
}


async def _expire_plain(
    conn: asyncpg.Connection[Any], policy: Policy, keys: Sequence[tuple[date, UUID]], now_at: int
) -> list[Mapping[str, Any]]:
    if not keys:
        return []
    keys = sorted(keys)
    rows: list[Mapping[str, Any]] = await conn.fetch(
        _EXPIRE, [day for day, _ in keys], [message_id for _, message_id in keys], now_at
    )
    event = outcomes.EVENTS[states.EXPIRED]
    await add_events(conn, policy, [(row, event) for row in rows], now_at)
    return rows
