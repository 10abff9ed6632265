"""What the index remembers from call to call. Instants are UTC ms, 0 where there was none; durations are ms."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from scheduler.core.gcra import Debts
from scheduler.core.records import Reference
from scheduler.core.tuning import ClassTuning, ProviderTuning, Tuning
from scheduler.plain.ordered import Ordered

FOREVER = 1e15  # an instant that never comes
EPSILON = 1e-6  # rounding of a bucket's fill, segments
NOTHING_CHARGED = Debts(0.0, 0.0)
PROMISE_MS = 5_000  # how long an admitted message counts that was never enqueued


@dataclass(slots=True)
class Scope:
    """One limit (a bucket of segments), and one thing that can be closed, broken or slow.

    `paid_until` (ms of the epoch's clock) is where the bucket will be full again: what lies before it is debt, worth
    one segment per `pace_ms`, the interval in force. The policy's interval is `interval_ms` (0: no limit).
    """

    name: str
    paid_until: float = 0.0
    interval_ms: float = 0.0
    pace_ms: float = 0.0
    burst: float = 1.0
    debts: Debts = NOTHING_CHARGED
    holding_since: float = 0.0  # since when it holds something back
    closed_until: float = 0.0  # a pause
    closed_since: float = 0.0  # when the pause or the fault began
    opened_at: float = 0.0  # when it last ended
    share: float = 0.0  # of its rate at `share_at`; 0: all of it
    share_at: float = 0.0
    share_doubles_ms: float = 0.0  # a ramp; 0: the share grows by 0.05 a second
    measured_ms: float = 0.0  # interval that stands for a limit where there is none and it is slowed
    probe_at: float = 0.0  # a broken one lets a message through then; 0: not broken
    reserved: float = 0.0  # segments kept for the long message of one flow
    reserved_until: float = 0.0
    reserved_for: str = ""
    promised_at: float = 0.0  # the first of `promised`
    waiting: dict[str, float] = field(default_factory=dict)  # queued segments by class
    flows: dict[str, float] = field(default_factory=dict)  # active flows by class
    promised: dict[str, float] = field(default_factory=dict)  # segments admitted and not queued yet, by class

    def copy(self) -> Scope:
        """Another record of the same."""
        return replace(
            self, waiting=dict(self.waiting), flows=dict(self.flows), promised=dict(self.promised)
        )  # fmt: skip


@dataclass(slots=True)
class Line:
    """What waits of one class at one provider."""

    name: tuple[str, str]
    known: bool = False  # something was counted in it
    queued: int = 0
    leased: int = 0
    segments: int = 0
    weight: float = 0.0  # of the tenants that are active in it
    tenants: int = 0  # that are active
    tag: float = 0.0  # virtual time of the flow in service
    class_time: float = 0.0  # virtual time among the classes of its provider
    idle: bool = True  # the last lease found nothing eligible
    busy_at: float = 0.0  # since when eligible work waits; 0: none does
    pass_at: float = 0.0  # when something was last leased
    drain: float = 0.0  # segments/s while work waited
    drain_from: float = 0.0  # where its running sample began
    drain_count: float = 0.0
    drain_at: float = 0.0  # when it was last sampled
    answers: float = 0.0  # segments/s answered of late, whether work waited or not
    answers_from: float = 0.0
    answers_count: float = 0.0
    tag_ms: float = 0.0  # ms that virtual time takes to grow by one while work waits
    tag_from_at: float = 0.0
    tag_from: float = 0.0
    peak: float = 0.0  # competing weight at its highest of late
    peak_at: float = 0.0
    promised: int = 0  # messages admitted and not queued yet
    promised_at: float = 0.0  # the first of them
    late_credit: float = 0.0  # segments that late flows may have at a small price
    active: Ordered[bytes] = field(default_factory=Ordered)  # flow keys by start tag
    shares: dict[str, TenantShare] = field(default_factory=dict)


@dataclass(slots=True)
class TenantShare:
    """One tenant inside a line: its active flows (a retry flow counts half) and the weight that counts for it."""

    flows: float = 0.0
    weight: float = 0.0
    queued: int = 0


@dataclass(slots=True)
class Provider:
    """What is known of one provider as a whole."""

    name: str
    class_time: float = 0.0  # of the class that was served last
    down_at: float = 0.0  # since when no session is up (one that never had any: since it is known); 0: some are
    back_at: float = 0.0  # when a session hopes to be back
    seen_at: float = 0.0  # the last lease of any session
    pass_at: float = 0.0  # the last leased message
    answers: float = 0.0  # segments/s answered
    answers_from: float = 0.0
    answers_count: float = 0.0
    answered_at: float = 0.0
    owed_at: float = 0.0  # the first claim since the last answer
    round_trip_ms: float = 0.0
    unwritten: float = 0.0  # claimed segments that are not on the wire yet
    sessions: dict[str, bool] = field(default_factory=dict)  # those that asked for work: whether they are up
    parked: Ordered[tuple[float, bytes]] = field(default_factory=Ordered)  # (tag, flow key) by when it is ready
    held: Ordered[tuple[int, bytes, bytes]] = field(default_factory=Ordered)  # (key size, key, reference) by when ready


@dataclass(slots=True)
class FlowQueue:
    """The messages that share one set of limits, in order; names are as in the policy."""

    key: str
    octets: bytes
    line: tuple[str, str]
    tenant: str
    needs: tuple[str, ...]  # scopes that its messages need, the provider's last
    application: str | None
    number: str | None
    retry: str | None
    references: deque[Reference] = field(default_factory=deque)
    promised: int = 0  # messages admitted and not queued yet
    promised_until: float = 0.0
    due: list[tuple[float, int, int]] = field(default_factory=list)  # (due at, messages, segments) in the due table

    @property
    def provider(self) -> str:
        """The provider whose line it waits in."""
        return self.line[0]

    @property
    def class_name(self) -> str:
        """The class it waits in."""
        return self.line[1]


@dataclass(frozen=True, slots=True)
class Lease:
    """References that a session may claim until `lapses_at`."""

    charged_at: float
    lapses_at: float
    provider: str
    session: str
    groups: tuple[tuple[str, tuple[Reference, ...]], ...]


@dataclass(slots=True)
class NumberBucket:
    """What one recipient number has used of a limit per number (UTC ms); forgotten at `until`."""

    paid_until: float
    charged_at: float = 0.0  # the last time
    held_until: float = 0.0
    until: float = 0.0


@dataclass(slots=True)
class Answers:
    """Good and bad answers of a session or provider in parts of the breaker's time, and its measured rate."""

    newest: int = 0
    rate: float = 0.0
    parts: list[list[float]] = field(default_factory=lambda: [[0.0, 0.0] for _ in range(10)])

    def forget(self) -> None:
        """All parts are empty again."""
        for part in self.parts:
            part[0] = part[1] = 0.0


@dataclass(slots=True)
class DoorLine:
    """The Retry-After line of one scope and tenant: places given, and those that have had their time."""

    given: float = 0.0
    passed: float = 0.0
    at: float = 0.0
    until: float = 0.0
    pages: dict[int, dict[bytes, float]] = field(default_factory=dict)
    pages_until: dict[int, float] = field(default_factory=dict)


@dataclass(slots=True)
class Index:
    """Everything of one cell."""

    state: str = "lost"  # `lost`, `loading` or `ready`
    epoch: str = ""
    started_at: float = 0.0
    opened: set[str] = field(default_factory=set)
    rebuilder_until: float = -1.0
    tuning: Tuning | None = None
    classes: dict[str, ClassTuning] = field(default_factory=dict)  # also those that the policy no longer has
    scopes: dict[str, Scope] = field(default_factory=dict)
    lines: dict[tuple[str, str], Line] = field(default_factory=dict)
    providers: dict[str, Provider] = field(default_factory=dict)
    flows: dict[str, FlowQueue] = field(default_factory=dict)
    leases: dict[bytes, Lease] = field(default_factory=dict)
    lapses: Ordered[bytes] = field(default_factory=Ordered)
    numbers: dict[tuple[str, bytes], NumberBucket] = field(default_factory=dict)
    tombstones: Ordered[bytes] = field(default_factory=Ordered)
    batches: dict[bytes, float] = field(default_factory=dict)  # when each was enqueued
    answers: dict[str, Answers] = field(default_factory=dict)
    full_queues: dict[str, dict[bytes, float]] = field(default_factory=dict)
    door_lines: dict[tuple[str, str], DoorLine] = field(default_factory=dict)
    first_in_line: dict[tuple[str, str], tuple[float, float, bytes]] = field(default_factory=dict)
    wakes: set[str] = field(default_factory=set)  # sessions that have one waiting

    def breaker(self, provider: str) -> ProviderTuning:
        """When a provider counts as broken."""
        return (self.tuning.providers.get(provider) if self.tuning else None) or ProviderTuning()

    def is_open(self, class_name: str) -> bool:
        """Whether a class is served."""
        return self.state == "ready" or (self.state == "loading" and class_name in self.opened)

    def weight_of(self, tenant: str) -> float:
        """A tenant's weight."""
        assert self.tuning is not None
        return self.tuning.tenant_weights.get(tenant, self.tuning.default_weight)

    def lines_of(self, provider: str) -> Iterator[tuple[str, Line]]:
        """The lines of a provider that were ever used, in the order of the classes."""
        for name in self.classes:
            line = self.lines.get((provider, name))
            if line is not None and line.known:
                yield name, line
