"""What the index must know of a policy: class weights, tenant weights and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from scheduler.core.values import valueclass


@valueclass
class ClassTuning:
    """A traffic class: share of service, messages per visit of a flow, and how long one may wait (ms)."""

    weight: float
    quantum: int
    wait_budget_ms: int
    door_share: float = 0.5


@valueclass
class ProviderTuning:
    """When a provider or one of its sessions counts as broken, and how it comes back (durations ms).

    Broken: at least `of` answers within `within_ms`, of which a share of `errors` or more are errors. Then one probe
    is let through per `probe_after_ms`; a good answer closes the breaker, and the rate starts at `ramp_start` of
    itself and doubles every `ramp_double_every_ms`.
    """

    errors: float = 0.5
    of: int = 20
    within_ms: int = 10_000
    probe_after_ms: int = 5_000
    ramp_start: float = 0.25
    ramp_double_every_ms: int = 5_000


@valueclass
class Tuning:
    """One policy version as the index uses it; `limits` map `kind:name` to (segments per second, burst)."""

    policy_version: int
    classes: Mapping[str, ClassTuning]
    tenant_weights: Mapping[str, float] = field(default_factory=dict)
    default_weight: float = 1.0
    limits: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    retry_share: float = 0.1
    providers: Mapping[str, ProviderTuning] = field(default_factory=dict)
