"""What endings of submits came to, in the metrics: whoever writes them, the process that submitted or one that buries.

Counted from what the ledger took, so that counters and ledger tell the same (contract section 4).
"""

from __future__ import annotations

from gateway.domain import outcomes
from gateway.ledger.outcomes import Stored
from gateway.telemetry import metrics


def count_endings(stored: Stored) -> None:
    """Adds up what a committed batch changed."""
    for row, change in stored.changes:
        if change.outcome == outcomes.UNCONFIRMED:
            metrics.unconfirmed_total.labels(row["provider"]).inc()
            if change.requeue is not None:
                metrics.possible_duplicates_total.inc()
        if change.expiry is not None:
            metrics.expired_total.labels(row["class"], change.expiry["cause"], change.expiry["stage"]).inc()
