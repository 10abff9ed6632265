"""Every metric of the gateway (contract section 4), in one table and one registry.

No label ever holds a number, a key or text.
"""

from __future__ import annotations

import math
import re
from itertools import product
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics

from smpp.protocol.status import NAMES

REGISTRY = CollectorRegistry(auto_describe=True)
_PREFIX = "sluicegate_"
_CLASSES: Final = ("otp", "transactional", "marketing", "non_priority")
_FAST_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_WAIT_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 600.0, 3600.0, 14400.0, 43200.0)
_DELAY_S = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 28800.0, 86400.0, 259200.0)

# A name that a tenant chose may be a number or a key all the same: a date of eight digits is neither.
_PRIVATE = re.compile(r"\bsg_[0-9a-f]{12}_[0-9a-f]{8,}|\+\d{6,}|\d{9,}")
_VENDOR = range(0x400, 0x500)  # SMPP 3.4, 5.1.3: statuses that carriers define

disable_created_metrics()  # type: ignore[no-untyped-call]


def name_label(name: str) -> str:
    """A tenant's own name of something as a label: what looks like a number or a key is left out."""
    return _PRIVATE.sub("#", name)


def status_label(status: int) -> str:
    """A command_status as a label. There are 2^32: names, vendors' numbers, and all the rest as one."""
    return NAMES.get(status) or (f"0x{status:08x}" if status in _VENDOR else "reserved")


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(_PREFIX + name, text, labels, registry=REGISTRY)


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    gauge = Gauge(_PREFIX + name, text, labels, registry=REGISTRY)
    if not labels:
        gauge.set(math.nan)  # a process that never looks at it does not know, and must not say 0
    return gauge


def _histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    return Histogram(_PREFIX + name, text, labels, registry=REGISTRY, buckets=buckets)


