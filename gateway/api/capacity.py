"""GET /v1/capacity: what a message of this tenant would hear now, by class and route, and its door rate."""

from __future__ import annotations

from typing import Any

from gateway.admission.problems import STORAGE, Problem
from gateway.admission.samples import samples, shown
from gateway.api.answers import Answer, json_answer, problem_answer
from gateway.api.desk import Desk, TenantRef
from gateway.api.exchange import Exchange
from gateway.policy.rules.lookup import tenant_rules
from gateway.policy.rules.snapshot import Tenant


class Capacity:
    """The handler of one process."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def get(self, _exchange: Exchange, tenant: TenantRef) -> Answer:
        """GET /v1/capacity"""
        desk = self._desk
        policy = desk.policy
        if policy is None or not desk.in_step:
            return problem_answer(STORAGE)
        rules = tenant_rules(policy, tenant.name)
        asked = samples(policy, tenant.name, desk.rt.clock.now_at())
        verdicts = await desk.verdicts([one.ask for one in asked])
        grant = await desk.toll(tenant, rules, 0)  # takes nothing, tells what is left
        if grant is None:
            return problem_answer(STORAGE)
        over = await desk.over_the_cap(tenant, rules, 1)
        if over is STORAGE:
            return problem_answer(STORAGE)
        rows: list[dict[str, Any]] = []
        for one, verdict in zip(asked, verdicts, strict=True):
            if verdict is None:
                return problem_answer(STORAGE)
            rows.append(shown(one, verdict) | ({} if over is None else _of_the_day(rules, over)))
        requests = {
            "rate_per_s": rules.requests.rate_per_s,
            "burst": rules.requests.burst,
            "remaining": max(0, grant.remaining),
        }
        body = {"data": rows, "requests": requests, "policy_version": policy.version}
        return json_answer(200, body, grant.headers())


def _of_the_day(rules: Tenant, over: Problem) -> dict[str, Any]:
    """What a row says while the daily cap is reached, whatever the queue says."""
    scope = {"kind": "tenant", "name": rules.name}
    return {"verdict": "slow_down", "scope": scope, "cause": "daily", "retry_after_s": over.retry_after_s}
