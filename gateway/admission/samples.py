"""What a tenant would hear now, by class and route: questions to the scheduler that leave no trace (pure)."""

from __future__ import annotations

from typing import Any, Final

from gateway.admission.flows import FlowFacts, flow_of
from gateway.admission.verdicts import DEFER_SHARE, NOT_OPEN, OWN_KINDS, RETRY_AFTER_MAX_S, shown_name
from gateway.policy.rules.lookup import candidates, tenant_rules
from gateway.policy.rules.snapshot import Policy, Route, Tenant, TrafficClass
from scheduler.core.asks import Ask, Verdict
from scheduler.core.values import valueclass

SAMPLES_MAX: Final = 500
_NOBODY: Final = bytes(8)


@valueclass
class Sample:
    """One class on one route, as one segment to a number of that route; `ways` are the routes that are asked about."""

    traffic: TrafficClass
    route: Route
    ask: Ask
    ways: tuple[Route, ...]
    application: str | None = None


def samples(
    policy: Policy, tenant: str, now_at: int, *, every_way: bool = False, application: str | None = None
) -> list[Sample]:
    """A sample for every class that a tenant may use and every route that it could take, in the policy's order.

    With `every_way` each is asked as a message would be: over all routes that such a number could take. A message of an
    `application` stands behind that one's backlog.
    """
    rules = tenant_rules(policy, tenant)
    found: list[Sample] = []
    for name in sorted(rules.classes, key=list(policy.classes).index):
        traffic = policy.classes[name]
        for route in policy.routes.values():
            if _may_take(rules, traffic, route) and len(found) < SAMPLES_MAX:
                number = _number_on(rules, route) or "+"
                others = candidates(policy, tenant, name, rules.default_sender or "", number) if every_way else ()
                ways = others or (route,)
                asked = _ask(policy, rules, (traffic, number, ways, application), now_at)
                found.append(Sample(traffic, route, asked, ways, application))
    return found


def _may_take(rules: Tenant, traffic: TrafficClass, route: Route) -> bool:
    return (
        (route.classes is None or traffic.name in route.classes)
        and (route.tenants is None or rules.name in route.tenants)
        and (route.senders is None or rules.senders is None or bool(set(route.senders) & set(rules.senders)))
        and _number_on(rules, route) is not None
    )


def _number_on(rules: Tenant, route: Route) -> str | None:
    """A prefix that both the route and the tenant's destinations cover; None where there is none."""
    for prefix in route.prefixes or ("+",):
        if rules.destinations is None:
            return prefix
        for allowed in rules.destinations:
            if prefix.startswith(allowed) or allowed.startswith(prefix):
                return max(prefix, allowed, key=len)
    return None


def _ask(
    policy: Policy, rules: Tenant, how: tuple[TrafficClass, str, tuple[Route, ...], str | None], now_at: int
) -> Ask:
    traffic, number, ways, application = how
    ttl_ms = traffic.ttl_default_ms
    facts = [
        FlowFacts(
            tenant=rules.name,
            class_name=traffic.name,
            application=application,
            sender=rules.default_sender or "",
            recipient=number,
            route=route.name,
            provider=route.provider,
            ttl_ms=ttl_ms,
        )
        for route in ways
    ]
    latest = now_at + int(DEFER_SHARE * ttl_ms) if traffic.when_full == "defer" else 0
    return Ask(
        flows=tuple(flow_of(policy, one) for one in facts),
        segments=1,
        budget_ms=traffic.wait_budget_ms,
        door_limit_ms=int(traffic.door_share * min(traffic.wait_budget_ms, ttl_ms)),
        left_ms=ttl_ms,
        place=_NOBODY,
        probe=True,
        defer_until=latest,
    )


def shown(sample: Sample, verdict: Verdict) -> dict[str, Any]:
    """One row of GET /v1/capacity."""
    told: dict[str, Any] = {
        "class": sample.traffic.name,
        "route": sample.route.name,
        "provider": sample.route.provider,
        "verdict": word(verdict),
        "queue_age_ms": verdict.queue_age_ms,
        "predicted_wait_ms": verdict.predicted_wait_ms,
        "wait_budget_ms": sample.traffic.wait_budget_ms,
        "door_limit_ms": sample.ask.door_limit_ms,
        "scope": None,
        "cause": None,
        "retry_after_s": None,
    }
    if not verdict.accepted and verdict.scope is not None:
        kind, name = verdict.scope
        told["scope"] = {"kind": kind, "name": shown_name(kind, name)}
        told["cause"] = verdict.cause
        told["retry_after_s"] = (
            None if verdict.not_before is not None else min(verdict.retry_after_s, RETRY_AFTER_MAX_S)
        )
    return told


def word(verdict: Verdict) -> str:
    """`accept`, `defer`, `slow_down` where the tenant's own limit binds, else `refuse`."""
    if verdict.accepted:
        return "accept"
    if verdict.not_before is not None:
        return "defer"
    if verdict.cause != NOT_OPEN and verdict.scope is not None and verdict.scope[0] in OWN_KINDS:
        return "slow_down"
    return "refuse"
