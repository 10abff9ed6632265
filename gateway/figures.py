"""What a process tells of itself with each heartbeat: its counters so far, and the gauges that it keeps.

The console of any process draws its rates from these rows, so it shows the whole installation wherever it runs, and
needs no Prometheus for the last minutes. Read from the metrics, so the two cannot disagree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from prometheus_client.metrics import MetricWrapperBase

from gateway.telemetry import metrics

ACCEPTED: Final = "accepted"  # messages, deferred ones included, by class
REFUSED: Final = "refused"  # messages, by class and reason
ADMITTED: Final = "admitted"  # segments, by class
SENT: Final = "sent"  # segments (submit_sm), by class
EXPIRED: Final = "expired"  # messages, by class and cause
ANSWERS: Final = "answers"  # by session and outcome
ROUND_TRIP_S: Final = "round_trip_s"  # sum of seconds, by provider
ROUND_TRIPS: Final = "round_trips"  # how many that sum is of
RECONNECTS: Final = "reconnects"  # by session
CARRIER_ERRORS: Final = "carrier_errors"  # by provider and command_status
TENANT_MESSAGES: Final = "tenant_messages"
TENANT_SEGMENTS: Final = "tenant_segments"
TENANT_REFUSED: Final = "tenant_refused"  # by tenant and reason
AGE_S: Final = "age_s"
DEPTH: Final = "depth"
COVERAGE: Final = "coverage"
DELIVERED: Final = "delivered"
RETRY_SHARE: Final = "retry_share"
INBOX: Final = "inbox"
INBOX_AGE_S: Final = "inbox_age_s"
CALLBACKS: Final = "callbacks"
CALLBACKS_AGE_S: Final = "callbacks_age_s"
PARTITIONS: Final = "partitions_ahead_days"
CLOCK_DOUBTFUL: Final = "clock_doubtful"
_TAKEN: Final = frozenset({"accept", "defer"})
_TURNED_AWAY: Final = frozenset({"refuse", "slow_down"})
_QUEUE_KEEPER: Final = "delivery"
_KEYS_MAX: Final = 400
_NOBODY: Final[Mapping[str, Any]] = MappingProxyType({})


def read(now_at: int, role: str, tenants: Mapping[str, Any] = _NOBODY) -> dict[str, Any]:
    """The figures of this process at an instant (UTC ms): `sums` only ever rise, `now` are gauges.

    Keys read `what/which/detail`; no policy name holds a slash. At most 400 of each are told, besides `tenants`, what
    `TenantTallies.told` says of the busiest.
    """
    return {"at": now_at, "sums": _bounded(_sums()) | _tenant_sums(tenants), "now": _bounded(_gauges(role))}


def _tenant_sums(tenants: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, one in tenants.items():
        found[f"{TENANT_MESSAGES}/{name}"] = one["messages"]
        found[f"{TENANT_SEGMENTS}/{name}"] = one["segments"]
        found |= {f"{TENANT_REFUSED}/{name}/{reason}": count for reason, count in one["refused"].items()}
    return found


def _sums() -> dict[str, float]:
    found: dict[str, float] = {}

    def add(value: float, *names: str) -> None:
        if value:
            key = "/".join(names)
            found[key] = found.get(key, 0.0) + value

    for labels, value in _samples(metrics.admissions_total, "_total"):
        if labels["verdict"] in _TAKEN:
            add(value, ACCEPTED, labels["class"])
        elif labels["verdict"] in _TURNED_AWAY:
            add(value, REFUSED, labels["class"], labels["reason"])
    for labels, value in _samples(metrics.segments_admitted_total, "_total"):
        add(value, ADMITTED, labels["class"])
    for labels, value in _samples(metrics.segments_submitted_total, "_total"):
        add(value, SENT, labels["class"])
    for labels, value in _samples(metrics.expired_total, "_total"):
        add(value, EXPIRED, labels["class"], labels["cause"])
    for labels, value in _samples(metrics.submits_total, "_total"):
        add(value, ANSWERS, labels["session"], labels["outcome"])
    for labels, value in _samples(metrics.reconnects_total, "_total"):
        add(value, RECONNECTS, labels["session"])
    for labels, value in _samples(metrics.carrier_errors_total, "_total"):
        add(value, CARRIER_ERRORS, labels["provider"], labels["status"])
    for labels, value in _samples(metrics.submit_response_seconds, "_sum"):
        add(round(value, 6), ROUND_TRIP_S, labels["provider"])
    for labels, value in _samples(metrics.submit_response_seconds, "_count"):
        add(value, ROUND_TRIPS, labels["provider"])
    return found


def _gauges(role: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for labels, value in _samples(metrics.clock_doubtful):
        if labels["role"] == role:
            found[CLOCK_DOUBTFUL] = value
    for labels, value in _samples(metrics.retry_share_ratio):
        found[f"{RETRY_SHARE}/{labels['provider']}"] = round(value, 4)
    if role != _QUEUE_KEEPER:
        return found  # the others never set these: a zero of theirs would say what nobody measured
    for labels, value in _samples(metrics.queue_age_seconds):
        if labels["quantile"] == "1":
            key = f"{AGE_S}/{labels['class']}"
            found[key] = max(found.get(key, 0.0), round(value, 3))
    for labels, value in _samples(metrics.queue_depth):
        key = f"{DEPTH}/{labels['class']}"
        found[key] = found.get(key, 0.0) + value
    for labels, value in _samples(metrics.receipt_coverage_ratio):
        found[f"{COVERAGE}/{labels['provider']}"] = round(value, 4)
    for labels, value in _samples(metrics.receipt_delivered_ratio):
        found[f"{DELIVERED}/{labels['provider']}"] = round(value, 4)
    alone = {
        INBOX: metrics.receipt_inbox_depth,
        INBOX_AGE_S: metrics.receipt_inbox_oldest_seconds,
        CALLBACKS: metrics.callback_backlog,
        CALLBACKS_AGE_S: metrics.callback_oldest_seconds,
        PARTITIONS: metrics.partitions_ahead_days,
    }
    for name, gauge in alone.items():
        for _, value in _samples(gauge):
            found[name] = round(value, 3)
    return found


def _samples(metric: MetricWrapperBase, ending: str = "") -> Iterator[tuple[dict[str, str], float]]:
    for family in metric.collect():
        for sample in family.samples:
            # NaN: a gauge that this process does not know.
            if sample.name == family.name + ending and not math.isnan(sample.value):
                yield sample.labels, sample.value


def _bounded(found: dict[str, float]) -> dict[str, float]:
    return dict(sorted(found.items())[:_KEYS_MAX])
