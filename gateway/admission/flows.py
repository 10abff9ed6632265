"""From a message to its place in the queue: the one place that names a flow and packs a reference.

Door, retries, promoter and rebuild all come through here, so that a message finds the same flow whoever queues it
(design section 3: a flow is the set of messages that share the same set of limits).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from gateway.policy.rules.lookup import destination_for, tenant_rules
from gateway.policy.rules.snapshot import Destination, Policy
from scheduler.core.records import Entry, Flow, Reference
from scheduler.core.values import valueclass

NO_NUMBER = bytes(8)
_POLICIES_MAX = 4  # the version in use and a few that tests hold
_FLOWS_MAX = 50_000
_flows: dict[int, tuple[Policy, dict[tuple[object, ...], Flow]]] = {}


@valueclass
class FlowFacts:
    """What of a message decides its flow; `ttl_ms` is the whole usefulness window."""

    tenant: str
    class_name: str
    application: str | None
    sender: str
    recipient: str
    route: str
    provider: str
    ttl_ms: int


def ttl_band(ttl_ms: int) -> int:
    """Octave of the time to live in seconds: FIFO in a band is earliest-deadline-first within a factor of two."""
    return max(1, ttl_ms // 1000).bit_length() - 1


def flow_of(policy: Policy, facts: FlowFacts) -> Flow:
    """The flow of a message under a policy.

    Application and route always stand in it, so that a pause by hand finds what waits already; any other scope only
    where the policy sets a limit on it.
    """
    return flow_at(policy, facts, destination_for(policy, facts.recipient))


def flow_at(policy: Policy, facts: FlowFacts, destination: Destination | None) -> Flow:
    """The same, for a recipient whose destination is known."""
    # Millions of messages share few flows: of the number only its destination matters, of the ttl its band.
    key = (
        facts.tenant,
        facts.class_name,
        facts.application,
        facts.sender,
        None if destination is None else destination.name,
        facts.route,
        facts.provider,
        ttl_band(facts.ttl_ms),
    )
    flows = _flows_of(policy)
    found = flows.get(key)
    if found is None:
        if len(flows) >= _FLOWS_MAX:
            flows.clear()
        found = flows[key] = Flow(
            facts.provider, facts.class_name, facts.tenant, _scopes(policy, facts, destination), key[-1]
        )
    return found


def _flows_of(policy: Policy) -> dict[tuple[object, ...], Flow]:
    kept = _flows.get(id(policy))
    if kept is None:
        while len(_flows) >= _POLICIES_MAX:
            _flows.pop(next(iter(_flows)))
        # The entry holds the policy itself, so an id is never taken over while it stands.
        kept = _flows[id(policy)] = (policy, {})
    return kept[1]


def _scopes(policy: Policy, facts: FlowFacts, destination: Destination | None) -> tuple[str, ...]:
    tenant = tenant_rules(policy, facts.tenant)
    provider = policy.providers.get(facts.provider)
    scopes: list[str] = []
    if tenant.limits is not None:
        scopes.append(f"tenant:{facts.tenant}")
    if facts.application is not None:
        scopes.append(f"application:{facts.tenant}/{facts.application}")
    if tenant.senders is not None and tenant.senders.get(facts.sender) is not None:
        scopes.append(f"sender:{facts.tenant}/{facts.sender}")
    if destination is not None and destination.limits is not None:
        scopes.append(f"destination:{destination.name}")
    if destination is not None and destination.per_number is not None:
        scopes.append(f"number:{destination.name}")
    if facts.route:
        scopes.append(f"route:{facts.route}")
    if provider is not None and provider.limits is not None:
        scopes.append(f"provider:{facts.provider}")
    return tuple(scopes)


def limited_scopes(policy: Policy) -> frozenset[tuple[str, ...]]:
    """What of a policy decides the scopes in a flow's key: where it differs, what waits belongs into other flows."""
    found: set[tuple[str, ...]] = {("tenant", "")} if policy.tenant_defaults.limits is not None else set()
    for name, tenant in policy.tenants.items():
        found.add(("tenant", name, str(tenant.limits is not None)))
        senders = tenant.senders or {}
        found |= {("sender", name, sender) for sender, limit in senders.items() if limit is not None}
    for name, destination in policy.destinations.items():
        limited = str(destination.limits is not None), str(destination.per_number is not None)
        found |= {("destination", name, *limited, prefix) for prefix in destination.prefixes}
    return frozenset(found)


def number_token(pepper: bytes, destination: Destination | None, recipient: str) -> bytes:
    """Eight octets that stand for a number in the index; zeros where no limit per number applies."""
    if destination is None or destination.per_number is None:
        return NO_NUMBER
    return blake2b(recipient.encode("ascii"), digest_size=8, key=pepper[:64]).digest()


def deadline_of(row: Mapping[str, Any]) -> int:
    """Until when a reference is worth leasing, UTC ms (contract, "The two clocks of a message").

    The pause of an application moves `submit_by` of what waits: the references of its messages hold until `expires_at`,
    and the claim knows when their budget is over.
    """
    movable = row["submit_begun"] or row["application"] is not None
    return int(row["expires_at"] if movable else row["submit_by"])


def entry_of(policy: Policy, pepper: bytes, tenant: str, row: Mapping[str, Any], *, front: bool = False) -> Entry:
    """The queue entry of a `messages` row.

    `row` needs: id, next_slot, segments, class, application, sender, recipient, route, provider, created_at,
    not_before, submit_by, expires_at, submit_begun, attempts_spent.
    """
    begun_at = max(row["created_at"], row["not_before"] or 0)
    facts = FlowFacts(
        tenant=tenant,
        class_name=row["class"],
        application=row["application"],
        sender=row["sender"],
        recipient=row["recipient"],
        route=row["route"],
        provider=row["provider"],
        ttl_ms=row["expires_at"] - begun_at,
    )
    destination = destination_for(policy, row["recipient"])
    reference = Reference(
        id=row["id"].bytes,
        slot=row["next_slot"],
        segments=row["segments"],
        deadline_at=deadline_of(row),
        queued_at=begun_at,
        number=number_token(pepper, destination, row["recipient"]),
    )
    return Entry(flow_at(policy, facts, destination), reference, front=front, retry=row["attempts_spent"] > 0)
