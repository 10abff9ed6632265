"""Callbacks owed to tenants: written with the change that they tell of, removed once an endpoint took them.

A row is one notice to one endpoint; `webhook_id` stays the same over retries (contract, "Callbacks").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg
import orjson

from gateway.domain import states
from gateway.domain.ids import rfc3339
from gateway.domain.message import message_object
from gateway.ledger.inbound import readable
from gateway.policy.rules.lookup import tenant_rules
from gateway.policy.rules.snapshot import CallbackTarget, Policy
from gateway.sealing import Sealer
from scheduler.core.values import valueclass

CHANNEL: Final = "sluicegate_callbacks"
_HEARD_MAX: Final = 7_000
CORRECTED: Final = "message.corrected"
RECEIVED: Final = "message.received"
_STATUS_EVENTS: Final = {
    status: f"message.{status}"
    for status in (
        states.SENT,
        states.DELIVERED,
        states.UNDELIVERED,
        states.EXPIRED,
        states.REJECTED,
        states.FAILED,
        states.SUPPRESSED,
        states.UNKNOWN,
    )
}
EVENT_TYPES: Final = frozenset(_STATUS_EVENTS.values()) | {CORRECTED, RECEIVED, "optout.created"}
_FINAL_EVENTS: Final = EVENT_TYPES - {"message.sent"}

_ENDPOINTS = """
INSERT INTO endpoints (tenant_id, url)
SELECT DISTINCT w.tenant_id, w.url FROM unnest($1::int[], $2::text[]) AS w (tenant_id, url)
ORDER BY 1, 2
ON CONFLICT DO NOTHING
"""
_ENDPOINT_IDS = """
SELECT e.id, e.tenant_id, e.url, e.idle_at
FROM endpoints e JOIN unnest($1::int[], $2::text[]) AS w (tenant_id, url) ON e.tenant_id = w.tenant_id AND e.url = w.url
"""
# Whoever deletes one that is marked waits for this, or this for the deletion: then it is made anew.
_IN_USE = "UPDATE endpoints SET idle_at = NULL WHERE id = ANY ($1::int[])"
# What goes to an endpoint that said 410 under this policy version is on the give-up list from the start. The word to
# the senders goes with the rows: whom it concerns, so that lines of other endpoints need not look.
_INSERT = """
WITH put AS (
    INSERT INTO callbacks (endpoint_id, tenant_id, day, message_id, seq, type, webhook_id, body, created_at, due_at,
                           last_status, gave_up_at)
    SELECT w.endpoint_id, w.tenant_id, w.day, w.message_id, w.seq, w.type, w.webhook_id, w.body, $9::bigint,
           $9::bigint, CASE WHEN e.gone_version = $10::int THEN '410' END,
           CASE WHEN e.gone_version = $10::int THEN $9::bigint END
    FROM unnest($1::int[], $2::int[], $3::date[], $4::uuid[], $5::int[], $6::text[], $7::uuid[], $8::bytea[])
         WITH ORDINALITY AS w (endpoint_id, tenant_id, day, message_id, seq, type, webhook_id, body, n)
    LEFT JOIN endpoints e ON e.id = w.endpoint_id
    ORDER BY w.n
)
SELECT pg_notify($11, $12)
"""
_BACKLOG = """
SELECT count(*) AS rows, min(created_at) AS oldest_at FROM callbacks WHERE gave_up_at IS NULL
"""
# A skip scan of callbacks_due: one look per endpoint that waits, however long its line is; or a look for each endpoint
# that was heard of. What is due comes first, each tenant's next endpoint in turn; then what is due later, the soonest
# first.
_ALL_HEADS = """
WITH RECURSIVE heads AS (
    (SELECT endpoint_id, due_at FROM callbacks WHERE gave_up_at IS NULL ORDER BY endpoint_id, due_at LIMIT 1)
    UNION ALL
    SELECT following.endpoint_id, following.due_at
    FROM heads CROSS JOIN LATERAL (
        SELECT c.endpoint_id, c.due_at FROM callbacks c
        WHERE c.gave_up_at IS NULL AND c.endpoint_id > heads.endpoint_id
        ORDER BY c.endpoint_id, c.due_at LIMIT 1
    ) AS following
)"""
_SOME_HEADS = """
WITH heads AS MATERIALIZED (
    SELECT first.endpoint_id, first.due_at
    FROM unnest($6::int[]) AS w (id) CROSS JOIN LATERAL (
        SELECT c.endpoint_id, c.due_at FROM callbacks c
        WHERE c.gave_up_at IS NULL AND c.endpoint_id = w.id
        ORDER BY c.endpoint_id, c.due_at LIMIT 1
    ) AS first
)"""
# OFFSET 0: one look by primary key for each head; joined freely, all endpoints and tenants were read each time.
_PLACED = """
, placed AS (
    SELECT e.id, e.tenant_id, e.url, h.due_at, h.due_at > $3 AS later,
           row_number() OVER (PARTITION BY e.tenant_id, h.due_at > $3 ORDER BY h.due_at, e.id)
               + coalesce(r.lines, 0) AS place
    FROM heads h CROSS JOIN LATERAL (SELECT * FROM endpoints WHERE id = h.endpoint_id OFFSET 0) e
    LEFT JOIN unnest($4::int[], $5::int[]) AS r (tenant_id, lines) ON r.tenant_id = e.tenant_id
    WHERE h.endpoint_id <> ALL ($1::int[])
), chosen AS MATERIALIZED (
    SELECT p.* FROM placed p ORDER BY p.later, CASE WHEN p.later THEN 0 ELSE p.place END, p.due_at LIMIT $2
)
SELECT p.id, p.tenant_id, p.url, (SELECT t.name FROM tenants t WHERE t.id = p.tenant_id) AS tenant, p.due_at
FROM chosen p
ORDER BY p.later, CASE WHEN p.later THEN 0 ELSE p.place END, p.due_at
"""
_PAGES = """
SELECT w.n, c.id, c.type, c.webhook_id, c.body, c.created_at, c.tries, c.message_id
FROM unnest($1::int[]) WITH ORDINALITY AS w (endpoint_id, n) CROSS JOIN LATERAL (
    SELECT * FROM callbacks c
    WHERE c.endpoint_id = w.endpoint_id AND c.gave_up_at IS NULL AND c.due_at <= $2 AND c.id <> ALL ($3::bigint[])
    ORDER BY c.due_at, c.id
    LIMIT $4
) AS c
ORDER BY w.n, c.due_at, c.id
"""
_TEXTS = """
SELECT i.id, i.body, i.body_key_id
FROM unnest($1::uuid[], $2::int[]) AS w (id, tenant_id) JOIN inbound i ON i.id = w.id AND i.tenant_id = w.tenant_id
"""
_RETRY = """
UPDATE callbacks c SET tries = c.tries + 1, due_at = w.due_at, last_status = w.last_status, gave_up_at = w.gave_up_at
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[]) AS w (id, due_at, last_status, gave_up_at)
WHERE c.id = w.id
"""


@valueclass
class Endpoint:
    """One address of one tenant: what gets a line of its own."""

    id: int
    tenant_id: int
    tenant: str
    url: str


@valueclass
class Line:
    """One notice as it waits in an endpoint's line; `tries` are those already made."""

    id: int
    type: str
    webhook_id: UUID
    body: bytes
    created_at: int
    tries: int


