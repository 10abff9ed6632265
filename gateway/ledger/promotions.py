"""From the due table back into the queue: retries, send_at, deferral and send windows (design section 3, Retries).

What is due waits in lanes (class, provider, tenant, kind), each in the order of its time. A round takes a little from
every lane: one-time passwords and retries first and unpaced, the rest at the pace of its line, shared among tenants; so
a hundred thousand messages of nine o'clock delay nobody else. Every promoted batch is one outbox row, written in the
transaction that makes its messages ready; `due` rows go with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.admission.flows import entry_of
from gateway.domain import states
from gateway.ledger.callback_lines import tenant_names
from gateway.ledger.claims import DEADLINE
from gateway.ledger.folds import ADD_MESSAGE_EVENTS, lock_messages
from gateway.ledger.pauses import is_spared, spared_applications
from gateway.ledger.waiting import RETRY, put_outbox
from gateway.policy.rules.snapshot import Policy, Provider
from scheduler.core.records import Entry
from scheduler.core.values import valueclass

ROUND: Final = 500
ROUNDS_PER_S: Final = 10
CHANNEL: Final = "sluicegate_due"  # told when a retry was put into the table
# A line is released at four times the rate of its carrier, so that the index always has some of it ahead, and at least
# and at most so many a round.
_AHEAD: Final = 4.0
_LINE_MIN, _LINE_MAX = 5, 200
_LANES_MAX: Final = 500
# The part of a round that one-time passwords and retries may fill while others wait too.
_URGENT: Final = 400

_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended('sluicegate.promoter', 0))"
# One step per lane by the index: what a lane holds is not read, only its first row.
_LANES = """
WITH RECURSIVE lanes AS (
    (SELECT class, provider, tenant_id, kind, due_at FROM due WHERE class IS NOT NULL
      ORDER BY class, provider, tenant_id, kind, due_at LIMIT 1)
    UNION ALL
    SELECT n.class, n.provider, n.tenant_id, n.kind, n.due_at
      FROM lanes l CROSS JOIN LATERAL (
           SELECT class, provider, tenant_id, kind, due_at FROM due d
            WHERE (d.class, d.provider, d.tenant_id, d.kind) > (l.class, l.provider, l.tenant_id, l.kind)
            ORDER BY class, provider, tenant_id, kind, due_at LIMIT 1) AS n
)
SELECT class, provider, tenant_id, kind, due_at FROM lanes WHERE due_at <= $1 ORDER BY due_at, random() LIMIT $2
"""
# Those out of time are left to the expiry sweep.
_READY = f"""
(m.status NOT IN ('queued', 'scheduled') OR {DEADLINE} > $1)
"""
_DUE = f"""
SELECT f.day, f.id, f.due_at, f.kind, f.flow, f.segments, l.n AS lane
  FROM unnest($2::text[], $3::text[], $4::int[], $5::text[], $6::int[]) WITH ORDINALITY
       AS l (class, provider, tenant_id, kind, wanted, n)
 CROSS JOIN LATERAL (
       SELECT d.day, d.id, d.due_at, d.kind, d.flow, d.segments
         FROM due d JOIN messages m ON m.day = d.day AND m.id = d.id
        WHERE d.class = l.class AND d.provider = l.provider AND d.tenant_id = l.tenant_id AND d.kind = l.kind
          AND d.due_at <= $1 AND {_READY}
        ORDER BY d.due_at LIMIT l.wanted) AS f
"""  # noqa: S608 - constant text only
_DUE_UNNAMED = f"""
SELECT d.day, d.id, d.due_at, d.kind, d.flow, d.segments, 0 AS lane
  FROM due d JOIN messages m ON m.day = d.day AND m.id = d.id
 WHERE d.class IS NULL AND d.due_at <= $1 AND {_READY}
 ORDER BY d.due_at LIMIT $2
"""  # noqa: S608 - constant text only
_DROP = "DELETE FROM due d USING unnest($1::date[], $2::uuid[]) AS w (day, id) WHERE d.day = w.day AND d.id = w.id"
_RELEASE = """
UPDATE messages m
SET status = 'queued', version = m.version + 1,
    sweep_at = CASE WHEN m.submit_begun THEN m.expires_at ELSE m.submit_by END
