"""The part of a policy that the index works by: class weights, tenant weights, and a limit per scope."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.policy.rules.lookup import tenant_rules
from gateway.policy.rules.snapshot import Limit, Policy, Tenant
from scheduler.core.tuning import ClassTuning, ProviderTuning, Tuning


def tuning_of(policy: Policy, tenants: Iterable[str] = ()) -> Tuning:
    """The index's tuning; `tenants` are accounts that the policy does not name: they get the defaults.

    The defaults also stand under the empty name (`tenant:`), for accounts that nobody has named yet.
    """
    listed = dict.fromkeys((*policy.tenants, *sorted(set(tenants) - set(policy.tenants))))
    rules = [tenant_rules(policy, name) for name in listed]
    limited = (policy.tenant_defaults, *rules)
    limits = {scope: limit for one in limited for scope, limit in _tenant_limits(one)}
    limits.update(_shared_limits(policy))
    return Tuning(
        policy_version=policy.version,
        classes={
            name: ClassTuning(
                weight=one.weight, quantum=one.quantum, wait_budget_ms=one.wait_budget_ms, door_share=one.door_share
            )
            for name, one in policy.classes.items()
        },
        tenant_weights={one.name: float(one.weight) for one in rules},
        default_weight=float(policy.tenant_defaults.weight),
        limits={scope: (limit.rate_per_s, limit.burst) for scope, limit in limits.items()},
        retry_share=policy.retries.share,
        providers={
            name: ProviderTuning(
                errors=one.breaker.errors,
                of=one.breaker.of,
                within_ms=one.breaker.within_ms,
                probe_after_ms=one.breaker.probe_after_ms,
                ramp_start=one.ramp.start,
                ramp_double_every_ms=one.ramp.double_every_ms,
            )
            for name, one in policy.providers.items()
        },
    )


def _tenant_limits(tenant: Tenant) -> Iterator[tuple[str, Limit]]:
    if tenant.limits is not None:
        yield f"tenant:{tenant.name}", tenant.limits
    for kind, limited in (("application", tenant.applications), ("sender", tenant.senders or {})):
        for name, limit in limited.items():
            if limit is not None:
                yield f"{kind}:{tenant.name}/{name}", limit


def _shared_limits(policy: Policy) -> Iterator[tuple[str, Limit]]:
    for destination in policy.destinations.values():
        if destination.limits is not None:
            yield f"destination:{destination.name}", destination.limits
        if destination.per_number is not None:
            yield f"number:{destination.name}", destination.per_number
    for route in policy.routes.values():
        if route.limits is not None:
            yield f"route:{route.name}", route.limits
    for provider in policy.providers.values():
        if provider.limits is not None:
            yield f"provider:{provider.name}", provider.limits
        for session in provider.sessions.values():
            if session.limits is not None:
                yield f"session:{session.name}", session.limits
