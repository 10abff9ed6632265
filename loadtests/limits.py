"""Rates judged on all windows of a carrier's journal at once (I18 as it can be seen from outside)."""

from __future__ import annotations

from collections.abc import Sequence

JITTER_S = 0.25  # what the wire and the carrier's own loop may shift


def worst_excess(instants_s: Sequence[float], rate_per_s: float, burst: float) -> float:
    """Submits above `rate x (window + JITTER_S) + burst + 1` in the worst of all windows; at most 0 where it held.

    Every window begins and ends with a submit: with g(n) = n - rate x instant, the worst window is the greatest rise
    of g, so one pass looks at all of them.
    """
    allowed = rate_per_s * JITTER_S + burst + 1
    worst, lowest = 1 - allowed, float("inf")
    for n, at_s in enumerate(sorted(instants_s)):
        level = n - rate_per_s * at_s
        lowest = min(lowest, level)
        worst = max(worst, level - lowest + 1 - allowed)
    return worst
