"""`GET /v1/inbound`: what handsets wrote to the tenant's numbers (contract section 2)."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from gateway.admission.fields import FieldFault
from gateway.admission.problems import NOT_FOUND, STORAGE, Problem, invalid
from gateway.api.answers import Answer, json_answer, problem_answer
from gateway.api.desk import TenantRef
from gateway.api.exchange import Exchange
from gateway.api.parameters import Cursors, instant, limit, number, parameters
from gateway.domain.keywords import digits_of, own_number
from gateway.ledger import inbound
from gateway.ledger.connect import LEDGER_ERRORS
from gateway.runtime import Runtime

ACQUIRE_S: Final = 0.25
_FILTERS: Final = frozenset({"from", "to", "received_after", "received_before", "limit", "cursor"})


class Inbox:
    """The handlers of one process."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._cursors = Cursors(rt.pepper, "inbound")

    async def page(self, exchange: Exchange, tenant: TenantRef) -> Answer:
        """GET /v1/inbound"""
        wanted = self._filter(exchange, tenant)
        if isinstance(wanted, Problem):
            return problem_answer(wanted)
        try:
            async with self._rt.pool.acquire(timeout=ACQUIRE_S) as conn:
                rows = await inbound.find_page(conn, tenant.id, wanted)
        except LEDGER_ERRORS:
            return problem_answer(STORAGE)
        page, cursor = self._cursors.page(tenant, rows, wanted.limit)
        data = [inbound.shown(row, inbound.readable(row, self._rt.sealer)) for row in page]
        return json_answer(200, {"data": data, "next_cursor": cursor})

    async def one(self, exchange: Exchange, tenant: TenantRef) -> Answer:
        """GET /v1/inbound/{id}"""
        message_id = _read_id(exchange.path_parameters["id"])
        if message_id is None:
            return problem_answer(NOT_FOUND)
        try:
            async with self._rt.pool.acquire(timeout=ACQUIRE_S) as conn:
                row = await inbound.find(conn, tenant.id, message_id)
        except LEDGER_ERRORS:
            return problem_answer(STORAGE)
        if row is None:
            return problem_answer(NOT_FOUND)
        return json_answer(200, inbound.shown(row, inbound.readable(row, self._rt.sealer)))

    def _filter(self, exchange: Exchange, tenant: TenantRef) -> inbound.Filter | Problem:
        given, faults = parameters(exchange, _FILTERS)
        values = {name: text for name, text in given.items() if text != ""}
        wanted = inbound.Filter(
            sender=_sender(values.get("from"), faults),
            recipient=self._recipient(tenant, values.get("to")),
            received_after=instant(values, "received_after", faults),
            received_before=instant(values, "received_before", faults),
            before_id=self._cursors.read(tenant, values, faults),
            limit=limit(values, faults),
        )
        return invalid(faults) if faults else wanted

    def _recipient(self, tenant: TenantRef, written: str | None) -> str | None:
        """One of the tenant's numbers as the policy writes it; another one is looked for as it stands."""
        if written is None:
            return None
        found = own_number(self._rt.policies.current, tenant.name, written)
        return found or written[:64].replace("\0", "")


def _sender(written: str | None, faults: list[FieldFault]) -> str | None:
    """A handset's number in E.164 form, or another address as it came."""
    if written is None:
        return None
    found = number(written, accept_00_prefix=False)
    if found is not None:
        return found
    if "\0" in written or len(written) > 64 or (written.startswith("+") and digits_of(written) != written[1:]):
        faults.append(FieldFault("/from", "must be a number in E.164 form or another sender"))
    return written


def _read_id(text: str) -> UUID | None:
    digits = text.removeprefix(inbound.PREFIX)
    if len(text) - len(digits) != len(inbound.PREFIX) or len(digits) != 32 or not digits.isascii():
        return None
    try:
        found = UUID(hex=digits)
    except ValueError:
        return None
    return found if found.hex == digits else None
