"""Labels are bounded, and hold no number or key, whatever carriers answer and tenants call their applications."""

from __future__ import annotations

import pytest

from gateway.delivery.gauges import show_queues
from gateway.telemetry import metrics, name_label, status_label
from scheduler.core.asks import IndexReport, ScopeReport
from smpp.protocol.status import NAMES


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("spring-sale", "spring-sale"),
        ("sale 20261130", "sale 20261130"),
        ("+447700900123", "#"),
        ("to +447700900123!", "to #!"),
        ("447700900123", "#"),
        ("sg_0123456789ab_0123456789abcdef", "#"),
        ("", ""),
    ],
)
def test_names_that_look_private_are_not_shown(name: str, shown: str) -> None:
    assert name_label(name) == shown


def test_a_carrier_cannot_make_labels_without_end() -> None:
    every = {status_label(status) for status in range(0x10000)} | {status_label(2**32 - 1), status_label(0xDEADBEEF)}
    assert len(every) == len(set(NAMES.values()) | {f"0x{code:08x}" for code in range(0x400, 0x500)} | {"reserved"})
    assert status_label(0x58) == "ESME_RTHROTTLED" and status_label(0x401) == "0x00000401"


def test_applications_named_by_numbers_share_one_sample() -> None:
    waiting = {f"acme/+44770090012{n}": n for n in range(1, 4)} | {"acme/sale": 9}
    scopes = {("application", name): ScopeReport(count, 0.0, 0, False) for name, count in waiting.items()}
    for _ in range(2):  # a second look replaces the first
        show_queues(IndexReport(lines={}, tenants={}, scopes=scopes))
    found = {
        tuple(sample.labels.values()): sample.value
        for family in metrics.application_queue_depth.collect()
        for sample in family.samples
    }
    assert found == {("acme", "#"): 6, ("acme", "sale"): 9}
