"""What the door would say now, by class: asked as a tenant would ask, leaving no trace.

The age of the oldest does not tell: the door judges the wait that a message would have, and what waits longest may
wait under another limit.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from gateway.admission.samples import Sample, samples, word
from gateway.policy.rules.snapshot import Policy
from scheduler.core.asks import IndexReport, Verdict
from scheduler.store.scheduler import IndexUnavailable, Scheduler

_BUSIEST: Final = 3  # tenants with most waiting: it is they who are refused
_NAMED: Final = 20  # of the policy, for classes that none of the busiest may use
_APPLICATIONS: Final = 5  # of each of them, in the policy's order: each has a backlog of its own
_ASKS_MAX: Final = 120
_NOBODY: Final = "-"  # stands for a tenant that the policy does not name
_GRAVITY: Final = ("accept", "slow_down", "defer", "refuse")


async def ask_doors(scheduler: Scheduler, policy: Policy, index: IndexReport, now_at: int) -> dict[str, dict[str, Any]]:
    """Per class the worst that one of its tenants would hear now; nothing of a class where the index does not answer.

    `verdict` is `accept`, `slow_down` (the tenant's own limit), `defer` or `refuse`; `scope` is what binds.
    """
    asked = _questions(policy, index, now_at)
    try:
        verdicts = await scheduler.admit([one.ask for _, one in asked])
    except IndexUnavailable:
        return {}
    found: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {}
    for (tenant, sample), verdict in zip(asked, verdicts, strict=True):
        said = word(verdict)
        rank = _GRAVITY.index(said), verdict.predicted_wait_ms
        if (known := found.get(sample.traffic.name)) is None or known[0] < rank:
            found[sample.traffic.name] = rank, _told(tenant, sample, verdict, said)
    return {name: told for name, (_, told) in found.items()}


def _questions(policy: Policy, index: IndexReport, now_at: int) -> list[tuple[str, Sample]]:
    busiest = [name for name, _ in sorted(index.tenants.items(), key=lambda one: -one[1])[:_BUSIEST]]
    others = [name for name in islice(policy.tenants, _NAMED) if name not in busiest]
    asked: list[tuple[str, Sample]] = []  # whoever has most waiting first: what is over the bound is left out
    covered: set[str] = set()
    for tenant in (*busiest, *others, _NOBODY):
        if tenant not in busiest and covered >= policy.classes.keys():
            break
        found = samples(policy, tenant, now_at, every_way=True)
        if tenant in busiest and tenant in policy.tenants:
            for application in islice(policy.tenants[tenant].applications, _APPLICATIONS):
                found += samples(policy, tenant, now_at, every_way=True, application=application)
        new = [one for one in found if tenant in busiest or one.traffic.name not in covered]
        covered.update(one.traffic.name for one in new)
        asked += [(tenant, one) for one in new]
    return asked[:_ASKS_MAX]


def _told(tenant: str, sample: Sample, verdict: Verdict, said: str) -> dict[str, Any]:
    way = sample.ways[verdict.candidate] if verdict.candidate >= 0 else sample.route
    return {
        "verdict": said,
        "predicted_wait_ms": verdict.predicted_wait_ms,
        "tenant": None if tenant == _NOBODY else tenant,
        "application": sample.application,
        "route": way.name,
        "scope": None if verdict.scope is None else {"kind": verdict.scope[0], "name": verdict.scope[1]},
        "cause": verdict.cause,
    }
