"""What the index must know of a policy: class weights, tenant weights and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ClassTuning:
    """A traffic class: share of service, messages per visit of a flow, and how long one may wait (ms)."""

    weight: float
    quantum: int
    wait_budget_ms: int
    door_share: float = 0.5


@dataclass(frozen=True, slots=True)
class Tuning:
    """One policy version as the index uses it; `limits` map `kind:name` to (segments per second, burst)."""

    policy_version: int
    classes: Mapping[str, ClassTuning]
    tenant_weights: Mapping[str, float] = field(default_factory=dict)
    default_weight: float = 1.0
    limits: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    retry_share: float = 0.1
