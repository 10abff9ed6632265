"""Claims: the row that says who may have sent a message, before any byte of it leaves (design section 4, I13).

One statement per batch, shared by all sessions of a process. `attempts` is the arbiter: who inserts (day, id,
next_slot) has won that slot; a reference whose slot is closed is dropped here without effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any
from uuid import UUID

import asyncpg

from gateway.domain import states
from gateway.domain.ids import day_of
from gateway.domain.outcomes import Change, expire
from gateway.domain.suppression import NO_RULES, ConsentRules
from gateway.ledger.callback_lines import add_events
from gateway.ledger.consents import OPTED_IN, OPTED_OUT
from gateway.ledger.message_rows import LOCK_MESSAGES, day_spans
from gateway.ledger.outcomes import standing_of, store_changes
from gateway.ledger.pauses import is_spared, spared_applications
from gateway.policy.rules.snapshot import Policy
from scheduler.core.values import valueclass

# The plan is always: batch -> primary key. Fresh partitions have no statistics, and a guess that goes wrong (a filter
# on status taken for rare, its result searched once per row) costs a hundred times as much. OFFSET 0 keeps a lateral
# lookup what it says; rows come in the order of the sorted columns.
PLANNER_SETTINGS = (
    "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off; "
    "SET enable_material = off; SET jit = off"
)
# For connections whose statements all go by primary key: one plan for any number of rows. Left to itself the planner
# plans a batch of one or two anew each time, over every partition: 4 ms against the 0.6 ms that the statement takes.
HOT_SETTINGS = f"{PLANNER_SETTINGS}; SET plan_cache_mode = force_generic_plan"

# A tenant's pause does not count against `submit_by` (contract, "The two clocks"): while its application is paused, and
# until what follows from the pause's end is done, only `expires_at` ends a message. Both tables are nearly always
# empty: that is asked once per statement.
DEADLINE = """
CASE WHEN m.submit_begun THEN m.expires_at
     WHEN m.application IS NOT NULL
          AND ((SELECT EXISTS (SELECT FROM pauses)) OR (SELECT EXISTS (SELECT FROM resumptions)))
          AND (EXISTS (SELECT FROM pauses p
                        WHERE p.kind = 'application' AND p.tenant_id = m.tenant_id AND p.name = m.application)
               OR EXISTS (SELECT FROM resumptions s
                           WHERE s.kind = 'application' AND s.tenant_id = m.tenant_id AND s.name = m.application))
     THEN m.expires_at
     ELSE m.submit_by END
"""
_PAUSED = """
CASE WHEN (SELECT EXISTS (SELECT FROM pauses)) THEN (
     SELECT p.kind FROM pauses p
      WHERE (p.kind, p.tenant_id, p.name) IN (('application', m.tenant_id, m.application), ('route', 0, m.route),
                                              ('provider', 0, m.provider))
      ORDER BY p.kind LIMIT 1) END
"""

CLAIM = f"""
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($2::uuid[], $3::smallint[], $4::text[], $5::text[]) AS r (id, slot, provider, session)
), seen AS MATERIALIZED (
    SELECT m.day, m.id, m.next_slot, m.tenant_id, m.class, m.recipient, m.sender, m.application, m.route, m.provider,
           r.session, {DEADLINE} AS deadline_at, {_PAUSED} AS paused
      FROM asked r CROSS JOIN LATERAL (
           SELECT * FROM messages n WHERE n.day = $1::date AND n.id = r.id OFFSET 0) AS m
     WHERE m.next_slot = r.slot AND m.status = 'queued' AND m.provider = r.provider
), kept AS (
    INSERT INTO held (day, id, kind, tenant_id, name, held_at)
    SELECT m.day, m.id, m.paused, CASE m.paused WHEN 'application' THEN m.tenant_id ELSE 0 END,
           CASE m.paused WHEN 'application' THEN m.application WHEN 'route' THEN m.route ELSE m.provider END, $7
      FROM seen m
     WHERE m.paused IS NOT NULL
    ON CONFLICT DO NOTHING
), won AS (
    INSERT INTO attempts (day, id, slot, kind, owner_id, provider, session, claimed_at)
    SELECT m.day, m.id, m.next_slot, 'submit', $6, m.provider, m.session, $7
      FROM seen m
     WHERE m.paused IS NULL AND m.deadline_at > $7
       AND CASE WHEN m.class = ANY ($8::text[]) THEN NOT {OPTED_OUT} ELSE true END
       AND CASE WHEN m.class = ANY ($9::text[]) THEN {OPTED_IN} ELSE true END
       AND NOT EXISTS (SELECT FROM due d WHERE d.day = m.day AND d.id = m.id AND d.due_at > $7)
    ON CONFLICT DO NOTHING
    RETURNING day, id, slot, session
)
SELECT m.day, m.id, w.slot, w.session, m.tenant_id, m.class, m.recipient, m.sender, m.body, m.body_key_id, m.encoding,
       m.segments, m.extras, m.route, CASE WHEN m.submit_begun THEN m.submit_by ELSE {DEADLINE} END AS submit_by,
       m.expires_at, m.submit_begun, m.attempts_spent, m.possible_duplicate,
       CASE WHEN m.segments > 1 AND m.next_slot > 0 THEN (
           SELECT a.parts FROM attempts a
            WHERE a.day = m.day AND a.id = m.id AND a.parts IS NOT NULL ORDER BY a.slot DESC LIMIT 1) END AS parts
  FROM won w CROSS JOIN LATERAL (SELECT * FROM messages n WHERE n.day = $1::date AND n.id = w.id OFFSET 0) AS m
