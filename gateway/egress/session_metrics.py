"""What the metrics page of a process says of its sessions."""

from __future__ import annotations

from contextlib import suppress

from prometheus_client import Gauge

from gateway.egress.binder import STATES
from gateway.telemetry import metrics


def show_state(name: str, state: str) -> None:
    """Shows which of STATES a session is in."""
    for each in STATES:
        metrics.session_state.labels(name, each).set(1 if each == state else 0)


def forget(name: str) -> None:
    """Takes a session off the page of this process."""
    for state in STATES:
        _remove(metrics.session_state, name, state)
    for gauge in (metrics.session_window_used, metrics.session_window_max, metrics.session_rate_per_s):
        _remove(gauge, name)


def _remove(gauge: Gauge, *labels: str) -> None:
    with suppress(KeyError):  # never shown
        gauge.remove(*labels)
