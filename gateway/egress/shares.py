"""Which share of the submits of late were retries, per provider (metric `retry_share_ratio`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from gateway.telemetry import metrics

WITHIN_S: Final = 60.0
_Counts = dict[tuple[str, str], float]


class RetryShares:
    """Looks at the counters of answers every second or so and tells what the last minute was like."""

    def __init__(self, now_mono: Callable[[], float]) -> None:
        self._now_mono = now_mono
        self._looks: deque[tuple[float, _Counts]] = deque()

    def look(self) -> None:
        """Sets the metric of every provider that answered a first attempt in the last minute."""
        now_mono, counts = self._now_mono(), _answered()
        self._looks.append((now_mono, counts))
        while len(self._looks) > 1 and self._looks[1][0] <= now_mono - WITHIN_S:
            self._looks.popleft()
        before = self._looks[0][1]
        for provider, _ in counts:
            first = counts.get((provider, "first"), 0.0) - before.get((provider, "first"), 0.0)
            retries = counts.get((provider, "retry"), 0.0) - before.get((provider, "retry"), 0.0)
            metrics.retry_share_ratio.labels(provider).set(retries / first if first > 0 else min(retries, 1.0))


def _answered() -> _Counts:
    """(provider, first | retry) -> answers so far, over all sessions and outcomes."""
    counts: _Counts = {}
    for family in metrics.submits_total.collect():
        for sample in family.samples:
            if sample.name.endswith("_total"):
                key = sample.labels["provider"], sample.labels["attempt"]
                counts[key] = counts.get(key, 0.0) + sample.value
    return counts
