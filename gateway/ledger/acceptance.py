"""The group commit: what arrived while the last commit ran becomes durable in one statement (design sections 1 and 2).

One statement takes the advisory locks of the keys, writes the idempotency rows, the messages of the keys that were won,
their due rows and events, the day's usage and one outbox row. A call is never split; OTP goes first.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import asyncpg
import orjson

from gateway import logs
from gateway.domain import ids
from gateway.domain.ids import show
from gateway.ledger.connect import LEDGER_ERRORS
from gateway.ledger.idempotency import KeyPlace
from gateway.sealing import Sealer, about_message
from scheduler.core.records import Entry, pack_batch

ROWS_MAX: Final = 500
WAITING_ROWS_MAX: Final = 20_000
WRITERS: Final = 2

WON, LOST, BUSY = "won", "lost", "busy"
_REPEATABLE: Final = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_REPEATS_MAX = 3
_ACQUIRE_S = 0.25
# The server gives a statement up first and says so, which is certain; silence beyond that leaves its outcome open.
_STATEMENT_MS, _SILENCE_S = 2_500, 3.5
_BACK_OFF_S = 0.1
_log = logs.get("acceptance")

# The rows come as two JSON documents: binding one array per column costs the client twice the CPU for each row.
KEEP: Final = """
WITH asked AS MATERIALIZED (
    SELECT * FROM json_to_recordset($1::text::json)
           AS c (n int, tenant_id int, endpoint text, key text, token bigint, fingerprint text, answer text,
                 keep_until bigint)
), locked AS MATERIALIZED (
    SELECT * FROM asked WHERE pg_try_advisory_xact_lock(token)
), won AS (
    INSERT INTO idempotency (tenant_id, endpoint, key, fingerprint, answer, created_at, keep_until)
    SELECT tenant_id, endpoint, key, decode(fingerprint, 'hex'), convert_to(answer, 'UTF8'), $3, keep_until
      FROM locked ORDER BY tenant_id, endpoint, key
    ON CONFLICT DO NOTHING
    RETURNING tenant_id, endpoint, key
), winners AS MATERIALIZED (
    SELECT l.n FROM locked l JOIN won w ON w.tenant_id = l.tenant_id AND w.endpoint = l.endpoint AND w.key = l.key
), fresh AS MATERIALIZED (
    SELECT r.* FROM json_to_recordset($2::text::json)
           AS r (n int, day date, id uuid, tenant_id int, class text, status text, recipient text, sender text,
                 body text, body_key_id smallint, encoding text, segments smallint, application text, client_ref text,
                 extras jsonb, route text, provider text, created_at bigint, not_before bigint, submit_by bigint,
                 expires_at bigint, predicted_wait_ms int, policy_version int, due_kind text,
                 due_flow text)
      JOIN winners w ON w.n = r.n
), stored AS (
    INSERT INTO messages (day, id, tenant_id, class, status, recipient, sender, body, body_key_id, encoding, segments,
                          application, client_ref, extras, route, provider, created_at, not_before, submit_by,
                          expires_at, sweep_at, predicted_wait_ms, policy_version)
    SELECT day, id, tenant_id, class, status, recipient, sender, decode(body, 'base64'), body_key_id, encoding,
           segments, application, client_ref, extras, route, provider, created_at, not_before, submit_by, expires_at,
           submit_by, predicted_wait_ms, policy_version
      FROM fresh
), used AS (
    INSERT INTO daily_usage (tenant_id, day, worker, segments)
    SELECT tenant_id, day, $4, sum(segments) FROM fresh GROUP BY tenant_id, day ORDER BY tenant_id, day
    ON CONFLICT (tenant_id, day, worker) DO UPDATE SET segments = daily_usage.segments + excluded.segments
), planned AS (
    INSERT INTO due (day, id, due_at, kind, class, provider, tenant_id, flow, segments)
    SELECT day, id, not_before, due_kind, class, provider, tenant_id, due_flow, segments
      FROM fresh WHERE due_kind IS NOT NULL
), told AS (
    INSERT INTO message_events (day, id, at, type, cause)
    SELECT day, id, $3, 'deferred', due_kind FROM fresh WHERE due_kind IS NOT NULL
), boxed AS (
    INSERT INTO outbox (id, created_at, payload)
    SELECT $5, $3, $6 WHERE $6::bytea IS NOT NULL AND EXISTS (SELECT FROM winners)
)
SELECT l.n, w.n IS NOT NULL AS won FROM locked l LEFT JOIN winners w ON w.n = l.n
"""


class LedgerUnavailable(Exception):
    """The ledger took nothing of this call."""


class CommitUnknown(Exception):
    """The ledger went away under the commit: whether the call was kept is unknown until its key is looked up."""


class LedgerOverloaded(Exception):
    """More waits for the ledger than this process is willing to hold; nothing was kept."""


@dataclass(slots=True)
class Call:
    """One HTTP call to keep: all of it or nothing. `token` names its key among the advisory locks.

    `rows` are new messages as `gateway.admission.rows.new_row` makes them, `entries` what of them is queued at once.
    """

    place: KeyPlace
    token: int
    fingerprint: bytes
    answer: bytes
    keep_until: int
    rows: Sequence[Mapping[str, Any]]
    entries: Sequence[Entry]
    urgent: bool
    done: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Acceptance:
    """The writers of the group commit. They alternate: what waits when one of them is free is its batch."""

    def __init__(
        self,
        pool: asyncpg.Pool[Any],
        worker: str,
        now_at: Callable[[], int],
        make_id: Callable[[], UUID],
        sealer: Sealer,
        on_kept: Callable[[UUID, list[Entry]], None],
    ) -> None:
        """`on_kept` gets the outbox row's id and its entries after each commit that queued something."""
        self._pool = pool
        self._worker = worker
        self._now_at = now_at
        self._make_id = make_id
        self._sealer = sealer
        self._on_kept = on_kept
        self._urgent: deque[Call] = deque()
        self._waiting: deque[Call] = deque()
        self._rows_waiting = 0
        self._arrived = asyncio.Event()
        self._stopping = False

    async def keep(self, call: Call) -> str:
        """`won` once the call is durable; `lost`: the key has an answer already; `busy`: someone else is at it.

        Raises LedgerUnavailable or LedgerOverloaded where nothing was kept, CommitUnknown where that cannot be told.
        """
        if self._rows_waiting + len(call.rows) > WAITING_ROWS_MAX:
            raise LedgerOverloaded
        (self._urgent if call.urgent else self._waiting).append(call)
        self._rows_waiting += len(call.rows)
        self._arrived.set()
        return await call.done

    async def write(self, number: int) -> None:
        """One writer's life; ends after `stop` once nothing waits."""
        # Each writer counts usage in a row of its own, so that none waits for the other.
        label = f"{self._worker}/{number}"
        conn: Any = None
        try:
            while True:
                while not self._rows_waiting:
                    if self._stopping:
                        return
                    self._arrived.clear()
                    await self._arrived.wait()
                if conn is not None and not _is_open(conn):
                    await _give_up(self._pool, conn)
                    conn = None
                if conn is None:
                    conn = await self._connect()
                batch = self._take()
                if conn is None:
                    _fail(batch)
                    await asyncio.sleep(_BACK_OFF_S)
                elif batch and not await self._commit(conn, batch, label):
                    await _give_up(self._pool, conn)
                    conn = None
        finally:
            if conn is not None:
                await _give_up(self._pool, conn, keep=True)

    def stop(self) -> None:
        """Lets the writers end after what waits is written."""
        self._stopping = True
        self._arrived.set()

    async def _connect(self) -> Any:
        try:
            conn = await self._pool.acquire(timeout=_ACQUIRE_S)
        except LEDGER_ERRORS:
            return None
        try:
            await conn.execute(f"SET statement_timeout = {_STATEMENT_MS}", timeout=_SILENCE_S)
        except LEDGER_ERRORS:
            await _give_up(self._pool, conn)
            return None
        return conn

    def _take(self) -> list[Call]:
        batch: list[Call] = []
        rows = 0
        for line in (self._urgent, self._waiting):
            while line and (not batch or rows + len(line[0].rows) <= ROWS_MAX):
                call = line.popleft()
                rows += len(call.rows)
                batch.append(call)
        self._rows_waiting -= rows
        return batch

    async def _commit(self, conn: Any, batch: list[Call], label: str) -> bool:
        """Writes a batch and answers its calls; False where the connection must not be used again."""
        outbox_id = self._make_id()
        arguments = _arguments(batch, self._sealer, label, self._now_at(), outbox_id)
        for repeat in range(_REPEATS_MAX + 1):
            try:
                result = await conn.fetch(KEEP, *arguments, timeout=_SILENCE_S)
            except _REPEATABLE:
                if repeat == _REPEATS_MAX:
                    _fail(batch)
                    return True
            except asyncpg.DataError:
                # Nothing was written. Whose row the server cannot store is its own call's fault, not its neighbours'.
                if len(batch) > 1:
                    return all([await self._commit(conn, [call], label) for call in batch])
                _log.error("row_not_storable", message_id=show(batch[0].rows[0]["id"]))
                _fail(batch)
                return True
            except LEDGER_ERRORS as error:
                undone = _undone(error)
                _log.warning("commit_failed", error=type(error).__name__, calls=len(batch), undone=undone)
                _fail(batch, LedgerUnavailable if undone else CommitUnknown)
                return False
            except BaseException:
                _fail(batch, CommitUnknown)
                raise
            else:
                self._answer(batch, result, outbox_id)
                return True
        return True

    def _answer(self, batch: list[Call], result: Iterable[Any], outbox_id: UUID) -> None:
        won = {row["n"]: row["won"] for row in result}
        entries: list[Entry] = []
        for n, call in enumerate(batch):
            outcome = BUSY if n not in won else WON if won[n] else LOST
            if outcome == WON:
                entries.extend(call.entries)
            if not call.done.done():
                call.done.set_result(outcome)
        if entries:
            self._on_kept(outbox_id, entries)


