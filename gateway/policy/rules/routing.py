"""Sections `destinations` and `routes`: which numbers have limits of their own, and which way they go."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gateway.policy.rules import scalars
from gateway.policy.rules.document import Section, nearest
from gateway.policy.rules.snapshot import Destination, Provider, Route, SendWindow
from gateway.policy.rules.tenancy import WEIGHT_MAX
from gateway.policy.rules.traffic import class_name

_PREFERENCE_MAX = 1_000_000


def read_destinations(root: Section) -> Mapping[str, Destination]:
    """Destinations by name; no prefix belongs to two."""
    section = root.section("destinations")
    found: dict[str, Destination] = {}
    owners: dict[str, str] = {}
    for name, inner in section.named(scalars.name):
        destination = Destination(
            name=name,
            prefixes=inner.texts("prefixes", (), scalars.prefix),
            limits=inner.limit("limits", None),
            per_number=inner.limit("per_number", None),
            send_window=_read_window(inner),
        )
        inner.finish()
        if not destination.prefixes:
            inner.lacks("expects at least one prefix", "prefixes")
        for prefix in destination.prefixes:
            if prefix in owners:
                inner.fault(f"{prefix} is a prefix of {owners[prefix]} too", "prefixes")
            owners.setdefault(prefix, name)
        found[name] = destination
    section.finish()
    return MappingProxyType(found)


def _read_window(section: Section) -> SendWindow | None:
    if not section.has("send_window") or section.is_null("send_window"):
        return None
    inner = section.section("send_window")
    window = SendWindow(
        classes=frozenset(inner.texts("classes", (), class_name)),
        from_minute=inner.required("from", 0, scalars.minute_of_day),
        to_minute=inner.required("to", 1, scalars.minute_of_day),
        timezone=inner.value("timezone", "UTC", scalars.zone),
    )
    inner.finish()
    if not window.classes:
        inner.lacks("expects at least one class", "classes")
    if window.from_minute == window.to_minute:
        inner.fault("is the same as from: the window would be empty", "to")
    return window


def read_routes(root: Section, providers: Mapping[str, Provider]) -> Mapping[str, Route]:
    """Routes by name, each to a provider that exists."""
    section = root.section("routes")
    found: dict[str, Route] = {}
    for name, inner in section.named(scalars.name):
        match = inner.section("match")
        provider = inner.required("provider", "", str)
        if provider and provider not in providers:
            inner.fault(f"unknown provider{nearest(provider, sorted(providers))}", "provider")
        found[name] = Route(
            name=name,
            provider=provider,
            prefixes=match.texts("prefixes", (), scalars.prefix),
            classes=_set_of(match, "classes"),
            tenants=_set_of(match, "tenants"),
            senders=_set_of(match, "senders"),
            limits=inner.limit("limits", None),
            preference=inner.number("preference", 1, 0, _PREFERENCE_MAX),
            weight=inner.number("weight", 1, 1, WEIGHT_MAX),
        )
        match.finish()
        inner.finish()
    section.finish()
    if not found:
        section.lacks("expects at least one route")
    return MappingProxyType(found)


def _set_of(match: Section, key: str) -> frozenset[str] | None:
    """What a route is restricted to; absent means everything, an empty list is a slip."""
    read = {"classes": class_name, "senders": scalars.sender}.get(key, scalars.name)
    found = match.texts(key, (), read)
    if not match.has(key) or match.is_null(key):
        return None
    if not found:
        match.lacks("expects at least one entry: leave the key out to match all", key)
    return frozenset(found)