@valueclass
class Verdict:
    """What a try came to where the row stays: when next, or since when it is given up (UTC ms)."""

    id: int
    due_at: int
    last_status: str
    gave_up_at: int | None


@valueclass
class TenantNotice:
    """Something a tenant is told that is not about one of its messages: `about` is the row it tells of."""

    tenant_id: int
    type: str
    about: UUID
    data: Mapping[str, Any]


@valueclass
class _Notice:
    tenant_id: int
    url: str
    day: Any
    message_id: UUID | None
    seq: int
    type: str
    body: bytes


def event_of(status: str) -> str | None:
    """The event type that tells of a status; None for those that tenants are not told (`canceled`, `queued` ...)."""
    return _STATUS_EVENTS.get(status)


def wants(target: CallbackTarget | None, event: str, *, final: bool) -> bool:
    """Whether a tenant's choice of events holds this one (contract: final ones, inbound and opt-outs by default)."""
    chosen = ("final",) if target is None else target.events
    if "all" in chosen or event in chosen:
        return True
    return "final" in chosen and (event in _FINAL_EVENTS or final)


async def add_events(
    conn: asyncpg.Connection[asyncpg.Record],
    policy: Policy,
    rows: Sequence[tuple[Mapping[str, Any], str]],
    now_at: int,
) -> int:
    """Write one callback per (message row after the change, event type) that its tenant wants; returns how many.

    Belongs into the transaction of the change. Rows hold every `messages` column but may lack `body`; those that name
    their tenant (`tenant`) save a look.
    """
    if not rows or not any(_may_be_told(policy, row) for row, _ in rows):
        return 0
    names = {row["tenant_id"]: row["tenant"] for row, _ in rows if row.get("tenant") is not None}
    unnamed = {row["tenant_id"] for row, _ in rows} - names.keys()
    if unnamed:
        names |= await tenant_names(conn, unnamed)
    notices: list[_Notice] = []
    for row, event in rows:
        target = tenant_rules(policy, names[row["tenant_id"]]).callbacks
        url = (row["extras"] or {}).get("callback_url") or (target.url if target is not None else None)
        if url is None or not wants(target, event, final=row["final_at"] is not None):
            continue
        shown = {"type": event, "timestamp": rfc3339(now_at), "data": message_object(row) | {"seq": row["version"]}}
        notices.append(
            _Notice(row["tenant_id"], url, row["day"], row["id"], row["version"], event, orjson.dumps(shown))
        )
    await _insert(conn, policy, notices, now_at)
    return len(notices)