def _arguments(batch: list[Call], sealer: Sealer, label: str, now_at: int, outbox_id: UUID) -> tuple[Any, ...]:
    calls: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    entries: list[Entry] = []
    for n, call in enumerate(batch):
        calls.append(
            {
                "n": n,
                "tenant_id": call.place.tenant_id,
                "endpoint": call.place.endpoint,
                "key": call.place.key,
                "token": call.token,
                "fingerprint": call.fingerprint.hex(),
                "answer": call.answer.decode("utf-8"),
                "keep_until": call.keep_until,
            }
        )
        rows.extend({**_sealed(row, sealer), "n": n, "day": ids.day_of(row["id"])} for row in call.rows)
        entries.extend(call.entries)
    rows.sort(key=_by_id)
    return (
        orjson.dumps(calls).decode("utf-8"),
        orjson.dumps(rows).decode("utf-8"),
        now_at,
        label,
        outbox_id,
        pack_batch(entries) if entries else None,
    )


def _sealed(row: Mapping[str, Any], sealer: Sealer) -> dict[str, Any]:
    """A row whose text nobody can read without the data key."""
    body = sealer.seal(row["body"].encode("utf-8"), about_message(row["tenant_id"], row["id"]))
    return {**row, "body": b64encode(body).decode("ascii"), "body_key_id": sealer.current}