"""  # noqa: S608 - constant text only

# What of a batch was asked for and is not waiting for a future moment, but has run out of time.
OVERDUE = f"""
SELECT m.day, m.id
  FROM unnest($1::date[], $2::uuid[], $3::smallint[]) AS r (day, id, slot)
 CROSS JOIN LATERAL (SELECT * FROM messages n WHERE n.day = r.day AND n.id = r.id OFFSET 0) AS m
 WHERE m.next_slot = r.slot AND m.status = 'queued' AND {DEADLINE} <= $4
"""  # noqa: S608 - constant text only

WIN_EXPIRY = """
INSERT INTO attempts (day, id, slot, kind, owner_id, claimed_at, outcome, outcome_at)
SELECT r.day, r.id, r.slot, 'expire', $4, $5, 'closed', $5
  FROM unnest($1::date[], $2::uuid[], $3::smallint[]) AS r (day, id, slot)
ON CONFLICT DO NOTHING
RETURNING day, id
"""

# References that were not won and whose message is undecided all the same: what stood against them when the claim
# looked (no consent yet, a pause) was gone when the reasons were asked for. No pause has this kind, so they are
# released at once.
_KEEP_UNDECIDED = f"""
INSERT INTO held (day, id, kind, tenant_id, name, held_at)
SELECT m.day, m.id, 'claim', 0, '', $4
  FROM unnest($1::date[], $2::uuid[], $3::smallint[]) AS r (day, id, slot)
 CROSS JOIN LATERAL (SELECT * FROM messages n WHERE n.day = r.day AND n.id = r.id OFFSET 0) AS m
 WHERE m.next_slot = r.slot AND m.status = 'queued' AND {DEADLINE} > $4
   AND NOT EXISTS (SELECT FROM attempts a WHERE a.day = m.day AND a.id = m.id AND a.slot = m.next_slot)
   AND NOT EXISTS (SELECT FROM due d WHERE d.day = m.day AND d.id = m.id)
ON CONFLICT DO NOTHING
"""  # noqa: S608 - constant text only

LAST_PARTS = """
SELECT DISTINCT ON (a.day, a.id) a.id, a.parts
  FROM unnest($1::date[], $2::uuid[]) AS r (day, id) JOIN attempts a ON a.day = r.day AND a.id = r.id
 WHERE a.parts IS NOT NULL
 ORDER BY a.day, a.id, a.slot DESC
