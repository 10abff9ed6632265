"""Sections `tenant_defaults` and `tenants`: the rules of each account."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from urllib.parse import urlsplit

from gateway.policy.rules import scalars
from gateway.policy.rules.document import Section
from gateway.policy.rules.scalars import BadValue
from gateway.policy.rules.snapshot import CallbackTarget, Limit, Tenant
from gateway.policy.rules.traffic import CLASSES, class_name

WEIGHT_MAX = 1_000_000

# Where a policy says nothing about tenants, nothing but the door's rate holds them back: carriers' limits still do.
TENANT = Tenant(
    name="",
    weight=1,
    limits=None,
    requests=Limit(1_000.0, 2_000),
    daily_segments=None,
    classes=frozenset(CLASSES),
    default_class="transactional",
    default_sender=None,
    senders=None,
    destinations=None,
    accept_00_prefix=False,
    applications=MappingProxyType({}),
    inbound_numbers=(),
    callbacks=None,
    tlvs=frozenset(),
)

EVENT_TYPES = (
    "message.sent",
    "message.delivered",
    "message.undelivered",
    "message.expired",
    "message.rejected",
    "message.failed",
    "message.suppressed",
    "message.unknown",
    "message.corrected",
    "message.received",
    "optout.created",
)
_URL = re.compile(r"https?://[^\s/?#@]+(?:[/?#]\S*)?")


def read_tenant_defaults(root: Section) -> Tenant:
    """What a tenant has that says nothing itself."""
    return _read_tenant(root.section("tenant_defaults"), TENANT)


def read_tenants(root: Section, defaults: Tenant) -> Mapping[str, Tenant]:
    """The named tenants with the defaults folded in."""
    section = root.section("tenants")
    tenants = {name: _read_tenant(inner, replace(defaults, name=name)) for name, inner in section.named(scalars.name)}
    section.finish()
    return MappingProxyType(tenants)


def _read_tenant(section: Section, default: Tenant) -> Tenant:
    classes = section.texts("classes", tuple(name for name in CLASSES if name in default.classes), class_name)
    if not classes:
        section.lacks("expects at least one class", "classes")
        classes = tuple(CLASSES)
    inherited = default.default_class if default.default_class in classes else classes[0]
    default_class = section.value("default_class", inherited, class_name)
    if default_class not in classes:
        section.fault("is not among the tenant's classes", "default_class")
    senders = _read_senders(section, default)
    default_sender = section.value("default_sender", default.default_sender, scalars.sender)
    if default_sender is not None and senders is not None and default_sender not in senders:
        section.fault("is not among the tenant's senders", "default_sender")
    destinations = section.texts("destinations", default.destinations or (), scalars.prefix)
    tenant = Tenant(
        name=default.name,
        weight=section.number("weight", default.weight, 1, WEIGHT_MAX),
        limits=section.limit("limits", default.limits),
        requests=section.limit("requests", default.requests) or default.requests,
        daily_segments=section.number("daily_segments", default.daily_segments or 0, 1, 10**12) or None,
        classes=frozenset(classes),
        default_class=default_class,
        default_sender=default_sender,
        senders=senders,
        destinations=destinations if destinations or section.has("destinations") else None,
        accept_00_prefix=section.flag("accept_00_prefix", default.accept_00_prefix),
        applications=_read_limited(section.section("applications"), scalars.application, default.applications),
        inbound_numbers=section.texts("inbound_numbers", default.inbound_numbers, scalars.own_number),
        callbacks=_read_callbacks(section.section("callbacks")) if section.has("callbacks") else default.callbacks,
        tlvs=frozenset(section.texts("tlvs", tuple(sorted(default.tlvs)), scalars.name)),
    )
    if section.is_null("requests"):
        section.fault("expects a rate and a burst: the door always has one", "requests")
    section.finish()
    if section.is_null("destinations"):
        tenant = replace(tenant, destinations=None)
    return replace(tenant, daily_segments=None) if section.is_null("daily_segments") else tenant


def _read_senders(section: Section, default: Tenant) -> Mapping[str, Limit | None] | None:
    if not section.has("senders"):
        return default.senders
    if section.is_null("senders"):
        return None
    return _read_limited(section.section("senders"), scalars.sender, {})


def _read_limited(
    section: Section, check: Callable[[str], str], default: Mapping[str, Limit | None]
) -> Mapping[str, Limit | None]:
    """Names with an optional limit each."""
    found: dict[str, Limit | None] = dict(default)
    for name, inner in section.named(check):
        found[name] = inner.limit("limits", None)
        inner.finish()
    section.finish()
    return MappingProxyType(found)


def _read_callbacks(section: Section) -> CallbackTarget:
    found = CallbackTarget(
        url=section.value("url", None, _url),
        secrets=section.texts("secrets", (), scalars.secret),
        events=section.texts("events", ("final",), _event, alone=True),
        allow_private=section.flag("allow_private", False),
    )
    section.finish()
    if any(not secret.removeprefix("whsec_").strip() for secret in found.secrets):
        section.fault("holds an empty one: nothing could be signed", "secrets")
    if found.url is not None and not found.secrets:
        section.lacks("is missing: callbacks are always signed", "secrets")
    return found


def _url(text: str) -> str | None:
    if _URL.fullmatch(text) is None or len(text) > 2048:
        raise BadValue("expects a URL with http or https, without user and password")
    try:
        parts = urlsplit(text)
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that hold no IPv6 address, a port over 65535
        is_whole = False
    if not is_whole:
        raise BadValue("expects a URL whose host and port exist: a port is 1 to 65535, an IPv6 address in brackets")
    return text


def _event(text: str) -> str:
    if text not in ("final", "all", *EVENT_TYPES):
        raise BadValue(f"expects final, all, or one of {', '.join(EVENT_TYPES)}")
    return text
