"""The compiled policy: one frozen snapshot that every decision of one moment is made from.

Durations are milliseconds, rates are segments (submit_sm) per second unless a field says otherwise.
A snapshot never changes; a new version is a new object (contract section 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from smpp.text import Carriage


@dataclass(frozen=True, slots=True)
class Limit:
    """A rate and what may leave at once; `burst` >= 1."""

    rate_per_s: float
    burst: int


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """What a class of traffic is promised."""

    name: str
    wait_budget_ms: int
    door_share: float
    ttl_default_ms: int
    ttl_max_ms: int
    weight: int
    quantum: int
    when_full: str  # refuse | defer
    unconfirmed: str  # hold | resend_once | fail
    max_attempts: int
    max_segments: int | None = None
    consent: str | None = None  # opt_out | opt_in


@dataclass(frozen=True, slots=True)
class Retries:
    """Back-off of refused submits: full jitter between `base_ms` and `max_ms`."""

    base_ms: int = 1_000
    max_ms: int = 300_000
    share: float = 0.1


@dataclass(frozen=True, slots=True)
class CallbackTarget:
    """Where and how a tenant is told; `secrets` are references (env:, file:) or literals."""

    url: str | None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    events: tuple[str, ...] = ("final",)
    allow_private: bool = False


@dataclass(frozen=True, slots=True)
class Tenant:
    """Rules of one account (defaults already folded in)."""

    name: str
    weight: int
    limits: Limit | None
    requests: Limit
    daily_segments: int | None
    classes: frozenset[str]
    default_class: str
    default_sender: str | None
    senders: Mapping[str, Limit | None] | None  # None: any sender
    destinations: tuple[str, ...] | None  # None: everywhere
    accept_00_prefix: bool
    applications: Mapping[str, Limit | None]
    inbound_numbers: tuple[str, ...]
    callbacks: CallbackTarget | None
    tlvs: frozenset[str]


@dataclass(frozen=True, slots=True)
class SendWindow:
    """Local hours in which the named classes may leave."""

    classes: frozenset[str]
    from_minute: int
    to_minute: int
    timezone: str


@dataclass(frozen=True, slots=True)
class Destination:
    """A named set of number prefixes with limits of its own."""

    name: str
    prefixes: tuple[str, ...]
    limits: Limit | None
    per_number: Limit | None
    send_window: SendWindow | None


@dataclass(frozen=True, slots=True)
class VendorTlv:
    """A carrier's own TLV that a message may carry."""

    tag: int
    type: str  # c_octet | octets | int8 | int16 | int32
    length_max: int = 255  # octets, the NUL of a c_octet not counted


@dataclass(frozen=True, slots=True)
class StatusOverride:
    """What a command_status means at this provider."""

    retry: str  # throttle | later | never | hold
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a carrier speaks SMPP (contract section 3)."""

    long_messages: str = "udh8"
    default_alphabet: str = "gsm7"
    validity_period: str = "relative"
    receipt_ids: str = "as_is"
    receipt_dates: str = "auto"
    timezone: str = "UTC"
    own_reference: str = "none"
    register: str = "final"
    tlvs: Mapping[str, VendorTlv] = field(default_factory=dict)
    national_shift: str = "none"
    address: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    service_type: str = ""
    status_overrides: Mapping[int, StatusOverride] = field(default_factory=dict)
    esm_class: int = 0  # mode and type bits of every submit_sm (5.2.12); the header's bit is the gateway's
    unflagged_receipts: bool = False  # receipts come without esm_class bit and TLVs, known by their text alone

    @property
    def carriage(self) -> Carriage:
        """What of the dialect decides how a text is encoded and cut."""
        return _carriage(self.long_messages, self.default_alphabet, self.national_shift)


@lru_cache(maxsize=256)  # asked for with each message
def _carriage(long_messages: str, default_alphabet: str, national_shift: str) -> Carriage:
    return Carriage(long_messages, default_alphabet, national_shift)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """TLS of a session; file references only."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: bool = True


@dataclass(frozen=True, slots=True)
class Session:
    """One bind; `password` is a reference (env:, file:) or a literal, see `gateway.policy.secrets`."""

    name: str
    provider: str
    host: str
    port: int
    tls: TlsFiles | None
    system_id: str
    password: str = field(repr=False)
    system_type: str
    bind: str  # transceiver | transmitter | receiver
    window: int
    limits: Limit | None
    enquire_link_ms: int
    response_timeout_ms: int
    inactivity_ms: int
    reconnect_base_ms: int
    reconnect_max_ms: int


@dataclass(frozen=True, slots=True)
class Breaker:
    """When a session or provider counts as broken."""

    errors: float = 0.5
    of: int = 20
    within_ms: int = 10_000
    probe_after_ms: int = 5_000


@dataclass(frozen=True, slots=True)
class Ramp:
    """Share of its rate that a fresh bind starts with."""

    start: float = 0.25
    double_every_ms: int = 5_000


@dataclass(frozen=True, slots=True)
class Provider:
    """A carrier and its binds."""

    name: str
    limits: Limit | None
    dialect: Dialect
    sessions: Mapping[str, Session]
    breaker: Breaker
    ramp: Ramp


@dataclass(frozen=True, slots=True)
class Route:
    """A way to a provider for what it matches."""

    name: str
    provider: str
    prefixes: tuple[str, ...]  # empty: every number
    classes: frozenset[str] | None
    tenants: frozenset[str] | None
    senders: frozenset[str] | None
    limits: Limit | None
    preference: int
    weight: int


@dataclass(frozen=True, slots=True)
class Inbound:
    """Stop and start words of handsets, upper case."""

    stop_words: tuple[str, ...]
    start_words: tuple[str, ...]
    join_timeout_ms: int


@dataclass(frozen=True, slots=True)
class ReceiptRules:
    """How long a receipt is waited for and kept."""

    cutoff_ms: int
    inbox_retention_ms: int


@dataclass(frozen=True, slots=True)
class Privacy:
    """How long texts and numbers stay."""

    keep_text_ms: int
    keep_otp_text_ms: int
    hash_numbers_after_ms: int
    keep_messages_ms: int
    log_numbers: str  # hashed | full


@dataclass(frozen=True, slots=True)
class CallbackRules:
    """How callbacks are tried."""

    give_up_ms: int
    timeout_ms: int
    per_endpoint: int


@dataclass(frozen=True, slots=True)
class LogRules:
    """What processes write into their logs; None: what SLUICEGATE_LOG_LEVEL says."""

    level: str | None = None  # debug | info | warning | error


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that operators tune, at one version."""

    version: int
    classes: Mapping[str, TrafficClass]
    retries: Retries
    tenant_defaults: Tenant  # name ""
    tenants: Mapping[str, Tenant]
    destinations: Mapping[str, Destination]
    providers: Mapping[str, Provider]
    routes: Mapping[str, Route]
    inbound: Inbound
    receipts: ReceiptRules
    privacy: Privacy
    callbacks: CallbackRules
    logs: LogRules = field(default_factory=LogRules)
