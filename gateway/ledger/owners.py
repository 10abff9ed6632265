"""Owners: who holds which session, who is alive, and what happens to the claims of the dead (design section 4).

Locks are session-level advisory locks on the owner's direct connection: they go when the connection goes. An owner is
dead when its lock is free AND its heartbeat is over ten seconds old AND the server has been up for fifteen (a restart
frees every lock), or when its row says `ended_at` (the local supervisor saw it die, or it stopped).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.domain import outcomes
from gateway.ledger.folds import parts_expected
from gateway.ledger.outcomes import Bench, Closing, Stored, store_endings
from scheduler.core.values import valueclass

HEARTBEAT_S: Final = 2.0
IDLE_SESSION_TIMEOUT_MS: Final = 8_000
DEAD_AFTER_MS: Final = 10_000
SERVER_UP_S: Final = 15
_BATCH: Final = 500

OWNER_SETTINGS: Final = {
    "idle_session_timeout": str(IDLE_SESSION_TIMEOUT_MS),
    "application_name": "sluicegate owner",
}

_TAKE = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))"
_RELEASE = "SELECT pg_advisory_unlock(hashtextextended($1, 0))"
_BEAT = "UPDATE processes SET heartbeat_at = greatest(heartbeat_at, $2) WHERE id = $1 AND ended_at IS NULL RETURNING id"
_END = "UPDATE processes SET ended_at = $2 WHERE id = $1 AND ended_at IS NULL"

# pg_locks shows a 64-bit advisory key as its two halves.
_MEMBERS = """
SELECT p.id, p.heartbeat_at, pg_postmaster_start_time() < clock_timestamp() - make_interval(secs => $1) AS settled,
       coalesce(p.report -> 'holds', '[]'::jsonb) AS holds,
       EXISTS (SELECT FROM pg_locks l
                WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
                  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                  AND l.classid = ((k.key >> 32) & 4294967295)::oid AND l.objid = (k.key & 4294967295)::oid) AS locked
  FROM processes p CROSS JOIN LATERAL (SELECT hashtextextended('sluicegate.owner:' || p.id, 0) AS key) AS k
 WHERE p.role = 'egress' AND p.ended_at IS NULL
 ORDER BY p.id
"""

# Owners of open claims that are not this process; a row that is gone counts as ended.
_SUSPECTS = """
SELECT o.owner_id AS id, p.id IS NULL OR p.ended_at IS NOT NULL AS ended
  FROM (SELECT DISTINCT owner_id FROM attempts WHERE outcome IS NULL AND owner_id IS NOT NULL) AS o
  LEFT JOIN processes p ON p.id = o.owner_id
 WHERE o.owner_id <> $1
   AND (p.id IS NULL OR p.ended_at IS NOT NULL
        OR (p.heartbeat_at < $2 AND pg_postmaster_start_time() < clock_timestamp() - make_interval(secs => $3)))
 ORDER BY 1
"""
_TRY_OWNER = "SELECT pg_try_advisory_xact_lock(hashtextextended('sluicegate.owner:' || $1::bigint, 0))"
_TRY_BURIAL = "SELECT pg_try_advisory_xact_lock(hashtextextended('sluicegate.burial:' || $1::bigint, 0))"

_OPEN_SLOTS = """
SELECT a.day, a.id, a.slot, a.provider, m.recipient, m.segments,
       CASE WHEN m.segments > 1 THEN (
           SELECT b.parts FROM attempts b
            WHERE b.day = a.day AND b.id = a.id AND b.parts IS NOT NULL ORDER BY b.slot DESC LIMIT 1) END AS parts
  FROM attempts a JOIN messages m ON m.day = a.day AND m.id = a.id
 WHERE a.owner_id = $1 AND a.outcome IS NULL AND a.claimed_at < $2
 ORDER BY a.day, a.id LIMIT $3
