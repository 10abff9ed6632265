"""Who sends what, when, and what a refusal makes of them."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Manner = Literal["once", "obedient"]


@dataclass(frozen=True, slots=True)
class Kind:
    """Messages that differ in nothing but their number."""

    tenant: str
    class_name: str
    to: str = "+393330000000"
    application: str | None = None
    ttl_ms: int | None = None
    text: str = "Your code is 123456"


@dataclass(slots=True)
class Request:
    """One message at the door; `place` is its idempotency key's place in the waiting line."""

    kind: Kind
    place: bytes
    obedient: bool
    first_at: float
    tries: int = 0


@dataclass(slots=True)
class Stream:
    """Messages of some kinds at a rate, from `start_s` until `end_s` or until `amount` are offered.

    `poisson` arrivals, `even` ones, or `bursts` of `burst` messages at that mean rate. `once`: a refused message is
    given up (the next comes anyway, as from a client that never listens); `obedient`: it comes again after Retry-After.
    With several kinds each message is of a random one; `in_turn` takes them one after another.
    """

    kinds: Sequence[Kind]
    rate_per_s: float
    start_s: float = 0.0
    end_s: float = float("inf")
    amount: int | None = None
    pattern: Literal["poisson", "even", "bursts"] = "poisson"
    burst: int = 1
    manner: Manner = "once"
    in_turn: bool = False
    offered: int = 0
    _next_s: float | None = field(default=None)


class Clients:
    """All streams, and the messages that wait for their next try."""

    def __init__(self, rng: random.Random, start_at: float) -> None:
        self.streams: list[Stream] = []
        self.start_at = start_at
        self._rng = rng
        self._again: list[tuple[float, int, Request]] = []
        self._numbers = 0

    @property
    def waiting(self) -> int:
        """Obedient messages that were refused and will come again."""
        return len(self._again)

    def come_again(self, request: Request, at: float) -> None:
        """A refused message's next try."""
        self._numbers += 1
        heapq.heappush(self._again, (at, self._numbers, request))

    def due(self, now: float) -> list[Request]:
        """The requests that reach the door until `now` (ms)."""
        found: list[Request] = []
        while self._again and self._again[0][0] <= now:
            found.append(heapq.heappop(self._again)[2])
        elapsed = (now - self.start_at) / 1000
        for stream in self.streams:
            if elapsed >= stream.start_s and (stream.amount is None or stream.offered < stream.amount):
                self._arrivals(stream, elapsed, now, found)
        return found

    def _arrivals(self, stream: Stream, elapsed: float, now: float, found: list[Request]) -> None:
        rng, kinds = self._rng, stream.kinds
        at = stream.start_s + self._gap(stream) if stream._next_s is None else stream._next_s
        until = min(elapsed, stream.end_s)
        left = stream.amount - stream.offered if stream.amount is not None else 1 << 60
        obedient = stream.manner == "obedient"
        while at <= until and left > 0:
            for _ in range(min(stream.burst, left)):
                self._numbers += 1
                if len(kinds) == 1:
                    kind = kinds[0]
                elif stream.in_turn:
                    kind = kinds[stream.offered % len(kinds)]
                else:
                    kind = kinds[int(rng.random() * len(kinds))]
                found.append(Request(kind, self._numbers.to_bytes(8, "big"), obedient, now))
                stream.offered += 1
                left -= 1
            at += self._gap(stream)
        stream._next_s = at

    def _gap(self, stream: Stream) -> float:
        if stream.pattern == "even":
            return 1 / stream.rate_per_s
        return self._rng.expovariate(stream.rate_per_s / stream.burst)