def _by_id(row: Mapping[str, Any]) -> bytes:
    octets: bytes = row["id"].bytes
    return octets


def _fail(batch: list[Call], error: type[Exception] = LedgerUnavailable) -> None:
    for call in batch:
        if not call.done.done():
            call.done.set_exception(error())


def _undone(error: BaseException) -> bool:
    """Whether the server itself said that the statement came to nothing.

    An ERROR undoes the statement. FATAL and PANIC end the session, and like a lost connection or silence they may come
    after the commit was written (PostgreSQL manual, "Message Severity Levels"). Errors made here have no severity.
    """
    return isinstance(error, asyncpg.PostgresError) and getattr(error, "severity_en", None) == "ERROR"


def _is_open(conn: Any) -> bool:
    # The pool takes a lost connection back by itself; what is left of it says so only by raising.
    try:
        return not conn.is_closed()
    except asyncpg.InterfaceError:
        return False


async def _give_up(pool: asyncpg.Pool[Any], conn: Any, *, keep: bool = False) -> None:
    with suppress(*LEDGER_ERRORS):
        if keep:
            await conn.execute("RESET statement_timeout", timeout=_SILENCE_S)
        else:
            conn.terminate()
    with suppress(*LEDGER_ERRORS):
        await pool.release(conn)
