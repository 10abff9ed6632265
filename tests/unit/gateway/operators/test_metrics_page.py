"""The table of metrics against the contract, and pages of several processes made one."""

from __future__ import annotations

import re
import subprocess
import sys

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
    # Beyond the contract, in its style.
    "class_wait_budget_seconds{class}",
    "class_door_limit_seconds{class}",
    "session_configured{session,provider}",
    "session_window_max{session}",
    "retry_share_max_ratio",
    "messages_overdue_seconds{status}",
    "ledger_answers{role}",
    "index_answers{role}",
]
# The rest are gauges.
HISTOGRAMS = {
    "admission_seconds", "queue_wait_seconds", "submit_response_seconds", "limit_wait_seconds", "claim_seconds",
    "receipt_delay_seconds",
}  # fmt: skip


@pytest.mark.parametrize("promise", PROMISED)
def test_every_promised_metric_exists(promise: str) -> None:
    name, _, labels = promise.partition("{")
    found = getattr(metrics, name)
    assert set(found._labelnames) == {label for label in labels.rstrip("}").split(",") if label}
    assert found._documentation
    kind = "histogram" if name in HISTOGRAMS else "counter" if name.endswith("_total") else "gauge"
    assert found._type == kind


def test_no_other_metric_is_a_histogram_or_lacks_help() -> None:
    for collector in list(REGISTRY._collector_to_names):
        kind = getattr(collector, "_type", "gauge")
        assert kind != "histogram" or collector._name.removeprefix("sluicegate_") in HISTOGRAMS  # type: ignore[attr-defined]
        assert getattr(collector, "_documentation", "told")


def test_labels_are_of_bounded_kinds() -> None:
    """Names of the policy, words of ours and of the protocol: never a number, a key or a text."""
    bounded = {
        "class", "verdict", "reason", "provider", "quantile", "route", "tenant", "destination", "application",
        "session", "state", "status", "outcome", "attempt", "scope", "cause", "stage", "result", "role", "sweep",
        "line", "part",
    }  # fmt: skip
    for collector in list(REGISTRY._collector_to_names):
        assert set(getattr(collector, "_labelnames", ())) <= bounded


@pytest.fixture(scope="module")
def first_page() -> str:
    """The page of a process that has just begun: in this one, other tests have counted before."""
    program = """
from gateway.operators.metrics_page import own_page
from gateway.telemetry import begin_at_zero
begin_at_zero()
print(own_page())
"""
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    ).stdout


def test_what_a_process_does_not_know_is_not_nought(first_page: str) -> None:
    assert "sluicegate_due_count_seconds NaN" in first_page


def test_counters_of_alerts_begin_at_nought(first_page: str) -> None:
    assert 'sluicegate_expired_total{cause="wait_budget",class="otp",stage="queued"} 0.0' in first_page
    assert 'sluicegate_policy_reloads_total{result="invalid"} 0.0' in first_page


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
