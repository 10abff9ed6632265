"""The arithmetic of one limit (generic cell rate algorithm), as the scripts do it.

A bucket is one number, `tat` (theoretical arrival time, ms): what is above `now` is debt. Parameters come with each
call, so a policy change needs no migration. `interval_ms` is the price of a segment, `burst` what may leave at once.
Over any window w: taken <= w / interval_ms + burst, while each charge is at most burst.

A charge that was never used comes back as far as it is still in the bucket: without it the bucket may have been full at
a later charge, and time since then would have been lost. So at most the least debt that a later charge met comes back.
"""

from __future__ import annotations

from typing import Final

from scheduler.core.values import valueclass

SLOT_MS: Final = 3_000.0  # the least debt is known per slot of time; a lease is over before two of them
NONE_MET: Final = 1e15


@valueclass
class Debts:
    """What charges of late met: `low` is the least debt (segments) since `low_at`, `low_before` of the slot before."""

    last_at: float  # the last charge, ms
    low_at: float
    low: float = NONE_MET
    low_before: float = 0.0


def met(debts: Debts, now: float, debt: float) -> Debts:
    """After something took from a bucket that owed so many segments, or made it smaller."""
    age = now - debts.low_at
    if age < SLOT_MS:
        return Debts(debts.last_at, debts.low_at, min(debts.low, debt), debts.low_before)
    return Debts(debts.last_at, now, min(NONE_MET, debt), debts.low if age < 2 * SLOT_MS else NONE_MET)


def charged(debts: Debts, now: float, debt: float) -> Debts:
    """After a charge of a bucket that owed so many segments before it."""
    seen = met(debts, now, debt)
    return Debts(now, seen.low_at, seen.low, seen.low_before)


def returned(debts: Debts, charged_at: float, segments: float) -> tuple[float, Debts]:
    """What comes back of a charge (segments), and what the later charges would have met without it."""
    if debts.last_at <= charged_at:
        return segments, debts
    if charged_at < debts.low_at - SLOT_MS:
        return 0.0, debts
    back, before = min(segments, debts.low), debts.low_before
    if charged_at < debts.low_at:
        back = min(back, before)
        before -= back
    return back, Debts(debts.last_at, debts.low_at, debts.low - back, before)


@valueclass
class Bucket:
    """The state of a limit: `tat_at` in ms, and what its charges met."""

    tat_at: float
    debts: Debts


def full(now: float) -> Bucket:
    """A bucket that owes nothing."""
    return Bucket(now, Debts(now, now))


def empty(now: float, interval_ms: float, burst: int) -> Bucket:
    """A bucket that lets one segment through after one interval: what an unknown bucket reads as."""
    return Bucket(now + burst * interval_ms, Debts(now, now))


def tokens(bucket: Bucket, now: float, interval_ms: float, burst: int) -> float:
    """Segments that may leave now; negative while a long message is paid off."""
    return burst - _debt(bucket, now, interval_ms)


def ready_in_ms(bucket: Bucket, now: float, interval_ms: float, burst: int, segments: int) -> float:
    """Time until a message of so many segments has the room that it needs: min(segments, burst)."""
    missing = min(segments, burst) - tokens(bucket, now, interval_ms, burst)
    return max(0.0, missing * interval_ms)


def charge(bucket: Bucket, now: float, interval_ms: float, segments: int) -> Bucket:
    """The bucket after a message left: a long one is charged whole and leaves a debt."""
    debts = charged(bucket.debts, now, _debt(bucket, now, interval_ms))
    return Bucket(max(bucket.tat_at, now) + segments * interval_ms, debts)


def give_back(bucket: Bucket, charged_at: float, interval_ms: float, segments: int) -> Bucket:
    """The bucket as it would be, or a little emptier, without a charge that was never used (invariants I18, I19)."""
    back, debts = returned(bucket.debts, charged_at, segments)
    return Bucket(bucket.tat_at - back * interval_ms, debts)


def rescale(bucket: Bucket, now: float, old_interval_ms: float, new_interval_ms: float) -> Bucket:
    """The same fill under another rate: debt is counted in segments, not in time."""
    if bucket.tat_at <= now or old_interval_ms <= 0:
        return bucket
    return Bucket(now + (bucket.tat_at - now) * new_interval_ms / old_interval_ms, bucket.debts)


def _debt(bucket: Bucket, now: float, interval_ms: float) -> float:
    return max(0.0, bucket.tat_at - now) / interval_ms