class Metrics:
    """All metrics as attributes named without the prefix."""

    def __init__(self) -> None:
        self._door()
        self._queue()
        self._egress()
        self._receipts_and_callbacks()
        self._house()

    def _door(self) -> None:
        self.admissions_total = _counter("admissions_total", "Decisions of the door.", "class", "verdict", "reason")
        self.admission_seconds = _histogram(
            "admission_seconds", "From the parsed request to the answer of the door.", _FAST_S
        )
        self.segments_admitted_total = _counter("segments_admitted_total", "Segments accepted by the door.", "class")
        self.predicted_wait_seconds = _gauge(
            "predicted_wait_seconds", "Wait that the door would promise now.", "class", "route"
        )

    def _queue(self) -> None:
        self.queue_depth = _gauge("queue_depth", "Messages that wait in the index or are leased.", "class", "provider")
        self.queue_age_seconds = _gauge(
            "queue_age_seconds", "Age of the messages that still wait.", "class", "provider", "quantile"
        )
        self.queue_wait_seconds = _histogram(
            "queue_wait_seconds", "Wait of a message, measured at its submit.", _WAIT_S, "class"
        )
        self.oldest_unserved_flow_seconds = _gauge(
            "oldest_unserved_flow_seconds", "Longest time that a flow with work got nothing.", "class"
        )
        self.tenant_queue_depth = _gauge("tenant_queue_depth", "Waiting messages of the 20 largest tenants.", "tenant")
        self.destination_queue_depth = _gauge(
            "destination_queue_depth",
            "Waiting segments of the 20 largest destinations that have a limit.",
            "destination",
        )
        self.route_queue_depth = _gauge("route_queue_depth", "Queued messages by route, in the ledger.", "route")
        self.application_queue_depth = _gauge(
            "application_queue_depth",
            "Waiting segments of the 20 largest applications that have a limit.",
            "tenant",
            "application",
        )
        self.limit_wait_seconds = _histogram("limit_wait_seconds", "How long a limit held work back.", _WAIT_S, "scope")
        self.class_wait_budget_seconds = _gauge(
            "class_wait_budget_seconds", "Longest wait before the first submit, by the policy.", "class"
        )
        self.class_door_limit_seconds = _gauge(
            "class_door_limit_seconds", "Predicted wait or age from which the door refuses, by the policy.", "class"
        )
        self.index_drift = _gauge("index_drift", "Ledger count minus index count of a line at the last check.", "line")

    def _egress(self) -> None:
        self.submits_total = _counter(
            "submits_total", "Answers to submit_sm.", "provider", "session", "outcome", "attempt"
        )
        self.segments_submitted_total = _counter("segments_submitted_total", "submit_sm written to carriers.", "class")
        self.submit_response_seconds = _histogram(
            "submit_response_seconds", "From submit_sm to submit_sm_resp.", _FAST_S, "provider"
        )
        self.carrier_errors_total = _counter(
            "carrier_errors_total", "submit_sm_resp with a command_status other than ESME_ROK.", "provider", "status"
        )
        self.session_state = _gauge("session_state", "1 for the state that a session is in.", "session", "state")
        self.session_window_used = _gauge("session_window_used", "Unanswered requests of a session.", "session")
        self.session_window_max = _gauge("session_window_max", "Most unanswered requests, by the policy.", "session")
        self.session_configured = _gauge(
            "session_configured", "1 for every session of the policy.", "session", "provider"
        )
        self.session_rate_per_s = _gauge("session_rate_per_s", "Rate that a session is allowed now.", "session")
        self.reconnects_total = _counter("reconnects_total", "Connections begun again after a loss.", "session")
        self.binds_refused_total = _counter(
            "binds_refused_total", "Binds that the carrier refused.", "session", "status"
        )
        self.route_holds_total = _counter(
            "route_holds_total", "Times that a refusal made a route rest for a while.", "route", "status"
        )
        self.claim_seconds = _histogram("claim_seconds", "Duration of a claim transaction.", _FAST_S)
        self.unconfirmed_total = _counter("unconfirmed_total", "Submits whose answer was lost.", "provider")
        self.possible_duplicates_total = _counter(
            "possible_duplicates_total", "Messages submitted again after a doubt."
        )
        self.retry_share_ratio = _gauge("retry_share_ratio", "Retries per first attempt, last minute.", "provider")
        self.retry_share_max_ratio = _gauge(
            "retry_share_max_ratio", "Retries per first attempt that the policy lets through."
        )
        self.expired_total = _counter(
            "expired_total", "Messages that our own deadlines ended.", "class", "cause", "stage"
        )
        self.suppressed_total = _counter(
            "suppressed_total", "Messages stopped by the last check before submit.", "reason"
        )

    def _receipts_and_callbacks(self) -> None:
        self.receipts_total = _counter("receipts_total", "Receipts by the carrier's word.", "provider", "state")
        self.receipt_delay_seconds = _histogram(
            "receipt_delay_seconds", "From sent to the final receipt.", _DELAY_S, "provider"
        )
        self.receipt_inbox_depth = _gauge("receipt_inbox_depth", "Receipts not merged yet, unmatched ones included.")
        self.receipt_inbox_oldest_seconds = _gauge(
            "receipt_inbox_oldest_seconds", "Age of the oldest receipt not merged yet."
        )
        self.receipt_coverage_ratio = _gauge(
            "receipt_coverage_ratio", "Share of messages sent 6 to 48 hours ago with a final receipt.", "provider"
        )
        self.receipt_delivered_ratio = _gauge(
            "receipt_delivered_ratio", "Of these messages with a final receipt: share delivered.", "provider"
        )
        self.inbound_total = _counter("inbound_total", "Texts of handsets that were handed over.", "outcome")
        self.callbacks_total = _counter("callbacks_total", "Tries of callbacks.", "outcome")
        self.callback_backlog = _gauge("callback_backlog", "Callbacks that wait or are retried.")
        self.callback_oldest_seconds = _gauge("callback_oldest_seconds", "Age of the oldest callback that waits.")

    def _house(self) -> None:
        self.policy_version = _gauge("policy_version", "Policy version in use.")
        self.policy_reloads_total = _counter("policy_reloads_total", "Policies applied or refused.", "result")
        self.messages_oldest_seconds = _gauge(
            "messages_oldest_seconds", "Age of the oldest message in a status that is not final.", "status"
        )
        self.messages_overdue_seconds = _gauge(
            "messages_overdue_seconds",
            "How long ago the most overdue message of a status should have been looked at.",
            "status",
        )
        self.ledger_answers = _gauge("ledger_answers", "1 while the heartbeat of a process reaches PostgreSQL.", "role")
        self.index_answers = _gauge("index_answers", "1 while Valkey tells a process its time.", "role")
        self.clock_offset_seconds = _gauge("clock_offset_seconds", "Queue's clock minus the local wall clock.", "role")
        self.clock_doubtful = _gauge("clock_doubtful", "1 while deadlines cannot be judged.", "role")
        self.sweep_lag_seconds = _gauge("sweep_lag_seconds", "How late the oldest due row of a sweep is.", "sweep")
        self.reroutes_total = _counter("reroutes_total", "Messages moved off a route that could not send.")
        self.due_count_seconds = _gauge("due_count_seconds", "How long the last count of the due table took.")
        self.partitions_ahead_days = _gauge("partitions_ahead_days", "Days for which partitions exist already.")
        self.role_restarts_total = _counter(
            "role_restarts_total", "Roles and stores that died and were started again.", "part"
        )


metrics = Metrics()


def begin_at_zero() -> None:
    """Shows the counters whose labels are known beforehand: an increase from nothing is no increase to Prometheus."""
    for labels in product(_CLASSES, ("wait_budget", "ttl", "send_window"), ("queued", "retry", "scheduled")):
        metrics.expired_total.labels(*labels)
    for result in ("applied", "unchanged", "invalid", "refused"):
        metrics.policy_reloads_total.labels(result)


ProcessCollector(registry=REGISTRY)
