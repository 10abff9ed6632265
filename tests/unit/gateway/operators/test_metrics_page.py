"""The table of metrics against the contract, and pages of several processes made one."""

from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.operators.metrics_page import label, merge, own_page
from gateway.telemetry import REGISTRY, metrics

# Contract section 4: name and labels.
PROMISED = [
    "admissions_total{class,verdict,reason}",
    "admission_seconds",
    "queue_depth{class,provider}",
    "queue_age_seconds{class,provider,quantile}",
    "queue_wait_seconds{class}",
    "predicted_wait_seconds{class,route}",
    "oldest_unserved_flow_seconds{class}",
    "tenant_queue_depth{tenant}",
    "destination_queue_depth{destination}",
    "submits_total{provider,session,outcome,attempt}",
    "submit_response_seconds{provider}",
    "carrier_errors_total{provider,status}",
    "limit_wait_seconds{scope}",
    "expired_total{class,cause,stage}",
    "suppressed_total{reason}",
    "session_state{session,state}",
    "session_window_used{session}",
    "session_rate_per_s{session}",
    "reconnects_total{session}",
    "claim_seconds",
    "receipts_total{provider,state}",
    "receipt_delay_seconds{provider}",
    "receipt_inbox_depth",
    "receipt_inbox_oldest_seconds",
    "receipt_coverage_ratio{provider}",
    "unconfirmed_total{provider}",
    "possible_duplicates_total",
    "callbacks_total{outcome}",
    "callback_backlog",
    "callback_oldest_seconds",
    "policy_version",
    "policy_reloads_total{result}",
    "messages_oldest_seconds{status}",
    "clock_offset_seconds{role}",
    "retry_share_ratio{provider}",
    "segments_admitted_total{class}",
    "segments_submitted_total{class}",
    "route_queue_depth{route}",
    "application_queue_depth{tenant,application}",
    "sweep_lag_seconds{sweep}",
    "partitions_ahead_days",
    "index_drift{line}",
]


@pytest.mark.parametrize("promise", PROMISED)
def test_every_promised_metric_exists(promise: str) -> None:
    name, _, labels = promise.partition("{")
    found = getattr(metrics, name)
    assert set(found._labelnames) == {label for label in labels.rstrip("}").split(",") if label}
    assert found._documentation


def test_names_on_the_page_have_the_prefix() -> None:
    names = {family.name for family in REGISTRY.collect()}
    assert all(name.startswith(("sluicegate_", "process_")) for name in names)


@pytest.mark.parametrize(
    ("sample", "labelled"),
    [
        ("up 1.0", 'up{role="api",worker="api-1"} 1.0'),
        ('x{a="b"} 2', 'x{role="api",worker="api-1",a="b"} 2'),
        ('x{role="egress"} 2', 'x{worker="api-1",role="egress"} 2'),
        ('x{tenant="a,role=\\"b"} 2', 'x{role="api",worker="api-1",tenant="a,role=\\"b"} 2'),
    ],
)
def test_samples_get_role_and_worker(sample: str, labelled: str) -> None:
    assert label(sample, "api", "api-1") == labelled


def test_merged_page_can_be_parsed_and_keeps_families_together() -> None:
    metrics.policy_version.set(7)
    page = merge([("api", "api-1", own_page()), ("egress", "egress-1", own_page())])
    families = list(text_string_to_metric_families(page))
    assert len({family.name for family in families}) == len(families)
    version = next(family for family in families if family.name == "sluicegate_policy_version")
    assert {sample.labels["worker"] for sample in version.samples} == {"api-1", "egress-1"}
    assert not re.search(r'worker="[^"]*".*worker="', page)
