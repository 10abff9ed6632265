"""What a valid policy still makes an operator wonder about: shown by `policy check`, never in the way of applying."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from gateway.domain.public_addresses import is_public
from gateway.policy.rules.faults import Fault
from gateway.policy.rules.scalars import is_reference
from gateway.policy.rules.snapshot import Limit, Policy, Provider, Session, Tenant

ROUND_TRIP_S = 0.1  # a usual time from submit_sm to its answer over the Internet
_DAY_MINUTES = 1_440
IDLE_MS = 200  # from the door to the first submit where nothing waits
DEFAULT_PARTS_MAX = 10  # the API's max_segments where a message says nothing


def warn(policy: Policy) -> list[Fault]:
    """Warnings in the order of the file's sections; their line is 0, their path says where."""
    return [
        Fault(0, path, message)
        for find in (
            _budgets,
            _bursts,
            _windows,
            _links,
            _binds,
            _routes,
            _hours,
            _secrets,
            _shared,
            _callbacks,
            _tlvs,
            _retention,
        )
        for path, message in find(policy)
    ]


def limits_of(policy: Policy) -> Iterator[tuple[str, Limit]]:
    """Every pacing limit with its dotted path."""
    for tenant in (policy.tenant_defaults, *policy.tenants.values()):
        base = f"tenants.{tenant.name}" if tenant.name else "tenant_defaults"
        yield from _given(f"{base}.limits", tenant.limits)
        for kind, limited in (("senders", tenant.senders or {}), ("applications", tenant.applications)):
            for name, limit in limited.items():
                yield from _given(f"{base}.{kind}.{name}.limits", limit)
    for destination in policy.destinations.values():
        yield from _given(f"destinations.{destination.name}.limits", destination.limits)
        yield from _given(f"destinations.{destination.name}.per_number", destination.per_number)
    for provider in policy.providers.values():
        yield from _given(f"providers.{provider.name}.limits", provider.limits)
        for session in provider.sessions.values():
            yield from _given(f"providers.{provider.name}.sessions.{session.name}.limits", session.limits)
    for route in policy.routes.values():
        yield from _given(f"routes.{route.name}.limits", route.limits)


def _given(path: str, limit: Limit | None) -> Iterator[tuple[str, Limit]]:
    if limit is not None:
        yield path, limit


def _budgets(policy: Policy) -> Iterator[tuple[str, str]]:
    for traffic in policy.classes.values():
        if traffic.wait_budget_ms < IDLE_MS:
            yield (
                f"classes.{traffic.name}.wait_budget",
                f"{traffic.wait_budget_ms} ms is less than the {IDLE_MS} ms that a message may need from the door to "
                "its carrier where nothing waits: what is accepted expires unsent",
            )


def _bursts(policy: Policy) -> Iterator[tuple[str, str]]:
    longest = max(one.max_segments or DEFAULT_PARTS_MAX for one in policy.classes.values())
    for path, limit in limits_of(policy):
        if limit.burst < longest:
            yield (
                f"{path}.burst",
                f"{limit.burst} is smaller than a long message of {longest} segments: "
                "its parts leave spaced out and hold back what comes after them",
            )


def _windows(policy: Policy) -> Iterator[tuple[str, str]]:
    for provider in policy.providers.values():
        senders = [one for one in provider.sessions.values() if one.bind != "receiver"]
        for session in senders:
            rate = _rate_of(session, provider, len(senders))
            if rate is not None and session.window < rate * ROUND_TRIP_S:
                yield (
                    f"providers.{provider.name}.sessions.{session.name}.window",
                    f"{session.window} is smaller than {rate:g}/s x {ROUND_TRIP_S * 1000:.0f} ms: "
                    f"at that round trip at most {session.window / ROUND_TRIP_S:.0f}/s can leave",
                )


def _rate_of(session: Session, provider: Provider, senders: int) -> float | None:
    """What a session may be asked to carry: its own rate, or its even part of the provider's."""
    rates = []
    if session.limits is not None:
        rates.append(session.limits.rate_per_s)
    if provider.limits is not None:
        rates.append(provider.limits.rate_per_s / senders)
    return min(rates) if rates else None


def _links(policy: Policy) -> Iterator[tuple[str, str]]:
    for provider in policy.providers.values():
        for session in provider.sessions.values():
            path = f"providers.{provider.name}.sessions.{session.name}"
            if session.enquire_link_ms >= session.inactivity_ms:
                yield f"{path}.enquire_link", "is not shorter than inactivity: an idle link closes before it is asked"
            if session.tls is not None and not session.tls.verify:
                yield f"{path}.tls.verify", "is off: anyone on the way can read and change the traffic"


def _binds(policy: Policy) -> Iterator[tuple[str, str]]:
    used = {route.provider for route in policy.routes.values()}
    for provider in policy.providers.values():
        path = f"providers.{provider.name}"
        binds = {session.bind for session in provider.sessions.values()}
        if provider.name not in used:
            yield path, "no route leads here"
        elif binds == {"receiver"}:
            yield f"{path}.sessions", "all are receivers: nothing can be submitted here"
        if binds == {"transmitter"} and provider.dialect.register != "none":
            yield f"{path}.sessions", "all are transmitters: receipts cannot come in; bind a receiver or register none"


