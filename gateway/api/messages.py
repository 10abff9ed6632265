"""The calls on messages (contract section 2): submit, batch, one, list, cancel; from an exchange to an answer."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

from gateway.admission.fields import CLASSES, CLIENT_REF_MAX, FieldFault
from gateway.admission.problems import NOT_FOUND, STORAGE, Problem, invalid
from gateway.api.answers import Answer, json_answer, problem_answer
from gateway.api.desk import TenantRef
from gateway.api.door import Door
from gateway.api.exchange import Exchange
from gateway.api.parameters import Cursors, instant, limit, number, parameters
from gateway.domain import ids, states
from gateway.domain.message import message_object, parts, timeline
from gateway.ledger import cancellation, queries
from gateway.ledger.connect import LEDGER_ERRORS
from gateway.policy.rules.lookup import tenant_rules
from gateway.runtime import Runtime
from scheduler.store.scheduler import IndexUnavailable

ACQUIRE_S: Final = 0.25
_NOT_CANCELABLE: Final = Problem(
    "message.not_cancelable", "It is begun, in doubt or over: a submit may have left, or the message is final."
)


class Messages:
    """The handlers of one process."""

    def __init__(self, rt: Runtime, door: Door) -> None:
        self._rt = rt
        self._door = door
        self._cursors = Cursors(rt.pepper, "cursor")

    async def submit(self, exchange: Exchange, tenant: TenantRef) -> Answer:
        """POST /v1/messages"""
        given, faults = parameters(exchange, {"dry_run"})
        dry_run = given.get("dry_run", "false").lower()
        if dry_run not in ("true", "false", "1", "0"):
            faults.append(FieldFault("/dry_run", "must be true or false"))
        if faults:
            return problem_answer(invalid(faults))
        return await self._door.submit(
            tenant, exchange.body, exchange.header(b"idempotency-key"), dry_run in ("true", "1")
        )

    async def submit_batch(self, exchange: Exchange, tenant: TenantRef) -> Answer:
        """POST /v1/messages/batch"""
        # Above all `dry_run`, which is not for batches: who asks for one must not find a thousand messages sent.
        _, faults = parameters(exchange, set())
        if faults:
            return problem_answer(invalid(faults))
        return await self._door.submit_batch(tenant, exchange.body, exchange.header(b"idempotency-key"))

    async def one(self, exchange: Exchange, tenant: TenantRef) -> Answer:
        """GET /v1/messages/{id}"""
        message_id = ids.read(exchange.path_parameters["id"])
        if message_id is None:
            return problem_answer(NOT_FOUND)
        try:
            async with self._rt.pool.acquire(timeout=ACQUIRE_S) as conn:
                return await self._shown(conn, tenant, message_id)
        except LEDGER_ERRORS:
            return problem_answer(STORAGE)

    async def page(self, exchange: Exchange, tenant: TenantRef) -> Answer:
        """GET /v1/messages"""
        wanted = self._filter(exchange, tenant)
        if isinstance(wanted, Problem):
            return problem_answer(wanted)
        try:
            async with self._rt.pool.acquire(timeout=ACQUIRE_S) as conn:
                rows = await queries.find_page(conn, tenant.id, wanted)
        except LEDGER_ERRORS:
            return problem_answer(STORAGE)
        page, cursor = self._cursors.page(tenant, rows, wanted.limit)
        data = [message_object(row, sending=row["sending"]) for row in page]
        return json_answer(200, {"data": data, "next_cursor": cursor})

    async def cancel(self, exchange: Exchange, tenant: TenantRef) -> Answer:
        """POST /v1/messages/{id}/cancel"""
        message_id = ids.read(exchange.path_parameters["id"])
        if message_id is None:
            return problem_answer(NOT_FOUND)
        now_at = self._rt.clock.now_at()
        try:
            async with self._rt.pool.acquire(timeout=ACQUIRE_S) as conn:
                outcome = await cancellation.cancel(conn, tenant.id, message_id, now_at)
                if outcome is None:
                    return problem_answer(NOT_FOUND)
                if isinstance(outcome, cancellation.NotCancelable):
                    return problem_answer(_NOT_CANCELABLE)
                answer = await self._shown(conn, tenant, message_id)
        except LEDGER_ERRORS:
            return problem_answer(STORAGE)
        # Only spares the scheduler a lease: a reference that is leased all the same loses at the claim.
        with suppress(IndexUnavailable, TimeoutError):
            await self._rt.scheduler.tombstone([message_id.bytes], max(1_000, outcome.expires_at - now_at))
        return answer

    async def _shown(self, conn: Any, tenant: TenantRef, message_id: UUID) -> Answer:
        found = await queries.find(conn, tenant.id, message_id)
        if found is None:
            return problem_answer(NOT_FOUND)
        shown = message_object(found.row, sending=found.row["sending"])
        shown["parts"] = parts(found.row, found.accepted_parts, found.history)
        shown["events"] = timeline(found.row, found.history)
        return json_answer(200, shown)

    def _filter(self, exchange: Exchange, tenant: TenantRef) -> queries.Filter | Problem:
        given, faults = parameters(exchange, _FILTERS)
        values = {name: text for name, text in given.items() if text != ""}
        status, class_name = values.get("status"), values.get("class")
        if status is not None and status not in states.ALL:
            faults.append(FieldFault("/status", f"must be one of {', '.join(sorted(states.ALL))}"))
        if class_name is not None and class_name not in CLASSES:
            faults.append(FieldFault("/class", f"must be one of {', '.join(CLASSES)}"))
        client_ref = values.get("client_ref")
        if client_ref is not None and (len(client_ref) > CLIENT_REF_MAX or "\0" in client_ref):
            faults.append(FieldFault("/client_ref", f"must have 1 to {CLIENT_REF_MAX} characters"))
        before_id = self._cursors.read(tenant, values, faults)
        wanted = queries.Filter(
            status=status,
            class_name=class_name,
            recipient=self._recipient(tenant, values, faults),
            client_ref=client_ref,
            created_after=instant(values, "created_after", faults),
            created_before=instant(values, "created_before", faults),
            before_id=before_id,
            limit=limit(values, faults),
        )
        return invalid(faults) if faults else wanted

    def _recipient(self, tenant: TenantRef, values: Mapping[str, str], faults: list[FieldFault]) -> str | None:
        if "to" not in values:
            return None
        policy = self._rt.policies.current
        accept_00 = policy is not None and tenant_rules(policy, tenant.name).accept_00_prefix
        recipient = number(values["to"], accept_00_prefix=accept_00)
        if recipient is None:
            faults.append(FieldFault("/to", "must be a number in E.164 form"))
        return recipient


_FILTERS: Final = {"status", "class", "to", "client_ref", "created_after", "created_before", "limit", "cursor"}
