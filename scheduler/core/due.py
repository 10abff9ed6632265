"""Work that waits in the ledger's due table, as the index counts it: buckets of (instant ms, messages, segments)."""

from __future__ import annotations

from collections.abc import Sequence

# How far the door defers, ms, where nobody knows how long a pause lasts. The scripts get it from here, and the ledger
# hastens as far when the pause ends.
LATER_MS = 60_000
BUCKETS_MAX = 256  # per flow: the index reads them at each question about the flow


def coarsened(buckets: Sequence[tuple[int, int, int]], at_most: int = BUCKETS_MAX) -> list[tuple[int, int, int]]:
    """The same work in order of time and in at most so many buckets; a joined bucket falls due with its last part."""
    kept = sorted(buckets)
    width = 1_000
    while len(kept) > at_most:
        joined: dict[int, tuple[int, int, int]] = {}
        for due_at, messages, segments in kept:
            edge = -(-due_at // width) * width
            _, before, parts = joined.get(edge, (edge, 0, 0))
            joined[edge] = (edge, before + messages, parts + segments)
        kept = sorted(joined.values())
        width *= 2
    return kept
