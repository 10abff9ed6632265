"""Everything that the ledger holds about one number: shown to its owner, and removed when they ask (GDPR 15 and 17).

There is no index by recipient: both are rare and may read whole partitions. What is not over keeps the number until it
is: messages that are open, parts of texts that wait for their siblings, callbacks that the tenant has not taken. Then
the retention sweep removes it. Stop lists stay: they are why nobody writes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import asyncpg
import orjson

from gateway.domain.ids import rfc3339
from gateway.domain.message import message_object
from gateway.ledger.inbound import readable, shown
from gateway.ledger.message_rows import LOCK_MESSAGES, MESSAGE_COLUMNS
from gateway.ledger.retention import hashed
from gateway.sealing import SealBroken, Sealer, about_message
from scheduler.core.values import valueclass

LIMIT: Final = 10_000
_S: Final = 120.0
_MESSAGES = f"""
SELECT {MESSAGE_COLUMNS}, m.body, t.name AS tenant_name FROM messages m JOIN tenants t ON t.id = m.tenant_id
 WHERE m.recipient = ANY ($1::text[]) ORDER BY m.id LIMIT $2
"""  # noqa: S608 - constant text only
_INBOUND = """
SELECT i.*, t.name AS tenant_name FROM inbound i LEFT JOIN tenants t ON t.id = i.tenant_id
 WHERE i.sender = ANY ($1::text[]) ORDER BY i.id LIMIT $2
"""
_LISTS = """
SELECT 'opt_outs' AS list, t.name AS tenant, l.sender, l.source, l.created_at
  FROM opt_outs l JOIN tenants t ON t.id = l.tenant_id WHERE l.recipient = $1
UNION ALL
SELECT 'opt_ins', t.name, l.sender, l.source, l.created_at
  FROM opt_ins l JOIN tenants t ON t.id = l.tenant_id WHERE l.recipient = $1
