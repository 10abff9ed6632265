"""What a policy says about one tenant, number or message: prefix tables are built once per snapshot and kept.

Order of routes (contract section 3): longest prefix first, then preference, then weight among equals.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from gateway.policy.rules.snapshot import Destination, Policy, Route, Tenant

T = TypeVar("T")

_TABLES_MAX = 8  # the version in use, a candidate, and a few that tests or diffs hold


@dataclass(frozen=True, slots=True)
class _Tables:
    """Routes and destinations by prefix; `lengths` from the longest down to 0 (every number)."""

    policy: Policy
    destinations: dict[str, Destination]
    destination_lengths: tuple[int, ...]
    routes: dict[str, tuple[Route, ...]]
    route_lengths: tuple[int, ...]


_tables: dict[int, _Tables] = {}
_unlisted: dict[int, tuple[Policy, dict[str, Tenant]]] = {}


def tenant_rules(policy: Policy, name: str) -> Tenant:
    """Rules of a tenant; one that the policy does not name has the defaults."""
    tenant = policy.tenants.get(name)
    if tenant is not None:
        return tenant
    held = _unlisted.get(id(policy))
    if held is None:
        held = _keep(_unlisted, policy, (policy, {}))
    found = held[1].get(name)
    if found is None:
        found = replace(policy.tenant_defaults, name=name)
        if len(held[1]) < 10_000:
            held[1][name] = found
    return found


def destination_for(policy: Policy, number: str) -> Destination | None:
    """The destination with the longest prefix of a number (`+` and digits)."""
    tables = _tables_of(policy)
    for length in tables.destination_lengths:
        found = tables.destinations.get(number[:length])
        if found is not None:
            return found
    return None


def candidates(
    policy: Policy, tenant_name: str, class_name: str, sender: str, number: str, *, draw: float | None = None
) -> tuple[Route, ...]:
    """Routes that match, in the order to try them.

    Equals (same length of prefix and preference) stand by falling weight; with `draw` (0 <= draw < 1) they are
    drawn so that each comes first in proportion to its weight.
    """
    tables = _tables_of(policy)
    found: list[Route] = []
    for length in tables.route_lengths:
        routes = tables.routes.get(number[:length], ())
        matching = [route for route in routes if _matches(route, tenant_name, class_name, sender, found)]
        found.extend(matching if draw is None or len(matching) < 2 else _drawn(matching, draw))
    return tuple(found)


def _matches(route: Route, tenant_name: str, class_name: str, sender: str, found: list[Route]) -> bool:
    return (
        (route.classes is None or class_name in route.classes)
        and (route.tenants is None or tenant_name in route.tenants)
        and (route.senders is None or sender in route.senders)
        and route not in found
    )


def _drawn(routes: list[Route], draw: float) -> Iterable[Route]:
    """Equals in an order drawn by weight; one draw serves every choice by being stretched after each."""
    groups: dict[int, list[Route]] = {}
    for route in routes:
        groups.setdefault(route.preference, []).append(route)
    for preference in sorted(groups):
        rest = groups[preference]
        left = draw
        while len(rest) > 1:
            point = left * sum(route.weight for route in rest)
            for route in rest:
                if point < route.weight:
                    break
                point -= route.weight
            left = min(point / route.weight, 1 - 1e-12)
            rest = [other for other in rest if other is not route]
            yield route
        yield rest[0]


def _tables_of(policy: Policy) -> _Tables:
    tables = _tables.get(id(policy))
    return _keep(_tables, policy, _build(policy)) if tables is None else tables


def _keep(kept: dict[int, T], policy: Policy, value: T) -> T:
    """The value holds the policy itself, so an id is never taken over while its entry stands."""
    while len(kept) >= _TABLES_MAX:
        kept.pop(next(iter(kept)))
    kept[id(policy)] = value
    return value


def _build(policy: Policy) -> _Tables:
    destinations = {prefix: one for one in policy.destinations.values() for prefix in one.prefixes}
    by_prefix: dict[str, list[Route]] = {}
    for route in policy.routes.values():
        for prefix in route.prefixes or ("",):
            by_prefix.setdefault(prefix, []).append(route)
    routes = {
        prefix: tuple(sorted(some, key=lambda route: (route.preference, -route.weight, route.name)))
        for prefix, some in by_prefix.items()
    }
    return _Tables(policy, destinations, _falling_lengths(destinations), routes, _falling_lengths(routes))


def _falling_lengths(prefixes: Iterable[str]) -> tuple[int, ...]:
    return tuple(sorted({len(prefix) for prefix in prefixes}, reverse=True))
