"""What every question to the index may be answered with."""

from __future__ import annotations


class IndexUnavailable(Exception):
    """The index cannot answer now; `reason` is down, lost, loading, untuned, epoch or class."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the queue index is unavailable: {reason}")
        self.reason = reason
