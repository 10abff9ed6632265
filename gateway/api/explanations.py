"""GET /v1/messages/{id}/explain: why a message waits now, or why it ended; for tenants and operators."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from uuid import UUID

from gateway.admission.flows import entry_of
from gateway.admission.problems import NOT_FOUND, STORAGE
from gateway.api.answers import Answer, json_answer, problem_answer
from gateway.api.desk import TenantRef
from gateway.api.exchange import Exchange
from gateway.domain import ids, states
from gateway.domain.explanation import explain
from gateway.ledger import standing
from gateway.ledger.connect import LEDGER_ERRORS
from gateway.ledger.standing import Standing
from gateway.runtime import Runtime
from scheduler.core.asks import ExplainAsk, Explanation
from scheduler.store.scheduler import IndexUnavailable

ACQUIRE_S: Final = 0.25
_INDEX_S: Final = 1.0


class Explanations:
    """The handlers of one process."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt

    async def one(self, exchange: Exchange, tenant: TenantRef) -> Answer:
        """GET /v1/messages/{id}/explain"""
        message_id = ids.read(exchange.path_parameters["id"])
        try:
            told = None if message_id is None else await self.told(tenant.id, message_id)
        except LEDGER_ERRORS:
            return problem_answer(STORAGE)
        return problem_answer(NOT_FOUND) if told is None else json_answer(200, told)

    async def told(self, tenant_id: int | None, message_id: UUID) -> dict[str, Any] | None:
        """The explanation of a message (`tenant_id` None: any tenant's); None where there is none.

        Raises what PostgreSQL's client raises when it is away. Without the index it says that it is being rebuilt.
        """
        async with self._rt.pool.acquire(timeout=ACQUIRE_S) as conn:
            found = await standing.find(conn, tenant_id, message_id)
        if found is None:
            return None
        return explain(found.row, found.wait, await self._asked(found), self._rt.clock.now_at())

    async def _asked(self, found: Standing) -> Explanation | None:
        row, wait = found.row, found.wait
        elsewhere = wait.due_at is not None or wait.held_kind is not None or wait.claimed_at is not None
        policy = self._rt.policies.current
        if row["status"] != states.QUEUED or elsewhere or policy is None:
            return None
        entry = entry_of(policy, self._rt.pepper, found.tenant, row)
        try:
            async with asyncio.timeout(_INDEX_S):
                return await self._rt.scheduler.explain(ExplainAsk(entry.flow, entry.reference, entry.retry))
        except (IndexUnavailable, TimeoutError):
            return None