"""


@valueclass
class Wanted:
    """A leased reference that a session asks for."""

    id: bytes
    slot: int
    provider: str
    session: str


@valueclass
class Expired:
    """What a batch closed by our own deadline: for the metrics."""

    class_name: str
    cause: str
    stage: str


async def claim(
    conn: asyncpg.Connection[Any],
    wanted: Iterable[Wanted],
    owner_id: int,
    now_at: int,
    consent: ConsentRules = NO_RULES,
) -> list[asyncpg.Record]:
    """Claims a batch, one statement for each day; the rows of the winners hold all that building the PDUs needs.

    What is not returned is no longer this reference's to send: closed, canceled, rerouted, not yet due, overdue,
    kept in `held` because its application, route or provider is paused, or to somebody who may not be written to.
    """
    days, ids, slots, providers, sessions = columns_of(wanted)
    rows: list[asyncpg.Record] = []
    for day, span in day_spans(days):
        columns = ids[span], slots[span], providers[span], sessions[span]
        rows += await conn.fetch(CLAIM, day, *columns, owner_id, now_at, consent.stop_listed, consent.opt_in)
    return rows


async def keep_undecided(conn: asyncpg.Connection[Any], wanted: Iterable[Wanted], now_at: int) -> int:
    """Sees to it that no reference of a batch just vanishes; returns how many would have.

    To be called for those that were not won, after what closes them (`close_overdue`, `suppress_refused`), and outside
    of that transaction: it may wait for a release of held messages, which may wait for the rows locked there.
    """
    days, ids, slots, _, _ = columns_of(wanted)
    done = await conn.execute(_KEEP_UNDECIDED, days, ids, slots, now_at)
    return int(done.rpartition(" ")[2])


async def close_overdue(
    conn: asyncpg.Connection[Any], policy: Policy, wanted: Iterable[Wanted], owner_id: int, now_at: int
) -> list[Expired]:
    """Closes those of a batch whose deadline has passed, in the caller's transaction; returns what was closed.

    Takes the row locks in key order. Safe for any reference: one that may still begin, or is claimed, stays.
    """
    days, ids, slots, _, _ = columns_of(wanted)
    if not ids:
        return []
    overdue = await conn.fetch(OVERDUE, days, ids, slots, now_at)
    return await expire_messages(conn, policy, [(row["day"], row["id"]) for row in overdue], owner_id, now_at)


async def expire_messages(
    conn: asyncpg.Connection[Any], policy: Policy, keys: Sequence[tuple[date, UUID]], owner_id: int | None, now_at: int
) -> list[Expired]:
    """Expires those of the given messages that wait and are out of time (also what the deadline sweep calls).

    Runs in the caller's transaction: locks in key order, wins each next slot or leaves the message alone.
    """
    if not keys:
        return []
    keys = sorted(keys)
    rows = await conn.fetch(LOCK_MESSAGES, [day for day, _ in keys], [id_ for _, id_ in keys])
    spared = await spared_applications(conn)
    rows = [
        row for row in rows if expire(standing_of(row), 0, now_at) is not None and not is_spared(spared, row, now_at)
    ]
    if not rows:
        return []
    days, ids = [row["day"] for row in rows], [row["id"] for row in rows]
    won = await conn.fetch(WIN_EXPIRY, days, ids, [row["next_slot"] for row in rows], owner_id, now_at)
    winners = {row["id"] for row in won}
    rows = [row for row in rows if row["id"] in winners]
    accepted = await accepted_parts_of(conn, rows)
    changes: list[tuple[asyncpg.Record, Change]] = []
    for row in rows:
        change = expire(standing_of(row), accepted.get(row["id"], 0), now_at)
        if change is not None:
            changes.append((row, change))
    changed = await store_changes(conn, changes)
    events = [(after, change.event) for after, (_, change) in zip(changed, changes, strict=True) if change.event]
    await add_events(conn, policy, events, now_at)
    return [
        Expired(row["class"], str(change.expiry["cause"]), str(change.expiry["stage"]))
        for row, change in changes
        if change.status == states.EXPIRED and change.expiry is not None
    ]


async def accepted_parts_of(conn: asyncpg.Connection[Any], rows: Sequence[Mapping[str, Any]]) -> dict[UUID, int]:
    """How many parts of each long message a carrier has already taken."""
    long_ones = [row for row in rows if row["segments"] > 1 and row["submit_begun"]]
    if not long_ones:
        return {}
    days, ids = [row["day"] for row in long_ones], [row["id"] for row in long_ones]
    return {row["id"]: len(row["parts"]["accepted"]) for row in await conn.fetch(LAST_PARTS, days, ids)}


def columns_of(
    wanted: Iterable[Wanted],
) -> tuple[list[date], list[UUID], list[int], list[str], list[str]]:
    """The batch as sorted columns: unsorted batches of several processes deadlock."""
    keyed = sorted(((UUID(bytes=want.id), want) for want in wanted), key=lambda pair: pair[0].int)
    return (
        [day_of(id_) for id_, _ in keyed],
        [id_ for id_, _ in keyed],
        [want.slot for _, want in keyed],
        [want.provider for _, want in keyed],
        [want.session for _, want in keyed],
    )
