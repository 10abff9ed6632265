"""The statements of `gateway.ledger.outcomes`: every one takes columns that are sorted by (day, id)."""

from __future__ import annotations

from typing import Final

from gateway.ledger.coverage import COUNT_SENT
from gateway.ledger.message_rows import MESSAGE_COLUMNS

# The row lock comes first and in key order; an attempt that was closed meanwhile changes nothing, but its carrier id
# is kept: the receipt will ask for it.
# Each step joins one batch with one table by its primary key. `num_nulls(x) <> 0` says `x IS NULL` in a form that the
# planner takes for common: told the plain thing it takes it for rare, starts from all open rows, and goes quadratic.
_ACCEPT = """
WITH answers AS MATERIALIZED (
    SELECT * FROM unnest($1::date[], $2::uuid[], $3::smallint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[],
                         $8::text[], $10::boolean[])
           AS a (day, id, slot, written_at, outcome_at, provider, carrier_id, recipient, is_last)
), locked AS MATERIALIZED (
    SELECT a.day, a.id, a.slot, a.written_at, a.outcome_at, a.is_last
      FROM answers a
     CROSS JOIN LATERAL (SELECT FROM messages m WHERE m.day = a.day AND m.id = a.id FOR UPDATE) AS m
), closed AS (
    UPDATE attempts t
       SET outcome = 'accepted', outcome_at = l.outcome_at, written_at = l.written_at, command_status = 0
      FROM locked l
     WHERE t.day = l.day AND t.id = l.id AND t.slot = l.slot AND num_nulls(t.outcome) <> 0
    RETURNING t.day, t.id, t.slot, l.outcome_at, l.is_last, coalesce(l.written_at, l.outcome_at) AS sent_at
), kept AS (
    INSERT INTO carrier_ids (provider, carrier_id, day, id, slot, part, recipient, sent_at)
    SELECT provider, carrier_id, day, id, slot, 1, recipient, written_at FROM answers WHERE carrier_id <> ''
     ORDER BY provider, carrier_id
    ON CONFLICT DO NOTHING
), moved AS (
    UPDATE messages m
       SET status = 'sent', version = m.version + 1, attempts_spent = m.attempts_spent + 1, submit_begun = true,
           error = NULL, sent_at = coalesce(m.sent_at, c.sent_at),
           sweep_at = CASE WHEN c.is_last THEN NULL ELSE c.outcome_at + $9::bigint END,
           final_at = CASE WHEN c.is_last THEN c.outcome_at END
      FROM closed c
     WHERE m.day = c.day AND m.id = c.id AND num_nulls(nullif(m.status, 'queued')) <> 0 AND m.next_slot = c.slot
"""
_COUNTED = f"), counted AS ({COUNT_SENT})"
ACCEPT_COUNTED: Final = (
    _ACCEPT + f"    RETURNING m.provider, m.status, m.sent_at, m.sweep_at{_COUNTED}\nSELECT count(*) FROM moved"
)
ACCEPT_RETURNING: Final = _ACCEPT + f"    RETURNING {MESSAGE_COLUMNS}{_COUNTED}\nSELECT * FROM moved ORDER BY day, id"

CLOSE_ATTEMPTS: Final = """
UPDATE attempts t
   SET outcome = r.outcome, outcome_at = r.outcome_at, written_at = r.written_at,
       command_status = r.command_status, parts = coalesce(r.parts, t.parts)
  FROM unnest($1::date[], $2::uuid[], $3::smallint[], $4::text[], $5::bigint[], $6::bigint[], $7::integer[],
              $8::jsonb[]) AS r (day, id, slot, outcome, outcome_at, written_at, command_status, parts)
 WHERE t.day = r.day AND t.id = r.id AND t.slot = r.slot AND num_nulls(t.outcome) <> 0
RETURNING t.day, t.id, t.slot
"""

KEEP_CARRIER_IDS: Final = """
INSERT INTO carrier_ids (provider, carrier_id, day, id, slot, part, recipient, sent_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::date[], $4::uuid[], $5::smallint[], $6::smallint[], $7::text[],
                     $8::bigint[])
ON CONFLICT DO NOTHING
"""

STORE_CHANGES: Final = f"""
WITH moved AS (
UPDATE messages m
   SET status = r.status, version = m.version + 1, next_slot = r.next_slot, attempts_spent = r.attempts_spent,
       submit_begun = r.submit_begun, possible_duplicate = r.possible_duplicate, error = r.error, expiry = r.expiry,
       sweep_at = r.sweep_at, final_at = r.final_at, sent_at = coalesce(m.sent_at, r.sent_at)
  FROM unnest($1::date[], $2::uuid[], $3::text[], $4::smallint[], $5::smallint[], $6::boolean[], $7::boolean[],
              $8::jsonb[], $9::jsonb[], $10::bigint[], $11::bigint[], $12::bigint[])
       AS r (day, id, status, next_slot, attempts_spent, submit_begun, possible_duplicate, error, expiry, sweep_at,
             final_at, sent_at)
 WHERE m.day = r.day AND m.id = r.id
RETURNING {MESSAGE_COLUMNS}
), counted AS ({COUNT_SENT})
SELECT * FROM moved
"""  # noqa: S608 - constant columns only

ADOPT: Final = """
INSERT INTO attempts (day, id, slot, kind, claimed_at, outcome, outcome_at)
SELECT r.day, r.id, r.slot, 'adopt', $4, 'closed', $4
  FROM unnest($1::date[], $2::uuid[], $3::smallint[]) AS r (day, id, slot)
ON CONFLICT DO NOTHING
RETURNING id
"""

PARTS_OF: Final = """
SELECT a.id, a.parts
  FROM unnest($1::date[], $2::uuid[], $3::smallint[]) AS r (day, id, slot)
  JOIN attempts a ON a.day = r.day AND a.id = r.id AND a.slot = r.slot
"""

STORE_PARTS: Final = """
UPDATE attempts t SET parts = r.parts
  FROM unnest($1::date[], $2::uuid[], $3::smallint[], $4::jsonb[]) AS r (day, id, slot, parts)
 WHERE t.day = r.day AND t.id = r.id AND t.slot = r.slot
"""

WAKE_PROMOTER: Final = "SELECT pg_notify('sluicegate_due', '')"

PUT_OUTBOX: Final = "INSERT INTO outbox (id, created_at, payload) VALUES ($1, $2, $3)"

TELL_TIMELINE: Final = """
INSERT INTO message_events (day, id, at, type, cause)
SELECT r.day, r.id, $3, r.type, r.cause FROM unnest($1::date[], $2::uuid[], $4::text[], $5::text[])
    AS r (day, id, type, cause)
"""

# Rows that another process is merging at this moment are skipped: it sees the new carrier ids by itself. So does who
# looks at those that are due anyhow: writing them once more would only cost.
HURRY_RECEIPTS: Final = """
WITH early AS (
    UPDATE receipts SET next_try_at = $2
     WHERE id IN (SELECT id FROM receipts WHERE carrier_id = ANY ($1::text[]) AND merged_at IS NULL
                     AND next_try_at > $2 ORDER BY id FOR UPDATE SKIP LOCKED)
    RETURNING 1
)
SELECT pg_notify('sluicegate_receipts', '') FROM (SELECT count(*) AS n FROM early) AS c WHERE c.n > 0
"""
