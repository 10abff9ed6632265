"""Counters of every submit, looked up by their labels once: the look costs four times what counting does."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from prometheus_client import Counter, Histogram

from gateway.telemetry import metrics

_KEPT: Final = 4_096  # sessions x outcomes of a large installation; others are looked up again


@lru_cache(maxsize=_KEPT)
def submits(provider: str, session: str, outcome: str, attempt: str) -> Counter:
    """Answers to submit_sm."""
    return metrics.submits_total.labels(provider, session, outcome, attempt)


@lru_cache(maxsize=_KEPT)
def segments(class_name: str) -> Counter:
    """submit_sm written, of a class."""
    return metrics.segments_submitted_total.labels(class_name)


@lru_cache(maxsize=_KEPT)
def waits(class_name: str) -> Histogram:
    """Seconds from the queue to the first submit_sm, of a class."""
    return metrics.queue_wait_seconds.labels(class_name)


@lru_cache(maxsize=_KEPT)
def receipts(provider: str, word: str) -> Counter:
    """Receipts by the carrier's word."""
    return metrics.receipts_total.labels(provider, word)
