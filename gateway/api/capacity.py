"""GET /v1/capacity: what a message of this tenant would hear now, by class and route, and its door rate."""

from __future__ import annotations

from typing import Any

from gateway.admission.problems import STORAGE
from gateway.admission.samples import samples, shown
from gateway.api.answers import Answer, json_answer, problem_answer
from gateway.api.desk import Desk, TenantRef
from gateway.api.exchange import Exchange
from gateway.policy.rules.lookup import tenant_rules


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
        rows: list[dict[str, Any]] = []
        for one, verdict in zip(asked, verdicts, strict=True):
            if verdict is None:
                return problem_answer(STORAGE)
            rows.append(shown(one, verdict))
        requests = {
            "rate_per_s": rules.requests.rate_per_s,
            "burst": rules.requests.burst,
            "remaining": max(0, grant.remaining),
        }
        body = {"data": rows, "requests": requests, "policy_version": policy.version}
        return json_answer(200, body, grant.headers())
