"""Sections `classes` and `retries`: what each class of traffic is promised, and how refused submits are repeated."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gateway.policy.rules.document import Section
from gateway.policy.rules.scalars import BadValue, duration_ms, share, share_or_none
from gateway.policy.rules.snapshot import Retries, TrafficClass

_SECOND, _MINUTE, _HOUR = 1_000, 60_000, 3_600_000
PARTS_MAX = 255

# The contract's example values stand where a policy says nothing.
CLASSES: Mapping[str, TrafficClass] = MappingProxyType(
    {
        "otp": TrafficClass(
            name="otp",
            wait_budget_ms=10 * _SECOND,
            door_share=0.5,
            ttl_default_ms=2 * _MINUTE,
            ttl_max_ms=10 * _MINUTE,
            weight=60,
            quantum=1,
            when_full="refuse",
            unconfirmed="resend_once",
            max_attempts=3,
            max_segments=1,
        ),
        "transactional": TrafficClass(
            name="transactional",
            wait_budget_ms=2 * _MINUTE,
            door_share=0.5,
            ttl_default_ms=_HOUR,
            ttl_max_ms=24 * _HOUR,
            weight=25,
            quantum=4,
            when_full="refuse",
            unconfirmed="hold",
            max_attempts=5,
        ),
        "marketing": TrafficClass(
            name="marketing",
            wait_budget_ms=4 * _HOUR,
            door_share=0.5,
            ttl_default_ms=12 * _HOUR,
            ttl_max_ms=48 * _HOUR,
            weight=10,
            quantum=32,
            when_full="defer",
            unconfirmed="fail",
            max_attempts=5,
            consent="opt_out",
        ),
        "non_priority": TrafficClass(
            name="non_priority",
            wait_budget_ms=12 * _HOUR,
            door_share=0.5,
            ttl_default_ms=24 * _HOUR,
            ttl_max_ms=72 * _HOUR,
            weight=5,
            quantum=32,
            when_full="refuse",
            unconfirmed="fail",
            max_attempts=3,
        ),
    }
)


def class_name(text: str) -> str:
    """One of the four classes; there are no others."""
    if text not in CLASSES:
        raise BadValue(f"expects one of {', '.join(CLASSES)}")
    return text


def read_classes(root: Section) -> Mapping[str, TrafficClass]:
    """All four classes; a field left out keeps its class's default."""
    section = root.section("classes")
    given = {name: _read_class(inner, CLASSES[name]) for name, inner in section.named(class_name)}
    section.finish()
    return MappingProxyType({name: given.get(name, default) for name, default in CLASSES.items()})


def _read_class(section: Section, default: TrafficClass) -> TrafficClass:
    ttl = section.section("ttl")
    ttl_max_ms = ttl.value("max", default.ttl_max_ms, duration_ms)
    ttl_default_ms = ttl.value("default", min(default.ttl_default_ms, ttl_max_ms), duration_ms)
    if not ttl.has("max") and ttl_default_ms > ttl_max_ms:
        ttl_max_ms = ttl_default_ms
    if ttl_default_ms > ttl_max_ms:
        ttl.fault("is longer than ttl.max", "default")
    for key, value in (("default", ttl_default_ms), ("max", ttl_max_ms)):
        if value < _SECOND:
            ttl.fault("expects at least 1s", key)
    ttl.finish()
    content = section.section("content")
    max_segments = content.number("max_segments", default.max_segments or 0, 1, PARTS_MAX) or None
    if content.is_null("max_segments"):
        max_segments = None
    content.finish()
    wait_budget_ms = section.value("wait_budget", default.wait_budget_ms, duration_ms)
    if wait_budget_ms < 1:
        section.fault("expects more than 0", "wait_budget")
    consent = section.value("consent", default.consent, _consent)
    found = TrafficClass(
        name=default.name,
        wait_budget_ms=wait_budget_ms,
        door_share=section.value("door_share", default.door_share, share),
        ttl_default_ms=ttl_default_ms,
        ttl_max_ms=ttl_max_ms,
        weight=section.number("weight", default.weight, 1, 1_000_000),
        quantum=section.number("quantum", default.quantum, 1, 10_000),
        when_full=section.choice("when_full", default.when_full, ("refuse", "defer")),
        unconfirmed=section.choice("unconfirmed", default.unconfirmed, ("hold", "resend_once", "fail")),
        max_attempts=section.number("max_attempts", default.max_attempts, 1, 100),
        max_segments=max_segments,
        consent=None if section.is_null("consent") else consent,
    )
    section.finish()
    return found


def _consent(text: str) -> str:
    if text not in ("opt_out", "opt_in"):
        raise BadValue("expects one of opt_out, opt_in")
    return text


def read_retries(root: Section) -> Retries:
    """Back-off of refused submits."""
    section, default = root.section("retries"), Retries()
    found = Retries(
        base_ms=section.value("base", default.base_ms, duration_ms),
        max_ms=section.value("max", default.max_ms, duration_ms),
        share=section.value("share", default.share, share_or_none),
    )
    section.finish()
    check_backoff(section, found.base_ms, found.max_ms)
    return found


def check_backoff(section: Section, base_ms: int, max_ms: int) -> None:
    """A base above 0 and not above its maximum."""
    if base_ms < 1:
        section.fault("expects more than 0", "base")
    if base_ms > max_ms:
        section.fault("is longer than max", "base")
