"""How the simulated carrier behaves; docs/carrier-simulator.md explains every setting with examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from smpp.simulator.dialect import Dialect
from smpp.simulator.kinds import Delay

BAD_PDUS: Final = (
    "long_length", "short_length", "unknown_command", "sm_length", "tlv_length", "no_nul", "stray_answer",
    "doubled_answer", "wrong_answer", "nack", "nack_zero", "bare_answer", "error_with_body", "garbage",
)  # fmt: skip
MESSAGE_IDS: Final = ("hexadecimal", "decimal", "uuid", "counter", "empty")
BIND_KINDS: Final = ("transceiver", "transmitter", "receiver")
ACTIONS: Final = ("inbound", "backlog", "alert", "probe", "bad_pdu", "cut", "unbind")


@dataclass(frozen=True, slots=True)
class Phase:
    """Changes that take effect `at_s` seconds after the start."""

    at_s: float
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """What is different for submits that match. `*` and `?` in patterns stand for any letters and for any one."""

    destination: str = "*"
    source: str = "*"
    status: int | None = None
    ratio: float = 1.0
    """Share of the matching submits that the rule takes."""
    times: int = 0
    """How many submits the rule takes, then it is over; 0 has no end."""
    answer_delay_ms: Delay | None = None
    silent: bool = False
    """Never answered."""
    receipt: str | None = None
    """Final state of the receipt, a word of appendix B, or `none`."""
    receipt_delay_ms: Delay | None = None
    cut: bool = False
    """The connection is cut instead of an answer."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something the carrier does once: `at_s` after its start, `after_bind_s` after each good bind, or when told."""

    do: str
    at_s: float | None = None
    after_bind_s: float | None = None
    every_s: float | None = None
    """Again and again in this interval, while the simulator (or that session) lasts."""
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SimulatorSettings:
    """Durations in ms or s as named, ratios 0 to 1; a limit of 0 means none."""

    host: str = "127.0.0.1"
    port: int = 2775
    """0 takes any free port; `Simulator.port` tells it."""
    tls_certificate: str | None = None
    """PEM file; with it the port speaks TLS."""
    tls_key: str | None = None
    tls_client_ca: str | None = None
    """PEM file; clients have to show a certificate of this authority."""
    commands: bool = False
    """`carrier-sim` reads actions from its standard input, one a line."""
    journal: str | None = None
    """File for one JSON line per event. It holds numbers and the beginning of texts: an instrument for tests."""
    keep_submits: int = 0
    """Last submit_sm that `Simulator.submits` keeps in memory."""
    keep_messages: int = 10_000
    """Last messages that query_sm and cancel_sm find."""
    seed: int | None = None
    phases: tuple[Phase, ...] = ()
    actions: tuple[Action, ...] = ()

    system_id: str = "simulator"
    """What bind responses carry."""
    sc_interface_version: int = 0x34
    """TLV of bind responses; 0 leaves it out."""
    password: str | None = None
    """Asked of every bind when set."""
    accounts: Mapping[str, str] = field(default_factory=dict)
    """system_id to password; when set, nobody else may bind. Binds of one account share its receipts."""
    bind_kinds: tuple[str, ...] = BIND_KINDS
    bind_status: int = 0
    """Answered to binds when not 0: 0x05 already bound, 0x0E wrong password."""
    bind_refusals: int = 0
    """How many binds `bind_status` refuses, then they are taken; 0 refuses all."""
    bind_delay_ms: Delay = 0
    bind_silent: bool = False
    max_binds: int = 0
    outbind: bool = False
    """An outbind greets every connection."""
    already_bound_s: float = 0.0
    """How long a system_id is answered 0x05 after a connection that ended without unbind."""

    answer_delay_ms: Delay = 0
    message_ids: str = "hexadecimal"
    throttle_per_s: float = 0.0
    """submit_sm per second, all sessions together, above which ESME_RTHROTTLED is answered; a tenth of it may burst."""
    window_max: int = 0
    """Unanswered submits of one session, above which the next one is refused."""
    window_status: int = 0x58
    """How it is refused; 0 never answers it."""
    error_ratio: float = 0.0
    error_status: int = 0x08
    drop_ratio: float = 0.0
    """Share of submit_sm that is never answered."""
    dropped_delivered: bool = False
    """Whether a message whose answer was dropped is still delivered and reported by a receipt."""
    rules: tuple[Rule, ...] = ()
    """The first that matches takes a submit, before the ratios above."""

    receipts: bool = True
    receipt_delay_ms: Delay = 200
    receipt_before_answer: bool = False
    receipt_fail_ratio: float = 0.0
    """Share of receipts that say UNDELIV."""
    receipt_outcomes: Mapping[str, float] = field(default_factory=dict)
    """Words of appendix B with their weights, instead of DELIVRD and receipt_fail_ratio."""
    receipt_lost_ratio: float = 0.0
    receipt_double_ratio: float = 0.0
    """Share of receipts that are sent a second time, a receipt_delay_ms later."""
    receipt_contradicted_ratio: float = 0.0
    """Share of final receipts that another final state follows, a receipt_delay_ms later."""
    intermediate: tuple[str, ...] = ()
    """Receipts before the final one, asked for or not; evenly over receipt_delay_ms."""
    intermediate_late: bool = False
    """They come after the final one instead."""
    receipt_window: int = 100
    """Unanswered deliver_sm per session."""
    receipts_held_max: int = 200_000
    """Receipts kept for later and for an ESME that is away; beyond it they are dropped and counted."""
    receipt_retry_ms: int = 1_000
    """Pause before a receipt that was refused or not answered is sent again."""
    dialect: Dialect = field(default_factory=Dialect)

    close_after: int = 0
    """submit_sm of one session after which its connection is cut."""
    cut_after_octets: int = 0
    """Octets written to one connection after which it is cut, wherever in a PDU that is."""
    cut_after_pdus: int = 0
    """PDUs written to one connection after which it is cut, in the middle of the next one."""
    reset: bool = False
    """Cuts send RST; otherwise FIN."""
    unbind_after: int = 0
    """submit_sm of one session after which the carrier unbinds."""
    unbind_after_s: float = 0.0
    bad_pdu: str | None = None
    bad_pdu_every: int = 1
    """Every how many answers to submit_sm the bad PDU comes."""
    read_pause_ms: int = 0
    """Pause after each read: a carrier that reads slowly."""
    black_hole: bool = False
    """Nothing is read or written while connections stay open."""

    enquire_link_s: float = 30.0
    response_timeout_s: float = 30.0
    inactivity_s: float = 300.0
