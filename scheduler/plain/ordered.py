"""Members in the order of their score; equal scores in the order of the members themselves."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

M = TypeVar("M")


class Ordered(Generic[M]):
    """A set of comparable members, each with a score."""

    def __init__(self) -> None:
        self._scores: dict[M, float] = {}
        self._order: list[tuple[float, Any]] = []

    def __len__(self) -> int:
        return len(self._scores)

    def __contains__(self, member: M) -> bool:
        return member in self._scores

    def __iter__(self) -> Iterator[tuple[M, float]]:
        return iter([(member, score) for score, member in self._order])

    def score(self, member: M) -> float | None:
        """The score of a member, None where it is none."""
        return self._scores.get(member)

    def put(self, member: M, score: float) -> None:
        """Adds a member or moves it to another score."""
        self.discard(member)
        self._scores[member] = score
        insort(self._order, (score, member))

    def discard(self, member: M) -> None:
        """Removes a member if it is there."""
        score = self._scores.pop(member, None)
        if score is not None:
            del self._order[bisect_left(self._order, (score, member))]

    def first(self, count: int) -> list[tuple[M, float]]:
        """Up to `count` members from the lowest score on."""
        return [(member, score) for score, member in self._order[:count]]

    def lowest(self) -> float | None:
        """The lowest score, None where there is no member."""
        return self._order[0][0] if self._order else None

    def due(self, score: float, count: int) -> list[M]:
        """Up to `count` members whose score is not above `score`, the lowest first."""
        end = bisect_right(self._order, score, key=lambda pair: pair[0])
        return [member for _, member in self._order[: min(end, count)]]

    def above(self, score: float, count: int) -> list[M]:
        """Up to `count` members whose score is above `score`, the lowest first."""
        start = bisect_right(self._order, score, key=lambda pair: pair[0])
        return [member for _, member in self._order[start : start + count]]
