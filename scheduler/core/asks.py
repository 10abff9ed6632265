"""Questions to the index and its answers, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from scheduler.core.records import NO_NUMBER, Flow, Reference
from scheduler.core.values import valueclass


@valueclass
class Ask:
    """May one message in? `flows` are its candidate ways in order; durations are ms.

    `place` stands for the caller's idempotency key in the Retry-After waiting line; `paused` are candidates that must
    not be taken; `probe` asks without leaving a trace (dry run, capacity). `number` as in a reference.
    `defer_until` is the latest `not_before` (UTC ms) that the caller would take; 0: the message may not be deferred.
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
    defer_until: int = 0


@valueclass
class Verdict:
    """The answer to an ask; `scope` (kind, name) is the one that binds.

    `cause` is `wait`, `age`, `paused`, or `storage` where the class is not open yet after a rebuild;
    `retry_after_s` is 0 when accepted. Where the message may be deferred (`Ask.defer_until`) and is not accepted,
    `not_before` is the instant (UTC ms) at which its turn may begin; it counts as work due from then on.
    """

    accepted: bool
    candidate: int
    predicted_wait_ms: int
    queue_age_ms: int
    scope: tuple[str, str] | None
    cause: str | None
    retry_after_s: int
    not_before: int | None = None

    @property
    def deferred(self) -> bool:
        """Taken in for a later time."""
        return self.not_before is not None


@valueclass
class LeaseAsk:
    """How much a session can send now; `want` messages, at most `want_segments` segments (None: no bound).

    Classes in `without` are left out of this lease (a doubtful clock leaves out OTPs).
    """

    provider: str
    session: str
    want: int
    lease_ms: int = 2_000
    want_segments: int | None = None
    without: frozenset[str] = frozenset()


@valueclass
class LeasedItem:
    """A reference on lease; `spacing_ms` is the interval of its slowest scope, for the parts of a long message."""

    reference: Reference
    flow_key: str
    class_name: str
    spacing_ms: float


@valueclass
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


@valueclass
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


@valueclass
class ScopeReport:
    """One limited scope: segments that wait under it, tokens left, how long it holds something (0: nothing), pause."""

    waiting: int
    tokens: float
    held_ms: int
    paused: bool
    by_class: Mapping[str, int] = field(default_factory=dict)
    paused_ms: int = 0


@valueclass
class LinkReport:
    """Health of a session or a whole provider; `since_ms` since when it is as it is (paused, broken, down).

    `state` is `up`, `down`, `paused`, `open` or `half_open` (breaker); `rate_share` of its own rate is in force.
    `held_ms` is since when a session's own limit has let nothing through for want of room; 0: it does not.
    """

    provider: str
    state: str
    rate_share: float = 1.0
    since_ms: int = 0
    probe_in_ms: int = 0
    held_ms: int = 0


@valueclass
class IndexReport:
    """The index at one look; tenants and destinations are the largest, scopes those that hold something.

    `unserved` tells per class how long (ms) the flow whose turn it is has waited for it: what starvation looks like.
    """

    lines: Mapping[tuple[str, str], LineReport]
    tenants: Mapping[str, int]
    scopes: Mapping[tuple[str, str], ScopeReport]
    sessions: Mapping[str, LinkReport] = field(default_factory=dict)
    providers: Mapping[str, LinkReport] = field(default_factory=dict)
    unserved: Mapping[str, int] = field(default_factory=dict)


@valueclass
class Outcomes:
    """What a session's carrier answered since the last report: messages by kind of answer.

    `errors` are faults of the carrier or the link (not of a message), response time-outs included; `throttled` asks
    for a slower pace and is no error. `queue_full_destinations` are tokens of the numbers whose queue was full.
    `round_trip_ms` is the mean of these answers, `rate_per_s` what the session submits of late (segments).
    `waiting` are claimed segments that are not written yet; `unanswered_ms` is the age of the oldest submit that has
    no answer, 0 where none waits.
    """

    good: int = 0
    errors: int = 0
    throttled: int = 0
    queue_full_destinations: frozenset[bytes] = frozenset()
    round_trip_ms: float = 0.0
    rate_per_s: float = 0.0
    waiting: int = 0
    unanswered_ms: float = 0.0


@valueclass
class Health:
    """What the scheduler makes of it, for the pace of what is leased already.

    `rate_share` (0 to 1) of the session's rate is in force now; `rate_per_s` is that rate, None without any.
    `breaker` is `closed`, `open` or `half_open` (of the session or of its provider, the worse one); the next probe is
    let through at `open_until` (UTC ms), None while closed.
    """

    rate_share: float = 1.0
    breaker: str = "closed"
    open_until: int | None = None
    rate_per_s: float | None = None


@valueclass
class ExplainAsk:
    """Which reference of which flow waits for what; `retry` where it waits among the retries."""

    flow: Flow
    reference: Reference
    retry: bool = False


@valueclass
class Explanation:
    """Why a reference waits now: `scope` (kind, name); kinds also `window`, `session_down`, `paused`, `fairness`.

    `position` counts from 1 inside its flow, None where it is not queued (leased, or gone); `predicted_start` UTC ms.
    `tokens_missing` are segments that the scope lacks for this message, where the scope is a limit.
    """

    scope: tuple[str, str]
    tokens_missing: float | None = None
    position: int | None = None
    predicted_start: int | None = None


@valueclass
class Blocker:
    """What holds work of a class: a scope (kind, name), messages or segments that wait for it, since when (ms)."""

    class_name: str
    scope: tuple[str, str]
    waiting: int
    since_ms: int
