"""What a tenant may read of its messages: one with its history, or a page of them. Every statement names the tenant."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.domain import ids, states
from gateway.domain.message import History
from scheduler.core.values import valueclass

_READ_S: Final = 2.0
_COLUMNS: Final = """
m.day, m.id, m.tenant_id, m.class, m.status, m.version, m.next_slot, m.recipient, m.sender, m.encoding, m.segments,
m.application, m.client_ref, m.extras, m.route, m.provider, m.created_at, m.not_before, m.submit_by, m.expires_at,
m.final_at, m.predicted_wait_ms, m.policy_version, m.delivery, m.expiry, m.error, m.possible_duplicate,
EXISTS (SELECT FROM attempts a WHERE a.day = m.day AND a.id = m.id AND a.slot = m.next_slot AND a.outcome IS NULL)
    AND m.status = 'queued' AS sending
"""
_ONE: Final = f"SELECT {_COLUMNS} FROM messages m WHERE m.day = $1 AND m.id = $2 AND m.tenant_id = $3"  # noqa: S608
_ATTEMPTS: Final = """
SELECT slot, kind, provider, session, claimed_at, written_at, outcome, outcome_at, command_status, parts
  FROM attempts WHERE day = $1 AND id = $2 ORDER BY slot
"""
_RECEIPTS: Final = """
SELECT provider, state, error_code, done_at, received_at, part FROM receipts WHERE message_id = $1 ORDER BY id
"""
_EVENTS: Final = "SELECT at, type, cause FROM message_events WHERE day = $1 AND id = $2 ORDER BY n"
_PARTS: Final = "SELECT DISTINCT part FROM carrier_ids WHERE id = $1 AND day = $2"

_CARRIER_IDS: Final = "SELECT slot, part, carrier_id FROM carrier_ids WHERE id = $1 AND day = $2 ORDER BY slot, part"


@valueclass
class Found:
    """A message with all that happened to it; `accepted_parts` were taken by a carrier."""

    row: Mapping[str, Any]
    history: History
    accepted_parts: tuple[int, ...]


@valueclass
class Filter:
    """Which messages of a tenant; None does not filter. Instants are UTC ms, `before_id` is where a page goes on."""

    status: str | None = None
    class_name: str | None = None
    recipient: str | None = None
    client_ref: str | None = None
    created_after: int | None = None
    created_before: int | None = None
    before_id: UUID | None = None
    limit: int = 50


async def find(conn: asyncpg.Connection[Any], tenant_id: int, message_id: UUID) -> Found | None:
    """One message of a tenant with its history, or None: unknown and foreign ids are the same."""
    day = ids.day_of(message_id)
    row = await conn.fetchrow(_ONE, day, message_id, tenant_id, timeout=_READ_S)
    if row is None:
        return None
    attempts = await conn.fetch(_ATTEMPTS, day, message_id, timeout=_READ_S)
    receipts = await conn.fetch(_RECEIPTS, message_id, timeout=_READ_S)
    events = await conn.fetch(_EVENTS, day, message_id, timeout=_READ_S)
    accepted: tuple[int, ...] = ()
    if row["segments"] > 1:
        accepted = tuple(one["part"] for one in await conn.fetch(_PARTS, message_id, day, timeout=_READ_S))
    return Found(row, History(attempts, receipts, events), accepted)


async def carrier_ids(conn: asyncpg.Connection[Any], message_id: UUID) -> list[asyncpg.Record]:
    """Slot, part and id (in the dialect's normal form) of what carriers accepted, while receipts can still come."""
    return list(await conn.fetch(_CARRIER_IDS, message_id, ids.day_of(message_id), timeout=_READ_S))


async def find_page(conn: asyncpg.Connection[Any], tenant_id: int, wanted: Filter) -> list[asyncpg.Record]:
    """A page of a tenant's messages, newest first, with one row more than `limit` where there is a next page."""
    conditions, arguments = _conditions(tenant_id, wanted)
    arguments.append(wanted.limit + 1)
    # Only constant text is put together here; every value is bound.
    statement = (
        f"SELECT {_COLUMNS} FROM messages m WHERE {' AND '.join(conditions)} ORDER BY m.id DESC LIMIT ${len(arguments)}"  # noqa: S608
    )
    return list(await conn.fetch(statement, *arguments, timeout=_READ_S))


_OPEN_ATTEMPT: Final = (
    "EXISTS (SELECT FROM attempts a WHERE a.day = m.day AND a.id = m.id AND a.slot = m.next_slot AND a.outcome IS NULL)"
)


def _conditions(tenant_id: int, wanted: Filter) -> tuple[list[str], list[Any]]:
    arguments: list[Any] = [tenant_id]
    conditions = ["m.tenant_id = $1"]

    def add(condition: str, value: Any) -> None:
        arguments.append(value)
        conditions.append(condition.format(f"${len(arguments)}"))

    if wanted.status is not None:
        stored = states.QUEUED if wanted.status == states.SENDING else wanted.status
        add("m.status = {}", stored)
        if wanted.status in (states.SENDING, states.QUEUED):
            conditions.append(_OPEN_ATTEMPT if wanted.status == states.SENDING else f"NOT {_OPEN_ATTEMPT}")
    if wanted.class_name is not None:
        add("m.class = {}", wanted.class_name)
    if wanted.recipient is not None:
        add("m.recipient = {}", wanted.recipient)
    if wanted.client_ref is not None:
        add("m.client_ref = {}", wanted.client_ref)
    if wanted.before_id is not None:
        add("m.id < {}", wanted.before_id)
        add("m.day <= {}", ids.day_of(wanted.before_id))
    if wanted.created_after is not None:
        add("m.created_at > {}", wanted.created_after)
        add("m.day >= {}", _day(wanted.created_after))
    if wanted.created_before is not None:
        add("m.created_at < {}", wanted.created_before)
        # An id is made a moment after created_at: at midnight it may already name the next day.
        add("m.day <= {}", _day(wanted.created_before + 60_000))
    return conditions, arguments


def _day(at_ms: int) -> date:
    ordinal = date(1970, 1, 1).toordinal() + at_ms // ids.DAY_MS
    return date.fromordinal(min(max(ordinal, 1), date.max.toordinal()))