async def add_notices(
    conn: asyncpg.Connection[asyncpg.Record], policy: Policy, told: Sequence[TenantNotice], now_at: int
) -> int:
    """Write one callback per notice that its tenant wants and has an address for; returns how many.

    Belongs into the transaction of what it tells of. A text is never part of the data: it is put in when it is sent.
    """
    if not told:
        return 0
    names = await tenant_names(conn, {one.tenant_id for one in told})
    notices: list[_Notice] = []
    for one in told:
        target = tenant_rules(policy, names[one.tenant_id]).callbacks
        if target is None or target.url is None or not wants(target, one.type, final=False):
            continue
        body = orjson.dumps({"type": one.type, "timestamp": rfc3339(now_at), "data": dict(one.data)})
        notices.append(_Notice(one.tenant_id, target.url, None, one.about, 1, one.type, body))
    await _insert(conn, policy, notices, now_at)
    return len(notices)


async def tenant_names(conn: asyncpg.Connection[asyncpg.Record], ids: Iterable[int]) -> dict[int, str]:
    """The policy's names of tenants by row id."""
    rows = await conn.fetch("SELECT id, name FROM tenants WHERE id = ANY ($1::int[])", list(ids))
    return {row["id"]: row["name"] for row in rows}


def _may_be_told(policy: Policy, row: Mapping[str, Any]) -> bool:
    if row["extras"] and row["extras"].get("callback_url"):
        return True
    if policy.tenant_defaults.callbacks is not None:
        return True
    return any(tenant.callbacks is not None for tenant in policy.tenants.values())


async def _insert(
    conn: asyncpg.Connection[asyncpg.Record], policy: Policy, notices: Sequence[_Notice], now_at: int
) -> None:
    if not notices:
        return
    endpoints = await _endpoint_ids(conn, {(notice.tenant_id, notice.url) for notice in notices})
    heard = ",".join(map(str, sorted(set(endpoints.values()))))
    await conn.execute(
        _INSERT,
        [endpoints[notice.tenant_id, notice.url] for notice in notices],
        [notice.tenant_id for notice in notices],
        [notice.day for notice in notices],
        [notice.message_id for notice in notices],
        [notice.seq for notice in notices],
        [notice.type for notice in notices],
        [uuid4() for _ in notices],
        [notice.body for notice in notices],
        now_at,
        policy.version,
        CHANNEL,
        heard if len(heard) <= _HEARD_MAX else "",  # no word means everybody; 8,000 octets are the most
    )


async def _endpoint_ids(
    conn: asyncpg.Connection[asyncpg.Record], wanted: set[tuple[int, str]]
) -> dict[tuple[int, str], int]:
    tenants, urls = [tenant for tenant, _ in wanted], [url for _, url in wanted]
    found = await conn.fetch(_ENDPOINT_IDS, tenants, urls)
    idle = sorted(row["id"] for row in found if row["idle_at"] is not None)
    if idle:
        await conn.execute(_IN_USE, idle)
        found = await conn.fetch(_ENDPOINT_IDS, tenants, urls)
    if len(found) < len(wanted):
        await conn.execute(_ENDPOINTS, tenants, urls)
        found = await conn.fetch(_ENDPOINT_IDS, tenants, urls)
    return {(row["tenant_id"], row["url"]): row["id"] for row in found}


