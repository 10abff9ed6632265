"""Limits per recipient number: a bucket per number that is forgotten once it is full again."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from scheduler.core.records import NO_NUMBER
from scheduler.plain.state import FlowQueue, NumberBucket, Scope
from scheduler.plain.turn import Turn, has_room

_FORGET_MS = 60_000
_LONGEST = 255  # segments of a message at most


class Numbers:
    """The number buckets that one call touches."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._seen: dict[tuple[str, bytes], NumberBucket] = {}

    def limit(self, flow: FlowQueue, number: bytes) -> Scope | None:
        """The limit per number that a message to `number` needs room in."""
        if flow.number is None or number == NO_NUMBER:
            return None
        scope = self._turn.scope(flow.number)
        return scope if scope is not None and scope.interval_ms > 0 else None

    def bucket(self, scope: Scope, number: bytes) -> NumberBucket:
        """The bucket of a number; an unknown one reads as empty at the start of the epoch."""
        name = scope.name, number
        found = self._seen.get(name) or self._turn.index.numbers.get(name)
        if found is None or (name not in self._seen and self._turn.now > found.until):
            found = NumberBucket(self._turn.started_at + scope.burst * scope.pace_ms)
        elif name not in self._seen:  # more was owed under another rate
            most = self._turn.now + (scope.burst + _LONGEST) * scope.pace_ms
            found = replace(found, paid_until=min(found.paid_until, most))
        self._seen[name] = found
        return found

    def missing(self, scope: Scope, number: bytes, segments: int) -> float:
        """Segments that a message lacks."""
        debt = max(0.0, self.bucket(scope, number).paid_until - self._turn.now) / scope.pace_ms
        return min(segments, scope.burst) - (scope.burst - debt)

    def ready_at(self, scope: Scope, number: bytes, segments: int, *, held_before: bool = False) -> float | None:
        """None where the number has room, else when it will have.

        Held messages of one number stand in a line, so that they do not meet again.
        """
        missing = self.missing(scope, number, segments)
        if has_room(missing):
            return None
        ready = self._turn.now + missing * scope.pace_ms
        bucket = self.bucket(scope, number)
        if held_before or bucket.held_until <= self._turn.now:
            return ready
        return max(ready, bucket.held_until + segments * scope.pace_ms)

    def hold(self, scope: Scope, number: bytes, until: float) -> None:
        """A message of this number waits until then."""
        bucket = self.bucket(scope, number)
        bucket.held_until = max(bucket.held_until, until)
        self._keep(scope, number, bucket)

    def begin_line(self, scope: Scope, number: bytes) -> None:
        """The line of this number's held messages begins anew: it was reckoned under another rate."""
        bucket = self.bucket(scope, number)
        if bucket.held_until > 0:
            bucket.held_until = 0
            self._keep(scope, number, bucket)

    def charge(self, scope: Scope, number: bytes, segments: int) -> None:
        """A message leaves."""
        bucket, now = self.bucket(scope, number), self._turn.now
        bucket.charged_at = now
        bucket.paid_until = max(bucket.paid_until, now) + segments * scope.pace_ms
        self._keep(scope, number, bucket)

    def give_back(self, scope: Scope, number: bytes, segments: int, charged_at: float) -> None:
        """A charge that was never used returns where nothing was charged since; the debts met are not kept for each."""
        bucket = self.bucket(scope, number)
        if bucket.charged_at <= charged_at:
            bucket.paid_until = max(charged_at, bucket.paid_until - segments * scope.pace_ms)
            self._keep(scope, number, bucket)

    def _keep(self, scope: Scope, number: bytes, bucket: NumberBucket) -> None:
        now = self._turn.now
        bucket.until = now + ceil(max(bucket.paid_until, bucket.held_until, now) - now + _FORGET_MS)
        self._turn.index.numbers[scope.name, number] = bucket
