"""`/v1/opt-outs` and `/v1/opt-ins`: a tenant's stop list and its consent list (contract section 2)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from gateway.admission.fields import FieldFault
from gateway.admission.problems import NOT_FOUND, OVERLOAD, STORAGE, Problem, invalid
from gateway.api.answers import Answer, json_answer, problem_answer
from gateway.api.bodies import BodyRefused, read_object
from gateway.api.desk import TenantRef
from gateway.api.exchange import Exchange
from gateway.api.parameters import number, parameters
from gateway.domain import ids
from gateway.inbound.importer import BATCH, work_batch
from gateway.inbound.lists import ListUnreadable, Taken, read_sender, take
from gateway.ledger import consents
from gateway.ledger.connect import LEDGER_ERRORS
from gateway.policy.rules.lookup import tenant_rules
from gateway.policy.rules.snapshot import Policy
from gateway.runtime import Runtime

ACQUIRE_S: Final = 0.25
IMPORT_PREFIX: Final = "imp_"
OPEN_MAX: Final = 5  # lists of one tenant that are not through
READ_AT_ONCE: Final = 2  # long lists: each takes about a second of a thread
_SHORT: Final = 64 * 1024  # octets; read in a few milliseconds
_TOO_MANY: Final = Problem(
    "quota.imports", "Others of your lists are being worked through.", retry_after_s=5, members={"open_max": OPEN_MAX}
)
_DONE, _RUNNING = "done", "running"


class Reader:
    """Reads the lists that a process is handed: long ones in threads, few at once, one of a tenant."""

    def __init__(self) -> None:
        self._busy: set[int] = set()  # tenants

    async def take(self, tenant: TenantRef, body: bytes) -> Taken | Problem:
        """How many rows a list has, and its first BATCH ones; a problem where it cannot be read, or not now."""
        try:
            if len(body) <= _SHORT:
                return take(body, BATCH)
            if tenant.id in self._busy:
                return _TOO_MANY
            if len(self._busy) >= READ_AT_ONCE:
                return OVERLOAD
            self._busy.add(tenant.id)
            try:
                return await asyncio.to_thread(take, body, BATCH)
            finally:
                self._busy.discard(tenant.id)
        except ListUnreadable as unreadable:
            return Problem("request.malformed", f"The list {unreadable}.")


class OptLists:
    """The handlers of one process for one of the two lists."""

    def __init__(self, rt: Runtime, table: str, reader: Reader) -> None:
        self._rt = rt
        self._table = table
        self._reader = reader

    async def get(self, exchange: Exchange, tenant: TenantRef) -> Answer:
        """GET /v1/opt-outs/{number}"""
        asked = self._asked(exchange, tenant)
        if isinstance(asked, Problem):
            return problem_answer(asked)
        recipient, sender = asked
        try:
            async with self._rt.pool.acquire(timeout=ACQUIRE_S) as conn:
                rows = await consents.find(conn, self._table, tenant.id, recipient)
        except LEDGER_ERRORS:
            return problem_answer(STORAGE)
        rows = [row for row in rows if sender is None or row["sender"] == sender]
        return json_answer(200, _entry(recipient, rows)) if rows else problem_answer(NOT_FOUND)

    async def put(self, exchange: Exchange, tenant: TenantRef) -> Answer:
        """PUT /v1/opt-outs/{number}: safe to repeat, the entry that stands keeps its date."""
        asked = self._asked(exchange, tenant)
        if isinstance(asked, Problem):
            return problem_answer(asked)
        if exchange.body.strip():
            try:
                if read_object(exchange.body):
                    return problem_answer(invalid([FieldFault("", "takes no body: the number stands in the path")]))
            except BodyRefused as refused:
                return problem_answer(refused.problem)
        recipient, sender = asked
        told = (consents.API, self._rt.clock.now_at())
        try:
            async with self._rt.pool.acquire(timeout=ACQUIRE_S) as conn:
                await consents.add(conn, self._table, tenant.id, [(recipient, sender or "")], told)
                rows = await consents.find(conn, self._table, tenant.id, recipient)
        except LEDGER_ERRORS:
            return problem_answer(STORAGE)
        return json_answer(200, _entry(recipient, rows))

    async def delete(self, exchange: Exchange, tenant: TenantRef) -> Answer:
        """DELETE /v1/opt-outs/{number}: every entry of the number, or that of one sender; safe to repeat."""
        asked = self._asked(exchange, tenant)
        if isinstance(asked, Problem):
            return problem_answer(asked)
        try:
            async with self._rt.pool.acquire(timeout=ACQUIRE_S) as conn:
                await consents.remove(conn, self._table, tenant.id, *asked)
        except LEDGER_ERRORS:
            return problem_answer(STORAGE)
        return Answer(204, (), b"")

    async def take_list(self, exchange: Exchange, tenant: TenantRef) -> Answer:
        """POST /v1/opt-outs/import: a short list is done with the answer, a long one in the background."""
        _, faults = parameters(exchange, ())
        policy = self._rt.policies.current
        taken = await self._reader.take(tenant, exchange.body)
        if isinstance(taken, Problem):
            return problem_answer(taken)
        if not taken.head:
            faults.append(FieldFault("", "holds no numbers: one on each line, as CSV"))
        if faults:
            return problem_answer(invalid(faults))
        now_at = self._rt.clock.now_at()
        new = consents.NewImport(
            ids.uuid7(now_at, os.urandom(10)), tenant.id, self._table, exchange.body, taken.rows_total
        )
        try:
            async with self._rt.pool.acquire(timeout=ACQUIRE_S) as conn, conn.transaction():
                if await consents.open_imports(conn, tenant.id) >= OPEN_MAX:
                    return problem_answer(_TOO_MANY)
                await consents.begin_import(conn, new, now_at)
                if taken.rows_total <= BATCH:
                    row = {
                        "id": new.id, "tenant_id": tenant.id, "tenant": tenant.name, "list": self._table,
                        "rows_total": taken.rows_total, "rows_done": 0, "faults_total": 0,
                    }  # fmt: skip
                    await work_batch(conn, policy, row, taken.head, now_at)
                found = await consents.find_import(conn, tenant.id, new.id)
        except LEDGER_ERRORS:
            return problem_answer(STORAGE)
        assert found is not None
        location = f"/v1/imports/{IMPORT_PREFIX}{new.id.hex}".encode("ascii")
        return json_answer(202, _progress(found), ((b"location", location),))

    def _asked(self, exchange: Exchange, tenant: TenantRef) -> tuple[str, str | None] | Problem:
        """The number of the path and the sender of the query, as the lists write them."""
        given, faults = parameters(exchange, {"sender"})
        policy = self._rt.policies.current
        accept_00 = tenant_rules(policy, tenant.name).accept_00_prefix
        recipient = number(exchange.path_parameters["number"], accept_00_prefix=accept_00)
        if recipient is None:
            faults.append(FieldFault("/number", "must be a number in E.164 form: + and 7 to 15 digits"))
        sender = self._sender(policy, tenant, given.get("sender"), faults)
        return invalid(faults) if faults or recipient is None else (recipient, sender)

    @staticmethod
    def _sender(policy: Policy, tenant: TenantRef, written: str | None, faults: list[FieldFault]) -> str | None:
        if not written:
            return None
        found = read_sender(policy, tenant.name, "+" + written[1:] if written.startswith(" ") else written)
        if found is None:
            faults.append(FieldFault("/sender", "cannot be a sender"))
        return found


class Imports:
    """How far lists are."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt

    async def one(self, exchange: Exchange, tenant: TenantRef) -> Answer:
        """GET /v1/imports/{id}"""
        text = exchange.path_parameters["id"]
        try:
            import_id = UUID(hex=text.removeprefix(IMPORT_PREFIX)) if text.startswith(IMPORT_PREFIX) else None
        except ValueError:
            import_id = None
        if import_id is None:
            return problem_answer(NOT_FOUND)
        try:
            async with self._rt.pool.acquire(timeout=ACQUIRE_S) as conn:
                found = await consents.find_import(conn, tenant.id, import_id)
        except LEDGER_ERRORS:
            return problem_answer(STORAGE)
        return problem_answer(NOT_FOUND) if found is None else json_answer(200, _progress(found))


def _entry(recipient: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A number with its entries; the members beside them are those of the oldest one."""
    entries = [
        {
            "sender": row["sender"] or None,
            "source": row["source"],
            "created_at": ids.rfc3339(row["created_at"]),
        }
        for row in rows
    ]
    return {"number": recipient, **entries[0], "entries": entries}


def _progress(row: Mapping[str, Any]) -> dict[str, Any]:
    finished_at = row["finished_at"]
    return {
        "id": IMPORT_PREFIX + row["id"].hex,
        "list": row["list"],
        "status": _RUNNING if finished_at is None else _DONE,
        "rows": row["rows_total"],
        "rows_done": row["rows_done"],
        "added": row["rows_added"],
        "faulty": row["faults_total"],
        "faults": row["faults"],
        "created_at": ids.rfc3339(row["created_at"]),
        "finished_at": None if finished_at is None else ids.rfc3339(finished_at),
    }
