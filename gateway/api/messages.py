"""The calls on messages (contract section 2): submit, batch, one, list, cancel; from an exchange to an answer."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, Final
from urllib.parse import parse_qsl
from uuid import UUID

from gateway.admission import instants, numbering
from gateway.admission.fields import CLASSES, CLIENT_REF_MAX, FieldFault, pointer_part
from gateway.admission.problems import NOT_FOUND, STORAGE, Problem, invalid
from gateway.api.answers import Answer, json_answer, problem_answer
from gateway.api.desk import TenantRef
from gateway.api.door import Door
from gateway.api.exchange import Exchange
from gateway.domain import ids, states
from gateway.domain.message import message_object, parts, timeline
from gateway.ledger import cancellation, queries
from gateway.ledger.connect import LEDGER_ERRORS
from gateway.policy.rules.lookup import tenant_rules
from gateway.runtime import Runtime
from scheduler.store.scheduler import IndexUnavailable

LIMIT_DEFAULT, LIMIT_MAX = 50, 200
ACQUIRE_S: Final = 0.25
_CURSOR_MAC: Final = 12
_NOT_CANCELABLE: Final = Problem(
    "message.not_cancelable", "It is begun, in doubt or over: a submit may have left, or the message is final."
)


class Messages:
    """The handlers of one process."""

    def __init__(self, rt: Runtime, door: Door) -> None:
        self._rt = rt
        self._door = door

    async def submit(self, exchange: Exchange, tenant: TenantRef) -> Answer:
        """POST /v1/messages"""
        parameters, faults = _parameters(exchange, {"dry_run"})
        dry_run = parameters.get("dry_run", "false").lower()
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
        _, faults = _parameters(exchange, set())
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
        page = rows[: wanted.limit]
        cursor = self._cursor(tenant, page[-1]["id"]) if len(rows) > wanted.limit else None
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
        parameters, faults = _parameters(exchange, _FILTERS)
        values = {name: text for name, text in parameters.items() if text != ""}
        status, class_name = values.get("status"), values.get("class")
        if status is not None and status not in states.ALL:
            faults.append(FieldFault("/status", f"must be one of {', '.join(sorted(states.ALL))}"))
        if class_name is not None and class_name not in CLASSES:
            faults.append(FieldFault("/class", f"must be one of {', '.join(CLASSES)}"))
        client_ref = values.get("client_ref")
        if client_ref is not None and (len(client_ref) > CLIENT_REF_MAX or "\0" in client_ref):
            faults.append(FieldFault("/client_ref", f"must have 1 to {CLIENT_REF_MAX} characters"))
        before_id = self._read_cursor(tenant, values["cursor"]) if "cursor" in values else None
        if "cursor" in values and before_id is None:
            faults.append(FieldFault("/cursor", "is not a cursor of this list"))
        wanted = queries.Filter(
            status=status,
            class_name=class_name,
            recipient=self._recipient(tenant, values, faults),
            client_ref=client_ref,
            created_after=_instant(values, "created_after", faults),
            created_before=_instant(values, "created_before", faults),
            before_id=before_id,
            limit=_limit(values, faults),
        )
        return invalid(faults) if faults else wanted

    def _recipient(self, tenant: TenantRef, values: Mapping[str, str], faults: list[FieldFault]) -> str | None:
        if "to" not in values:
            return None
        policy = self._rt.policies.current
        accept_00 = policy is not None and tenant_rules(policy, tenant.name).accept_00_prefix
        # A plus sign that was not escaped in the query string arrives as a blank.
        text = "+" + values["to"][1:] if values["to"].startswith(" ") else values["to"]
        number = numbering.normalise(text[:64], accept_00_prefix=accept_00)
        if number is None:
            faults.append(FieldFault("/to", "must be a number in E.164 form"))
        return number

    def _cursor(self, tenant: TenantRef, last_id: UUID) -> str:
        return urlsafe_b64encode(last_id.bytes + self._cursor_mac(tenant, last_id.bytes)).decode("ascii").rstrip("=")

    def _read_cursor(self, tenant: TenantRef, cursor: str) -> UUID | None:
        try:
            octets = urlsafe_b64decode(cursor[:64].encode("ascii") + b"=" * (-len(cursor) % 4))
        except ValueError:
            return None
        last, mac = octets[:16], octets[16:]
        if len(octets) != 16 + _CURSOR_MAC or not compare_digest(mac, self._cursor_mac(tenant, last)):
            return None
        return UUID(bytes=last)

    def _cursor_mac(self, tenant: TenantRef, last: bytes) -> bytes:
        # Bound to the tenant: a cursor of one is nothing to another.
        content = b"cursor" + tenant.id.to_bytes(8, "big") + last
        return blake2b(content, digest_size=_CURSOR_MAC, key=self._rt.pepper[:64]).digest()


_FILTERS: Final = {"status", "class", "to", "client_ref", "created_after", "created_before", "limit", "cursor"}


def _parameters(exchange: Exchange, known: set[str]) -> tuple[dict[str, str], list[FieldFault]]:
    """The query's parameters by name, and what is wrong with their names; the pointer is the name."""
    faults: list[FieldFault] = []
    found: dict[str, str] = {}
    query: bytes = exchange.scope.get("query_string", b"")
    if not query:
        return found, faults
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=50)
    except ValueError:
        return found, [FieldFault("", "the query string cannot be read")]
    for name, value in pairs:
        if name not in known:
            faults.append(FieldFault(f"/{pointer_part(name)}", "is not a parameter of this call"))
        elif name in found:
            faults.append(FieldFault(f"/{name}", "stands twice"))
        found[name] = value
    return found, faults


def _instant(values: Mapping[str, str], name: str, faults: list[FieldFault]) -> int | None:
    if name not in values:
        return None
    # The plus sign of a zone that was not escaped arrives as a blank.
    at = instants.read(values[name][:64]) or instants.read("+".join(values[name][:64].rsplit(" ", 1)))
    if at is None:
        faults.append(FieldFault(f"/{name}", "must be an instant in RFC 3339 form with a zone"))
    return at


def _limit(values: Mapping[str, str], faults: list[FieldFault]) -> int:
    text = values.get("limit", str(LIMIT_DEFAULT))
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= LIMIT_MAX):
        faults.append(FieldFault("/limit", f"must be a whole number from 1 to {LIMIT_MAX}"))
        return LIMIT_DEFAULT
    return int(text)
