"""GET /v1/capacity: what a message of this tenant would hear now, by class and route, and its door rate."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.admission.problems import STORAGE, Problem
from gateway.admission.samples import Sample, samples, shown
from gateway.api.answers import Answer, json_answer, problem_answer
from gateway.api.desk import Desk, TenantRef
from gateway.api.exchange import Exchange
from gateway.policy.rules.lookup import tenant_rules
from gateway.policy.rules.snapshot import Policy, Tenant

# A question over many rows blocks the index for tens of milliseconds: who asks again within this time per row beyond
# the first ones is told the same. A policy of ordinary size is asked about anew each time.
_ROWS_FREE: Final = 50
_FRESH_S_PER_ROW: Final = 0.002
_TENANTS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Told:
    """Rows that were told of a tenant, good until `until_mono` under this policy."""

    policy: Policy
    rows: list[dict[str, Any]]
    until_mono: float


class Capacity:
    """The handler of one process."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._told: dict[int, _Told] = {}
        self._large = asyncio.Lock()  # one large question of this process at a time

    async def get(self, _exchange: Exchange, tenant: TenantRef) -> Answer:
        """GET /v1/capacity"""
        desk = self._desk
        policy = desk.policy
        if policy is None or not desk.in_step:
            return problem_answer(STORAGE)
        rules = tenant_rules(policy, tenant.name)
        rows = await self._rows(tenant, policy)
        grant = await desk.toll(tenant, rules, 0)  # takes nothing, tells what is left
        over = await desk.over_the_cap(tenant, rules, 1)
        if rows is None or grant is None or over is STORAGE:
            return problem_answer(STORAGE)
        if over is not None:
            rows = [row | _of_the_day(rules, over) for row in rows]
        requests = {
            "rate_per_s": rules.requests.rate_per_s,
            "burst": rules.requests.burst,
            "remaining": max(0, grant.remaining),
        }
        body = {"data": rows, "requests": requests, "policy_version": policy.version}
        return json_answer(200, body, grant.headers())

    async def _rows(self, tenant: TenantRef, policy: Policy) -> list[dict[str, Any]] | None:
        """A row per class and route; None while the index does not answer."""
        if (known := self._known(tenant, policy)) is not None:
            return known
        asked = samples(policy, tenant.name, self._desk.rt.clock.now_at())
        if len(asked) <= _ROWS_FREE:
            return await self._ask(asked)
        async with self._large:
            if (known := self._known(tenant, policy)) is not None:  # somebody asked meanwhile
                return known
            rows = await self._ask(asked)
            if rows is not None:
                while len(self._told) >= _TENANTS_MAX:
                    del self._told[next(iter(self._told))]
                fresh_s = (len(rows) - _ROWS_FREE) * _FRESH_S_PER_ROW
                self._told[tenant.id] = _Told(policy, rows, self._desk.rt.clock.now_mono() + fresh_s)
            return rows

    def _known(self, tenant: TenantRef, policy: Policy) -> list[dict[str, Any]] | None:
        told = self._told.get(tenant.id)
        if told is None or told.policy is not policy or self._desk.rt.clock.now_mono() >= told.until_mono:
            return None
        return told.rows

    async def _ask(self, asked: Sequence[Sample]) -> list[dict[str, Any]] | None:
        verdicts = await self._desk.verdicts([one.ask for one in asked])
        rows = [shown(one, verdict) for one, verdict in zip(asked, verdicts, strict=True) if verdict is not None]
        return rows if len(rows) == len(asked) else None


def _of_the_day(rules: Tenant, over: Problem) -> dict[str, Any]:
    """What a row says while the daily cap is reached, whatever the queue says."""
    scope = {"kind": "tenant", "name": rules.name}
    return {"verdict": "slow_down", "scope": scope, "cause": "daily", "retry_after_s": over.retry_after_s}