"""
_REQUEST = """
INSERT INTO erasures (number, requested_at, requested_by, next_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (number) DO UPDATE SET next_at = excluded.next_at
"""
_DUE = "SELECT * FROM erasures WHERE next_at <= $1 ORDER BY next_at LIMIT 1 FOR UPDATE SKIP LOCKED"
_LOOK_AGAIN_MS: Final = 60_000
_LOOK_AGAIN_MOST_MS: Final = 6 * 3_600_000  # a look may read whole partitions
# Under the number, or under its mark with notes of the tenant's own that may name the person: age takes the number only
_ENDED = """
SELECT day, id FROM messages
 WHERE final_at IS NOT NULL
   AND (recipient = $1 OR recipient = $2 AND (body IS NOT NULL OR client_ref IS NOT NULL OR extras ? 'metadata'))
 ORDER BY day, id
"""
_HASH = """
UPDATE messages m SET recipient = $3, body = NULL, client_ref = NULL, extras = nullif(m.extras - 'metadata', '{}')
  FROM unnest($1::date[], $2::uuid[]) AS w (day, id) WHERE m.day = w.day AND m.id = w.id
"""
# Messages and texts of handsets that bear the mark: what was told of them bears the number.
_KNOWN_AS = """
SELECT id FROM messages WHERE recipient = $1 UNION ALL SELECT id FROM inbound WHERE sender = $1
"""
_OPEN = "SELECT count(*) FROM messages WHERE recipient = $1 AND final_at IS NULL"
# The carrier's id stays with the message: a late receipt then finds it, and is not looked for until it is too old.
_FORGET_IDS = "UPDATE carrier_ids SET recipient = '' WHERE id = ANY ($1::uuid[])"
_FORGET_UNNAMED = "DELETE FROM unnamed_submits WHERE id = ANY ($1::uuid[])"
# However the carrier wrote the number.
_FORGET_RECEIPTS = "DELETE FROM receipts WHERE message_id = ANY ($1::uuid[]) AND merged_at IS NOT NULL"
_FORGET_MERGED = "DELETE FROM receipts WHERE recipient = $1 AND merged_at IS NOT NULL"
_FORGET_STRAYS = "DELETE FROM receipts WHERE recipient = $1"
_FORGET_NOTICES = "DELETE FROM callbacks WHERE message_id = ANY ($1::uuid[]) AND gave_up_at IS NOT NULL"
_OWED = "SELECT count(*) FROM callbacks WHERE message_id = ANY ($1::uuid[])"
_FORGET_INBOUND = "UPDATE inbound SET sender = $2, body = NULL WHERE sender = $1"
_FORGET_PARTS = "DELETE FROM inbound_parts WHERE sender = ANY ($1::text[]) AND done_at IS NOT NULL"
_UNREAD = "SELECT count(*) FROM inbound_parts WHERE sender = ANY ($1::text[])"
_FORGET_CONSENT = "DELETE FROM opt_ins WHERE recipient = $1"
_ANSWERS = """
SELECT tenant_id, endpoint, key, answer FROM idempotency
 WHERE position(convert_to(to_json($1::text)::text, 'UTF8') IN answer) > 0
 ORDER BY tenant_id, endpoint, key FOR UPDATE
"""
_PUT_ANSWERS = """
UPDATE idempotency i SET answer = w.answer
  FROM unnest($1::int[], $2::text[], $3::text[], $4::bytea[]) AS w (tenant_id, endpoint, key, answer)
 WHERE i.tenant_id = w.tenant_id AND i.endpoint = w.endpoint AND i.key = w.key
"""


@valueclass
class Erased:
    """What a request came to. What is `open` (messages, parts of texts) or `owed` (callbacks) is not over yet and
    follows when it is.
    """

    messages: int
    inbound: int
    open: int
    owed: int


async def export(conn: asyncpg.Connection[Any], sealer: Sealer, pepper: bytes, number: str) -> dict[str, Any]:
    """All that is kept about a number (`+digits`), as JSON; texts as far as they are kept and can be opened here."""
    known_as = [number, hashed(pepper, number)]
    messages = await conn.fetch(_MESSAGES, known_as, LIMIT + 1, timeout=_S)
    inbound = await conn.fetch(_INBOUND, [*known_as, number.removeprefix("+")], LIMIT + 1, timeout=_S)
    lists = await conn.fetch(_LISTS, number)
    return {
        "number": number,
        "messages": [_message(row, sealer) for row in messages[:LIMIT]],
        "inbound": [{"tenant": row["tenant_name"], **shown(row, readable(row, sealer))} for row in inbound[:LIMIT]],
        "lists": [{**row, "created_at": rfc3339(row["created_at"])} for row in lists],
        "complete": len(messages) <= LIMIT and len(inbound) <= LIMIT,
    }


def _message(row: Mapping[str, Any], sealer: Sealer) -> dict[str, Any]:
    text = None
    if row["body"] is not None:
        about = about_message(row["tenant_id"], row["id"])
        with suppress(SealBroken):  # another process may have the key: the rest is told all the same
            text = sealer.open(row["body_key_id"], bytes(row["body"]), about).decode()
    return {"tenant": row["tenant_name"], "text": text, **message_object(row)}


async def erase(conn: asyncpg.Connection[Any], pepper: bytes, number: str, by: str, now_at: int) -> Erased:
    """Removes a number, its texts and what tenants noted beside them (`client_ref`, `metadata`), wherever nothing
    depends on them any more; belongs into a transaction.
    """
    mark, digits = hashed(pepper, number), number.removeprefix("+")
    gone = await _hash_messages(conn, number, mark)
    for statement in (_FORGET_IDS, _FORGET_UNNAMED, _FORGET_RECEIPTS):
        await conn.execute(statement, gone, timeout=_S)
    inbound = await conn.execute(_FORGET_INBOUND, number, mark, timeout=_S)
    known = [row["id"] for row in await conn.fetch(_KNOWN_AS, mark, timeout=_S)]
    await conn.execute(_FORGET_NOTICES, known, timeout=_S)
    await conn.execute(_FORGET_PARTS, [number, digits], timeout=_S)
    await conn.execute(_FORGET_CONSENT, number)
    await _forget_answers(conn, number, mark)
    open_messages = int(await conn.fetchval(_OPEN, number, timeout=_S))
    # Where no message waits for a receipt, one that was not matched by now never tells anybody anything.
    await conn.execute(_FORGET_MERGED if open_messages else _FORGET_STRAYS, digits, timeout=_S)
    still_open = open_messages + int(await conn.fetchval(_UNREAD, [number, digits], timeout=_S))
    owed = int(await conn.fetchval(_OWED, known, timeout=_S))
    if still_open or owed:
        await conn.execute(_REQUEST, number, now_at, by, now_at + _LOOK_AGAIN_MS)
    else:
        await conn.execute("DELETE FROM erasures WHERE number = $1", number)
    return Erased(len(gone), int(inbound.rpartition(" ")[2]), still_open, owed)


async def _hash_messages(conn: asyncpg.Connection[Any], number: str, mark: str) -> list[UUID]:
    """Takes number, text and the tenant's notes from what has ended; the rows are locked in key order, as everybody
    locks them.
    """
    keys = await conn.fetch(_ENDED, number, mark, timeout=_S)
    if not keys:
        return []
    locked = await conn.fetch(LOCK_MESSAGES, [row["day"] for row in keys], [row["id"] for row in keys], timeout=_S)
    rows = [row for row in locked if row["recipient"] in (number, mark) and row["final_at"] is not None]
    await conn.execute(_HASH, [row["day"] for row in rows], [row["id"] for row in rows], mark, timeout=_S)
    return [row["id"] for row in rows]


async def _forget_answers(conn: asyncpg.Connection[Any], number: str, mark: str) -> None:
    """First answers that are kept under idempotency keys: a message, or the results of a batch."""
    rows = await conn.fetch(_ANSWERS, number, timeout=_S)
    if rows:
        names = ("tenant_id", "endpoint", "key")
        answers = [_without(bytes(row["answer"]), number, mark) for row in rows]
        await conn.execute(_PUT_ANSWERS, *([row[name] for row in rows] for name in names), answers, timeout=_S)


def _without(answer: bytes, number: str, mark: str) -> bytes:
    told = orjson.loads(answer)
    for one in (told, *(item.get("message") or {} for item in told.get("results", ()))):
        if one.get("to") == number:
            one.update(to=mark, client_ref=None, metadata={})
    return orjson.dumps(told).replace(orjson.dumps(number), orjson.dumps(mark))


async def work(conn: asyncpg.Connection[Any], pepper: bytes, now_at: int) -> None:
    """Goes on with one request that waited for what was not over, if one is due; belongs into a transaction.

    The longer it waits the less often it is looked at.
    """
    row = await conn.fetchrow(_DUE, now_at)
    if row is None:
        return
    done = await erase(conn, pepper, row["number"], row["requested_by"], now_at)
    if done.open or done.owed:
        wait_ms = min(max(_LOOK_AGAIN_MS, (now_at - row["requested_at"]) // 4), _LOOK_AGAIN_MOST_MS)
        await conn.execute("UPDATE erasures SET next_at = $2 WHERE number = $1", row["number"], now_at + wait_ms)


async def note(conn: asyncpg.Connection[Any], pepper: bytes, number: str, action: str, actor: str, now_at: int) -> None:
    """The audit's row of an export or a removal: it names the number by its mark alone."""
    await conn.execute(
        "INSERT INTO audit (at, actor, action, detail) VALUES ($1, $2, $3, $4)",
        now_at, actor, action, {"number": hashed(pepper, number)},
    )  # fmt: skip
