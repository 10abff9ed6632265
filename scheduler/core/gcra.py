"""The arithmetic of one limit (generic cell rate algorithm), as the scripts do it.

A bucket is one number, `tat` (theoretical arrival time, ms): what is above `now` is debt. Parameters come with each
call, so a policy change needs no migration. `interval_ms` is the price of a segment, `burst` what may leave at once.
Over any window w: taken <= w / interval_ms + burst, while each charge is at most burst.
"""

from __future__ import annotations

from scheduler.core.values import valueclass


@valueclass
class Bucket:
    """The state of a limit: `tat_at` in ms, `base_at` when it was last found full at a charge."""

    tat_at: float
    base_at: float = 0.0


def empty(now: float, interval_ms: float, burst: int) -> Bucket:
    """A bucket that lets one segment through after one interval: what an unknown bucket reads as."""
    return Bucket(now + burst * interval_ms)


def tokens(bucket: Bucket, now: float, interval_ms: float, burst: int) -> float:
    """Segments that may leave now; negative while a long message is paid off."""
    return burst - max(0.0, bucket.tat_at - now) / interval_ms


def ready_in_ms(bucket: Bucket, now: float, interval_ms: float, burst: int, segments: int) -> float:
    """Time until a message of so many segments has the room that it needs: min(segments, burst)."""
    missing = min(segments, burst) - tokens(bucket, now, interval_ms, burst)
    return max(0.0, missing * interval_ms)


def charge(bucket: Bucket, now: float, interval_ms: float, segments: int) -> Bucket:
    """The bucket after a message left: a long one is charged whole and leaves a debt."""
    base_at = now if bucket.tat_at <= now else bucket.base_at
    return Bucket(max(bucket.tat_at, now) + segments * interval_ms, base_at)


def give_back(bucket: Bucket, charged_at: float, interval_ms: float, segments: int) -> Bucket:
    """The bucket without a charge that was never used.

    Where the bucket has been full since, the charge is absorbed by time and nothing may come back: else more than
    burst could leave at once (invariant I19).
    """
    if bucket.base_at > charged_at:
        return bucket
    return Bucket(bucket.tat_at - segments * interval_ms, bucket.base_at)


def rescale(bucket: Bucket, now: float, old_interval_ms: float, new_interval_ms: float) -> Bucket:
    """The same fill under another rate: debt is counted in segments, not in time."""
    if bucket.tat_at <= now or old_interval_ms <= 0:
        return bucket
    return Bucket(now + (bucket.tat_at - now) * new_interval_ms / old_interval_ms, bucket.base_at)