async def backlog(conn: asyncpg.Connection[asyncpg.Record]) -> tuple[int, int | None]:
    """How many callbacks are owed, and since when the oldest (UTC ms)."""
    row = await conn.fetchrow(_BACKLOG)
    return (0, None) if row is None else (row["rows"], row["oldest_at"])


async def heads(
    conn: asyncpg.Connection[asyncpg.Record],
    besides: Iterable[int],
    running: Mapping[int, int],
    *,
    now_at: int,
    limit: int,
    among: Iterable[int] | None = None,
) -> list[tuple[Endpoint, int]]:
    """Endpoints that are owed something and are not among `besides`, with when their line is due (UTC ms).

    Those that are due come first, by turns of their tenants: `running` tells how many lines a tenant (row id) has now.
    `among`: look at these endpoints alone.
    """
    asked: list[Any] = [list(besides), limit, now_at, list(running), list(running.values())]
    if among is None:
        rows = await conn.fetch(_ALL_HEADS + _PLACED, *asked)
    else:
        rows = await conn.fetch(_SOME_HEADS + _PLACED, *asked, list(among))
    return [(Endpoint(row["id"], row["tenant_id"], row["tenant"], row["url"]), row["due_at"]) for row in rows]


async def pages(
    conn: asyncpg.Connection[asyncpg.Record],
    sealer: Sealer,
    asked: Sequence[tuple[Endpoint, Iterable[int]]],
    *,
    now_at: int,
    limit: int,
) -> list[list[Line]]:
    """The next due notices of each endpoint, without those already in hand; handsets' texts are put into theirs.

    `asked` names an endpoint once, with what of its line is in hand; at most `limit` notices come for each.
    """
    in_hand = [one for _, ids in asked for one in ids]
    rows = await conn.fetch(_PAGES, [endpoint.id for endpoint, _ in asked], now_at, in_hand, limit)
    texts: dict[UUID, str | None] = {}
    wanted = [(row["message_id"], asked[row["n"] - 1][0].tenant_id) for row in rows if row["type"] == RECEIVED]
    if wanted:
        found = await conn.fetch(_TEXTS, [one for one, _ in wanted], [tenant_id for _, tenant_id in wanted])
        texts = {row["id"]: readable(row, sealer) for row in found}
    lines: list[list[Line]] = [[] for _ in asked]
    for row in rows:
        body = _with_text(row["body"], texts.get(row["message_id"])) if row["type"] == RECEIVED else row["body"]
        line = Line(row["id"], row["type"], row["webhook_id"], body, row["created_at"], row["tries"])
        lines[row["n"] - 1].append(line)
    return lines


def _with_text(body: bytes, text: str | None) -> bytes:
    shown = orjson.loads(body)
    shown["data"]["text"] = text
    return orjson.dumps(shown)


async def remove(conn: asyncpg.Connection[asyncpg.Record], ids: Sequence[int]) -> None:
    """Forget notices that were taken."""
    await conn.execute("DELETE FROM callbacks WHERE id = ANY ($1::bigint[])", sorted(ids))


async def put_back(conn: asyncpg.Connection[asyncpg.Record], verdicts: Sequence[Verdict]) -> None:
    """Write when notices that were not taken are tried again, or that they are given up."""
    ordered = sorted(verdicts, key=lambda verdict: verdict.id)
    await conn.execute(
        _RETRY,
        [verdict.id for verdict in ordered],
        [verdict.due_at for verdict in ordered],
        [verdict.last_status for verdict in ordered],
        [verdict.gave_up_at for verdict in ordered],
    )


def tells_sent(policy: Policy) -> bool:
    """Whether anybody may want to hear of `message.sent` (also final where a dialect registers no receipts)."""
    if any(provider.dialect.register == "none" for provider in policy.providers.values()):
        return True
    targets = [policy.tenant_defaults.callbacks, *(tenant.callbacks for tenant in policy.tenants.values())]
    return any(target is not None and {"all", "message.sent"} & set(target.events) for target in targets)