"""


@valueclass
class Member:
    """An egress process that has not ended. `locked`: its own lock is held; `holds`: sessions it reported.

    `settled`: the server is up long enough for a free lock to mean something.
    """

    id: int
    heartbeat_at: int
    locked: bool
    settled: bool
    holds: tuple[str, ...]

    def is_live(self, now_at: int) -> bool:
        """Whether it must be counted with: dead only when its lock is free and its heartbeat old."""
        return self.locked or not self.settled or now_at - self.heartbeat_at <= DEAD_AFTER_MS


@valueclass
class Burial:
    """What closing the claims of dead owners came to; every `stored` has entries to enqueue after the commit."""

    owners: list[int]
    stored: list[Stored]


async def take_owner(conn: asyncpg.Connection[Any], owner_id: int) -> bool:
    """Takes the lock that says this process lives; False while another connection still has it."""
    return bool(await conn.fetchval(_TAKE, f"sluicegate.owner:{owner_id}"))


async def take_session(conn: asyncpg.Connection[Any], name: str) -> bool:
    """Takes the lock of one SMPP session; False while another process owns it."""
    return bool(await conn.fetchval(_TAKE, f"sluicegate.session:{name}"))


async def release_session(conn: asyncpg.Connection[Any], name: str) -> None:
    """Gives a session up for others."""
    await conn.fetchval(_RELEASE, f"sluicegate.session:{name}")


async def take_account(conn: asyncpg.Connection[Any], account: str) -> bool:
    """Takes the right to make a bind attempt with an account."""
    return bool(await conn.fetchval(_TAKE, f"sluicegate.account:{account}"))


async def release_account(conn: asyncpg.Connection[Any], account: str) -> None:
    """Ends a bind attempt."""
    await conn.fetchval(_RELEASE, f"sluicegate.account:{account}")


async def beat(conn: asyncpg.Connection[Any], owner_id: int, now_at: int) -> bool:
    """Heartbeat on the connection that holds the locks; False once this process was declared dead."""
    return await conn.fetchval(_BEAT, owner_id, now_at) is not None


async def end(conn: asyncpg.Connection[Any], owner_id: int, now_at: int) -> None:
    """Says that a process has ended: its open claims may be closed at once."""
    await conn.execute(_END, owner_id, now_at)


async def members(conn: asyncpg.Connection[Any]) -> list[Member]:
    """All egress processes that have not ended, dead ones that nobody has noticed included."""
    return [
        Member(row["id"], row["heartbeat_at"], row["locked"], row["settled"], tuple(row["holds"]))
        for row in await conn.fetch(_MEMBERS, float(SERVER_UP_S))
    ]


async def close_dead(conn: asyncpg.Connection[Any], bench: Bench, owner_id: int) -> Burial:
    """Closes open claims of dead owners as unconfirmed under their class policy, exactly once.

    Called by every egress process (and any sweep: pass 0 as owner). One transaction per owner and batch; the caller
    enqueues what the burial returns.
    """
    suspects = await conn.fetch(_SUSPECTS, owner_id, bench.now_at - DEAD_AFTER_MS, float(SERVER_UP_S))
    burial = Burial([], [])
    for suspect in suspects:
        more, found = True, False
        while more:
            async with conn.transaction():
                # The owner's own lock tells a silent owner from a dead one; of ended ones only one burial at a time.
                statement = _TRY_BURIAL if suspect["ended"] else _TRY_OWNER
                if not await conn.fetchval(statement, suspect["id"]):
                    break
                rows = await conn.fetch(_OPEN_SLOTS, suspect["id"], bench.now_at + 1, _BATCH)
                more = len(rows) == _BATCH
                if rows:
                    burial.stored.append(await store_endings(conn, _doubts(rows, bench), bench))
                    found = True
                await end(conn, suspect["id"], bench.now_at)
        if found:
            burial.owners.append(suspect["id"])
    return burial


async def close_claims(conn: asyncpg.Connection[Any], bench: Bench, owner_id: int) -> bool:
    """Closes a batch of an owner's open claims as unconfirmed; True while there may be more."""
    async with conn.transaction():
        rows = await conn.fetch(_OPEN_SLOTS, owner_id, bench.now_at + 1, _BATCH)
        if rows:
            await store_endings(conn, _doubts(rows, bench), bench)
    return len(rows) == _BATCH


async def lost_claims(
    conn: asyncpg.Connection[Any], owner_id: int, before_at: int, held: Iterable[UUID], now_at: int
) -> list[Closing]:
    """Claims of this live process that it does not hold: their answer was lost, so nothing of them was ever written.

    `before_at` keeps claims out whose answer may still be on its way; `held` are the messages in memory.
    """
    known = set(held)
    rows = await conn.fetch(_OPEN_SLOTS, owner_id, before_at, _BATCH)
    return [
        _closing(row, outcomes.GIVEN_BACK, written_at=None, now_at=now_at) for row in rows if row["id"] not in known
    ]


def _doubts(rows: Sequence[asyncpg.Record], bench: Bench) -> list[Closing]:
    """A dead owner's claims: whether they were written nobody can tell, so they count as written."""
    return [
        replace(
            _closing(row, outcomes.UNCONFIRMED, written_at=bench.now_at, now_at=bench.now_at),
            parts_total=(total := parts_expected(bench.policy, row)),
            parts=_doubtful(row["parts"] or {}, total) if total > 1 else None,
        )
        for row in rows
    ]


def _doubtful(before: Mapping[str, Any], total: int) -> dict[str, Any]:
    accepted = list(before.get("accepted", ()))
    doubt = [part for part in range(1, total + 1) if part not in accepted]
    return {"reference": before.get("reference"), "total": total, "accepted": accepted, "doubt": doubt, "refused": {}}


def _closing(row: asyncpg.Record, outcome: str, *, written_at: int | None, now_at: int) -> Closing:
    day: date = row["day"]
    return Closing(
        day=day,
        id=row["id"],
        slot=row["slot"],
        outcome=outcome,
        provider=row["provider"],
        recipient=row["recipient"],
        parts_total=row["segments"],
        outcome_at=now_at,
        written_at=written_at,
        accepted_parts=len((row["parts"] or {}).get("accepted", ())),
    )


def share(sessions: int, live: int) -> int:
    """How many sessions one of `live` processes takes at most."""
    return -(-sessions // max(1, live))
