"""Questions to the index and its answers, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.core.records import NO_NUMBER, Flow, Reference


@dataclass(frozen=True, slots=True)
class Ask:
    """May one message in? `flows` are its candidate ways in order; durations are ms.

    `place` stands for the caller's idempotency key in the Retry-After waiting line; `paused` are candidates that must
    not be taken; `probe` asks without leaving a trace (dry run, capacity). `number` as in a reference.
    """

    flows: tuple[Flow, ...]
    segments: int
    budget_ms: int
    door_limit_ms: int
    left_ms: int
    place: bytes
    paused: frozenset[int] = frozenset()
    number: bytes = NO_NUMBER
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to an ask; `scope` (kind, name) is the one that binds.

    `cause` is `wait`, `age`, `paused`, or `storage` where the class is not open yet after a rebuild;
    `retry_after_s` is 0 when accepted.
    """

    accepted: bool
    candidate: int
    predicted_wait_ms: int
    queue_age_ms: int
    scope: tuple[str, str] | None
    cause: str | None
    retry_after_s: int


@dataclass(frozen=True, slots=True)
class LeaseAsk:
    """How much a session can send now; `want` messages, at most `want_segments` segments (None: no bound)."""

    provider: str
    session: str
    want: int
    lease_ms: int = 2_000
    want_segments: int | None = None


@dataclass(frozen=True, slots=True)
class LeasedItem:
    """A reference on lease; `spacing_ms` is the interval of its slowest scope, for the parts of a long message."""

    reference: Reference
    flow_key: str
    class_name: str
    spacing_ms: float


@dataclass(frozen=True, slots=True)
class Leased:
    """What a lease call brought. `expired` references passed their deadline: the ledger closes them.

    `wait_ms` (only when nothing was leased) is the time until something may be ready, None if nothing waits;
    `cause` then names the scope that holds, `idle` or `paused`.
    """

    lease_id: bytes
    items: Sequence[LeasedItem] = ()
    expired: Sequence[Reference] = ()
    wait_ms: int | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class LineReport:
    """One line (provider, class): what waits and how old it is (ms)."""

    depth: int
    leased: int
    oldest_ms: int
    median_ms: int
    p95_ms: int
    active_flows: int
    drain_per_s: float
    unserved_ms: int


@dataclass(frozen=True, slots=True)
class ScopeReport:
    """One limited scope: segments that wait under it, tokens left, since when it holds something, pause."""

    waiting: int
    tokens: float
    held_ms: int
    paused: bool
    by_class: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The index at one look; tenants and destinations are the largest, scopes those that hold something."""

    lines: Mapping[tuple[str, str], LineReport]
    tenants: Mapping[str, int]
    scopes: Mapping[tuple[str, str], ScopeReport]
