"""Tenants: what each uses of its limits, and why what was refused was refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from starlette.responses import Response
from starlette.routing import Route

from gateway import figures
from gateway.api.applications import ACTIONS, Applications
from gateway.api.desk import TenantRef
from gateway.console.history import History
from gateway.console.visit import Handler, Site, Visit, act, page, refused
from gateway.ledger import daily_use
from gateway.policy.rules.lookup import tenant_rules
from gateway.policy.rules.snapshot import Policy
from scheduler.core.asks import IndexReport
from scheduler.store.scheduler import IndexUnavailable

SHOWN_MAX: Final = 200
_OVER_S: Final = 60
_DID: Final = {"pause": "is paused: what is accepted waits", "resume": "goes on", "cancel": "waits no more"}


def routes(site: Site) -> list[Route]:
    """The list with a tenant's page behind each, and the buttons of its applications."""
    forms = [
        act(site, f"/console/tenants/{{tenant}}/applications/{{name:path}}/{action}", _acted(action))
        for action in ACTIONS
    ]
    return [page(site, "/console/tenants", _tenants), *forms]


async def _tenants(visit: Visit) -> Response:
    rt = visit.desk.rt
    only = visit.query("name")
    try:
        index: IndexReport | None = await rt.scheduler.report()
    except IndexUnavailable:
        index = None
    today = datetime.fromtimestamp(rt.clock.now_at() / 1000, UTC).date()
    async with rt.pool.acquire() as conn:
        accounts = await daily_use.of_day(conn, today, SHOWN_MAX + 1, only)
        applications = None
        if only and accounts:
            ref = TenantRef(accounts[0]["id"], accounts[0]["name"])
            applications = await Applications(rt).listed(conn, ref)
    policy = rt.policies.current
    shown = [shown_tenant(dict(row), policy, visit.desk.history, index) for row in accounts[:SHOWN_MAX]]
    shown.sort(key=lambda one: (-one["asked_per_s"], -one["waiting"], one["name"]))
    return visit.show(
        "tenants.html",
        tenants=shown,
        only=only,
        applications=applications,
        more=len(accounts) > SHOWN_MAX,
        status={
            "at": datetime.fromtimestamp(rt.clock.now_at() / 1000, UTC).isoformat(),
            "policy_version": policy.version,
        },
    )


def shown_tenant(
    account: dict[str, Any], policy: Policy, history: History, index: IndexReport | None
) -> dict[str, Any]:
    """A tenant against its limits: rates are means of a minute, refusals those of a quarter of an hour."""
    name = account["name"]
    rules = tenant_rules(policy, name)

    def rate(what: str) -> float:
        return history.rate_per_s(f"{what}/{name}", _OVER_S) or 0.0

    asked = rate(figures.TENANT_MESSAGES) + rate(figures.TENANT_REFUSED)
    scope = index.scopes.get(("tenant", name)) if index is not None else None
    reasons = sorted(history.total(f"{figures.TENANT_REFUSED}/{name}").items(), key=lambda item: -item[1])
    cap = rules.daily_segments
    return {
        "name": name,
        "in_policy": name in policy.tenants,
        "classes": sorted(rules.classes),
        "weight": rules.weight,
        "asked_per_s": asked,
        "requests": rules.requests,
        "door_used": min(1.0, asked / rules.requests.rate_per_s),
        "segments_per_s": rate(figures.TENANT_SEGMENTS),
        "limits": rules.limits,
        "pace_used": None
        if rules.limits is None
        else min(1.0, rate(figures.TENANT_SEGMENTS) / rules.limits.rate_per_s),
        "waiting": index.tenants.get(name, 0) if index is not None else 0,
        "held_ms": scope.held_ms if scope is not None else None,
        "day": account["segments"],
        "cap": cap,
        "day_used": None if not cap else min(1.0, account["segments"] / cap),
        "reasons": reasons,
        "refused": sum(count for _, count in reasons),
    }


def _acted(action: str) -> Handler:
    async def answer(visit: Visit) -> Response:
        rt, (tenant, name) = visit.desk.rt, (visit.request.path_params[one] for one in ("tenant", "name"))
        tenant_id = await rt.pool.fetchval("SELECT id FROM tenants WHERE name = $1", tenant)
        outcome = None
        if tenant_id is not None:
            outcome = await Applications(rt).act(TenantRef(tenant_id, tenant), name, action, visit.actor)
        if not isinstance(outcome, dict):
            return refused(visit.site, visit.request, 404, "There is no such application", "Nothing was done.")
        canceled = f" ({outcome['canceled']} canceled)" if "canceled" in outcome else ""
        target = f"/console/tenants?name={tenant}"
        return visit.done(target, f"Application {name} of {tenant} {_DID[action]}{canceled}.")

    return answer