FROM unnest($1::date[], $2::uuid[]) AS w (day, id)
WHERE m.day = w.day AND m.id = w.id
"""
_NEXT = "SELECT min(due_at) FROM due WHERE due_at > $1"


@valueclass
class Lane:
    """What one tenant has waiting of one kind in one line; `first_at` is its earliest time (UTC ms)."""

    class_name: str
    provider: str
    tenant_id: int
    kind: str
    first_at: int

    @property
    def is_urgent(self) -> bool:
        """Whether it is released before all else, at no pace."""
        return self.class_name == "otp" or self.kind == RETRY


@valueclass
class Promoted:
    """What one round came to: `entries` stand in the outbox under `outbox_id`, to be enqueued after the commit.

    `works` are (flow key, due at, segments) of what left the table; `more`: a lane may have more that is due.
    """

    found: int = 0
    oldest_at: int | None = None
    entries: tuple[Entry, ...] = ()
    outbox_id: UUID | None = None
    works: tuple[tuple[str, int, int], ...] = ()
    more: bool = False
    busy: bool = False


Detour = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def share_out(policy: Policy, lanes: Sequence[Lane]) -> list[tuple[Lane, int]]:
    """How many messages each lane may release in this round, urgent lanes first."""
    urgent = sorted((lane for lane in lanes if lane.is_urgent), key=lambda one: (one.class_name != "otp", one.first_at))
    shares = [(lane, max(1, _URGENT // len(urgent))) for lane in urgent]
    lines: dict[tuple[str, str], list[Lane]] = {}
    for lane in lanes:
        if not lane.is_urgent:
            lines.setdefault((lane.class_name, lane.provider), []).append(lane)
    for (_, provider), waiting in sorted(lines.items(), key=lambda line: _rank(policy, line[0][0])):
        released = min(pace(policy.providers.get(provider)), (ROUND - _URGENT if urgent else ROUND) // len(lines))
        share = max(1, released // len(waiting))
        shares += [(lane, share) for lane in waiting]
    return shares


def pace(provider: Provider | None) -> int:
    """Messages that a line of a carrier may release in one round."""
    if provider is None:
        return _LINE_MAX
    rates = [] if provider.limits is None else [provider.limits.rate_per_s]
    limits = [one.limits for one in provider.sessions.values()]
    if limits and None not in limits:
        rates.append(sum(limit.rate_per_s for limit in limits if limit is not None))
    if not rates:
        return _LINE_MAX
    return min(_LINE_MAX, max(_LINE_MIN, int(_AHEAD * min(rates) / ROUNDS_PER_S)))


async def promote_due(
    conn: asyncpg.Connection[Any], policy: Policy, pepper: bytes, now_at: int, detour: Detour | None = None
) -> Promoted:
    """Make a round of due messages ready, in one transaction.

    `detour` gives a message another route where its own is down; it gets and returns the row.
    """
    async with conn.transaction():
        if not await conn.fetchval(_TRY_LOCK):
            return Promoted(busy=True)
        due, more = await _take(conn, policy, now_at)
        if not due:
            return Promoted(more=more)
        keys = sorted((row["day"], row["id"]) for row in due)
        locked = list((await lock_messages(conn, keys)).values())
        spared = await spared_applications(conn)
        ready = [row for row in locked if _may_go(row, spared, now_at)]
        await _release(conn, [row for row in ready if row["status"] == states.SCHEDULED], due, now_at)
        # What ended meanwhile needs its due row no more; what is out of time keeps it for the expiry sweep.
        gone = {row["id"] for row in ready} | {row["id"] for row in locked if not _waits(row)}
        dropped = [key for key in keys if key[1] in gone]
        await conn.execute(_DROP, [day for day, _ in dropped], [message_id for _, message_id in dropped])
        sent_on = [row if detour is None else detour(row) for row in ready]
        await _move(conn, ready, sent_on)
        entries = await _entries(conn, policy, pepper, sent_on)
        outbox_id = await put_outbox(conn, entries, now_at)
        works = tuple((row["flow"], row["due_at"], row["segments"]) for row in due if row["flow"] and row["id"] in gone)
        return Promoted(len(due), min(row["due_at"] for row in due), entries, outbox_id, works, more)


async def next_due_at(conn: asyncpg.Connection[Any], now_at: int) -> int | None:
    """When the next row becomes due (UTC ms)."""
    found: int | None = await conn.fetchval(_NEXT, now_at)
    return found


async def _take(conn: asyncpg.Connection[Any], policy: Policy, now_at: int) -> tuple[list[asyncpg.Record], bool]:
    """The due rows of this round, in the order in which they are released, and whether some lane has more."""
    unnamed = await conn.fetch(_DUE_UNNAMED, now_at, ROUND)
    lanes = [
        Lane(row["class"], row["provider"], row["tenant_id"], row["kind"], row["due_at"])
        for row in await conn.fetch(_LANES, now_at, _LANES_MAX)
    ]
    if not lanes:
        return list(unnamed), len(unnamed) == ROUND
    shares = share_out(policy, lanes)
    due = await conn.fetch(
        _DUE,
        now_at,
        [lane.class_name for lane, _ in shares],
        [lane.provider for lane, _ in shares],
        [lane.tenant_id for lane, _ in shares],
        [lane.kind for lane, _ in shares],
        [wanted for _, wanted in shares],
    )
    due.sort(key=lambda row: (row["lane"], row["due_at"]))
    taken = [0] * len(shares)
    for row in due:
        taken[row["lane"] - 1] += 1
    full = any(count >= wanted for count, (_, wanted) in zip(taken, shares, strict=True))
    return [*unnamed, *due[:ROUND]], full or len(due) > ROUND or len(lanes) == _LANES_MAX


def _rank(policy: Policy, class_name: str) -> tuple[int, str]:
    traffic = policy.classes.get(class_name)
    return (0 if traffic is None else -traffic.weight, class_name)


def _waits(row: Mapping[str, Any]) -> bool:
    return row["status"] in (states.QUEUED, states.SCHEDULED)


def _may_go(row: Mapping[str, Any], spared: frozenset[tuple[int, str]], now_at: int) -> bool:
    deadline_at = row["expires_at"] if row["submit_begun"] else row["submit_by"]
    return _waits(row) and (deadline_at > now_at or is_spared(spared, row, now_at))


async def _release(
    conn: asyncpg.Connection[Any], rows: Sequence[Mapping[str, Any]], due: Sequence[Mapping[str, Any]], now_at: int
) -> None:
    if not rows:
        return
    kinds = {row["id"]: row["kind"] for row in due}
    days, message_ids = [row["day"] for row in rows], [row["id"] for row in rows]
    await conn.execute(_RELEASE, days, message_ids)
    causes = [kinds[message_id] for message_id in message_ids]
    await conn.execute(ADD_MESSAGE_EVENTS, days, message_ids, ["released"] * len(rows), causes, now_at)


_MOVE = """
UPDATE messages m SET route = w.route, provider = w.provider
FROM unnest($1::date[], $2::uuid[], $3::text[], $4::text[]) AS w (day, id, route, provider)
WHERE m.day = w.day AND m.id = w.id
"""


async def _move(
    conn: asyncpg.Connection[Any], before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> None:
    """Write the other route of those that take one: nothing of them is in the queue yet."""
    moved = [row for was, row in zip(before, after, strict=True) if row["route"] != was["route"]]
    if moved:
        await conn.execute(
            _MOVE,
            [row["day"] for row in moved],
            [row["id"] for row in moved],
            [row["route"] for row in moved],
            [row["provider"] for row in moved],
        )


async def _entries(
    conn: asyncpg.Connection[Any], policy: Policy, pepper: bytes, rows: Sequence[Mapping[str, Any]]
) -> tuple[Entry, ...]:
    names = await tenant_names(conn, {row["tenant_id"] for row in rows}) if rows else {}
    return tuple(entry_of(policy, pepper, names[row["tenant_id"]], row) for row in rows)
