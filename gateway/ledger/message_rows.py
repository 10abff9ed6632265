"""Message rows as decisions need them: which columns, how a batch of them is locked, and day by day.

`messages` has a partition per day. A claim names one day for its whole batch: told a day with each row the executor
prepares every partition, and chooses one anew for each row: a fifth of the statement. Nearly every batch is of one day.
Updates are told a day with each row all the same: joined by the id alone the planner, which knows nothing of a fresh
day, takes the day for rare and reads all of it once per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from itertools import groupby
from typing import Final

# Every column of `messages` but the text, which no transition and no callback needs.
MESSAGE_COLUMNS: Final = """
m.day, m.id, m.tenant_id, m.class, m.status, m.version, m.next_slot, m.attempts_spent, m.submit_begun, m.recipient,
m.sender, m.body_key_id, m.encoding, m.segments, m.application, m.client_ref, m.extras, m.route, m.provider,
m.created_at, m.not_before, m.submit_by, m.expires_at, m.sweep_at, m.final_at, m.predicted_wait_ms, m.policy_version,
m.network_state, m.delivery, m.expiry, m.error, m.possible_duplicate, m.sent_at
"""

# $1 days, $2 ids, sorted: a lateral join locks the rows in the order in which they are given. Names of tenants are
# looked up apart from that: with a subquery beside the lock a server process of PostgreSQL 18.6 crashes when two of the
# rows were changed by others while it waited (tests/integration/delivery/test_locks.py).
LOCK_MESSAGES: Final = f"""
WITH m AS MATERIALIZED (
    SELECT m.* FROM unnest($1::date[], $2::uuid[]) AS r (day, id)
     CROSS JOIN LATERAL (
           SELECT {MESSAGE_COLUMNS} FROM messages m WHERE m.day = r.day AND m.id = r.id FOR UPDATE) AS m
)
SELECT m.*, (SELECT t.name FROM tenants t WHERE t.id = m.tenant_id) AS tenant FROM m
"""  # noqa: S608 - constant columns only


def day_spans(days: Sequence[date]) -> Iterator[tuple[date, slice]]:
    """The places in a batch that share a day, run by run."""
    begin = 0
    for day, run in groupby(days):
        end = begin + sum(1 for _ in run)
        yield day, slice(begin, end)
        begin = end
