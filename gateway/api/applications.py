"""The calls on applications: counts by status, pause, resume, cancel all that wait (contract section 2).

Tenant port and operators' port share `Applications.act`; only who asks differs.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final
from uuid import UUID

from gateway.admission.fields import NAME_MAX
from gateway.admission.problems import NOT_FOUND, STORAGE, Problem
from gateway.api.answers import Answer, json_answer, problem_answer
from gateway.api.desk import TenantRef
from gateway.api.exchange import Exchange
from gateway.domain.ids import rfc3339
from gateway.ledger import applications, pauses
from gateway.ledger.connect import LEDGER_ERRORS
from gateway.ledger.pauses import APPLICATION, PAUSE, Place
from gateway.policy.rules.lookup import tenant_rules
from gateway.runtime import Runtime
from scheduler.store.scheduler import IndexUnavailable

ACQUIRE_S: Final = 0.25
ACTIONS: Final = ("pause", "resume", "cancel")
# References of what was canceled are void for as long as a message may live.
_VOID_MS: Final = 3 * 86_400_000
_NO_COUNTS: Final[dict[str, int]] = {}


class Applications:
    """The handlers of one process."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt

    async def page(self, _exchange: Exchange, tenant: TenantRef) -> Answer:
        """GET /v1/applications"""
        try:
            async with self._rt.pool.acquire(timeout=ACQUIRE_S) as conn:
                data = await self.listed(conn, tenant)
        except LEDGER_ERRORS:
            return problem_answer(STORAGE)
        return json_answer(200, {"data": data})

    async def pause(self, exchange: Exchange, tenant: TenantRef) -> Answer:
        """POST /v1/applications/{name}/pause"""
        return await self._act(exchange, tenant, "pause")

    async def resume(self, exchange: Exchange, tenant: TenantRef) -> Answer:
        """POST /v1/applications/{name}/resume"""
        return await self._act(exchange, tenant, "resume")

    async def cancel(self, exchange: Exchange, tenant: TenantRef) -> Answer:
        """POST /v1/applications/{name}/cancel"""
        return await self._act(exchange, tenant, "cancel")

    async def listed(self, conn: Any, tenant: TenantRef) -> list[dict[str, Any]]:
        """Every application of a tenant: those the policy names, those it sent under, those that are paused."""
        found = await applications.counts(conn, tenant.id)
        paused = await pauses.paused_applications(conn, tenant.id)
        policy = self._rt.policies.current
        named = set() if policy is None else set(tenant_rules(policy, tenant.name).applications)
        return [
            _shown(name, found.get(name, _NO_COUNTS), paused.get(name)) for name in sorted({*found, *paused, *named})
        ]

    async def act(self, tenant: TenantRef, name: str, action: str, by: str) -> dict[str, Any] | Problem:
        """Pauses, resumes or cancels an application and tells how it stands then.

        Raises what PostgreSQL's client raises when it is away.
        """
        now_at = self._rt.clock.now_at()
        place = Place(APPLICATION, name, tenant.id, tenant.name)
        async with self._rt.pool.acquire(timeout=ACQUIRE_S) as conn:
            if not await self._is_known(conn, tenant, name):
                return NOT_FOUND
            canceled: int | None = None
            if action == "pause":
                await pauses.set_pause(conn, place, PAUSE, by, now_at)
                # Delivery tells the index too; this way it knows before the call is answered.
                with suppress(IndexUnavailable, TimeoutError):
                    await self._rt.scheduler.pause(place.scope)
            elif action == "resume":
                await pauses.clear_pause(conn, place, by, now_at)
            else:
                canceled = await self._cancel(conn, tenant, name, now_at)
                await applications.note_cancellation(conn, (tenant.name, name), canceled, by, now_at)
            found = await applications.counts(conn, tenant.id, name)
            shown = _shown(
                name, found.get(name, _NO_COUNTS), (await pauses.paused_applications(conn, tenant.id)).get(name)
            )
        return shown if canceled is None else {**shown, "canceled": canceled}

    async def _act(self, exchange: Exchange, tenant: TenantRef, action: str) -> Answer:
        name = exchange.path_parameters["name"]
        if not 1 <= len(name) <= NAME_MAX or "\0" in name:
            return problem_answer(NOT_FOUND)
        try:
            outcome = await self.act(tenant, name, action, f"tenant {tenant.name}")
        except LEDGER_ERRORS:
            return problem_answer(STORAGE)
        return problem_answer(outcome) if isinstance(outcome, Problem) else json_answer(200, outcome)

    async def _cancel(self, conn: Any, tenant: TenantRef, name: str, now_at: int) -> int:
        canceled, after = 0, None
        while True:
            batch = await applications.cancel_waiting(conn, tenant.id, name, now_at, after)
            canceled += len(batch.canceled)
            await self._void(batch.canceled)
            after = batch.after
            if after is None:
                return canceled

    async def _void(self, ids: tuple[UUID, ...]) -> None:
        # Only spares leases: a reference that is leased all the same loses at the claim.
        if ids:
            with suppress(IndexUnavailable, TimeoutError):
                await self._rt.scheduler.tombstone([one.bytes for one in ids], _VOID_MS)

    async def _is_known(self, conn: Any, tenant: TenantRef, name: str) -> bool:
        policy = self._rt.policies.current
        if policy is not None and name in tenant_rules(policy, tenant.name).applications:
            return True
        if await applications.has_messages(conn, tenant.id, name):
            return True
        return name in await pauses.paused_applications(conn, tenant.id)


def _shown(name: str, by_status: dict[str, int], paused_since: int | None) -> dict[str, Any]:
    return {
        "name": name,
        "paused": paused_since is not None,
        "paused_since": None if paused_since is None else rfc3339(paused_since),
        "counts": by_status,
    }