def _routes(policy: Policy) -> Iterator[tuple[str, str]]:
    """Routes that no message can take, whoever sends it."""
    tenants = (policy.tenant_defaults, *policy.tenants.values())
    for route in policy.routes.values():
        path = f"routes.{route.name}.match"
        able = [one for one in tenants if route.tenants is None or one.name in route.tenants]
        if route.tenants is not None and not route.tenants & set(policy.tenants):
            yield f"{path}.tenants", "names no tenant of this policy: nothing takes this route until one is named"
        elif route.classes is not None and not any(route.classes & one.classes for one in able):
            yield f"{path}.classes", "no tenant that may take this route has one of these classes"
        elif route.senders is not None and not any(_may_use(one, route.senders) for one in able):
            yield f"{path}.senders", "no tenant that may take this route has one of these senders"
        elif route.prefixes and not any(_may_reach(one, route.prefixes) for one in able):
            yield f"{path}.prefixes", "no tenant that may take this route may send to these numbers"


def _may_use(tenant: Tenant, senders: frozenset[str]) -> bool:
    return tenant.senders is None or tenant.default_sender in senders or not senders.isdisjoint(tenant.senders)


def _may_reach(tenant: Tenant, prefixes: tuple[str, ...]) -> bool:
    return tenant.destinations is None or any(
        prefix.startswith(allowed) or allowed.startswith(prefix)
        for prefix in prefixes
        for allowed in tenant.destinations
    )


def _hours(policy: Policy) -> Iterator[tuple[str, str]]:
    """Send windows that some of their messages never see open."""
    for destination in policy.destinations.values():
        window = destination.send_window
        if window is None:
            continue
        path = f"destinations.{destination.name}.send_window"
        closed_ms = (window.from_minute - window.to_minute) % _DAY_MINUTES * 60_000
        for name in sorted(window.classes):
            traffic = policy.classes[name]
            if not any(name in one.classes for one in (policy.tenant_defaults, *policy.tenants.values())):
                yield f"{path}.classes", f"no tenant has the class {name}"
            elif traffic.ttl_max_ms < closed_ms:
                yield (
                    path,
                    (
                        f"never opens for {name} that comes as it closes: it is closed for {_hours_of(closed_ms)}, "
                        f"and {name} lives {_hours_of(traffic.ttl_max_ms)} at most"
                    ),
                )
            elif traffic.ttl_default_ms < closed_ms:
                yield (
                    path,
                    (
                        f"is closed for {_hours_of(closed_ms)}: {name} that comes as it closes and lives "
                        f"{_hours_of(traffic.ttl_default_ms)} by default is refused"
                    ),
                )


def _hours_of(ms: int) -> str:
    return f"{ms / 3_600_000:.3g} h"


def _secrets(policy: Policy) -> Iterator[tuple[str, str]]:
    advice = "is written out and will stand in every version of the policy: name it with env: or file:"
    for tenant in (policy.tenant_defaults, *policy.tenants.values()):
        if tenant.callbacks is not None and not all(map(is_reference, tenant.callbacks.secrets)):
            yield (
                f"tenants.{tenant.name}.callbacks.secrets" if tenant.name else "tenant_defaults.callbacks.secrets",
                advice,
            )
    for provider in policy.providers.values():
        for session in provider.sessions.values():
            if session.password and not is_reference(session.password):
                yield f"providers.{provider.name}.sessions.{session.name}.password", advice


def _shared(policy: Policy) -> Iterator[tuple[str, str]]:
    """Tenants that know each other's signing secret: a block that was copied, often."""
    inherited = policy.tenant_defaults.callbacks
    owners: dict[str, str] = {}
    for tenant in policy.tenants.values():
        target = tenant.callbacks
        if target is None or target is inherited:
            continue
        others = {owners.setdefault(secret, tenant.name) for secret in target.secrets} - {tenant.name}
        if others:
            yield (
                f"tenants.{tenant.name}.callbacks.secrets",
                f"{', '.join(sorted(others))} has one of them too: either could forge the other's callbacks",
            )


def _callbacks(policy: Policy) -> Iterator[tuple[str, str]]:
    inherited = policy.tenant_defaults.callbacks
    for tenant in (policy.tenant_defaults, *policy.tenants.values()):
        target = tenant.callbacks
        if target is None or target.url is None or (tenant.name and target is inherited):
            continue
        if not target.allow_private and _is_inner(target.url):
            yield (
                f"tenants.{tenant.name}.callbacks.url" if tenant.name else "tenant_defaults.callbacks.url",
                "is a private or loopback address: nothing is delivered there without allow_private: true",
            )


def _is_inner(url: str) -> bool:
    """Whether a URL names such an address itself; a name is judged at each delivery, when it is resolved."""
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
        return host == "localhost" or host.endswith(".localhost") or not is_public(host)
    except ValueError:
        return False


def _tlvs(policy: Policy) -> Iterator[tuple[str, str]]:
    known = {name for provider in policy.providers.values() for name in provider.dialect.tlvs}
    for tenant in policy.tenants.values():
        for name in sorted(tenant.tlvs - known):
            yield f"tenants.{tenant.name}.tlvs", f"{name} is in no provider's dialect: it cannot be sent"


def _retention(policy: Policy) -> Iterator[tuple[str, str]]:
    if policy.receipts.inbox_retention_ms < policy.receipts.cutoff_ms:
        yield "receipts.inbox_retention", "is shorter than cutoff: a receipt may be gone before its message is closed"
    privacy = policy.privacy
    if privacy.keep_messages_ms < policy.receipts.cutoff_ms:
        yield "privacy.keep_messages", "is shorter than receipts.cutoff: days wait for their receipts before they go"
    if privacy.keep_messages_ms < max(privacy.keep_text_ms, privacy.keep_otp_text_ms):
        yield "privacy.keep_messages", "is shorter than the time that texts are kept: they go with their day"
