"""What a lease has in view: the next flows of a class, and the head of one flow."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from scheduler.core.records import Reference
from scheduler.plain.state import Line, Scope

LOOK_MAX = 64  # flows of a class that are looked at together


@dataclass(slots=True)
class ClassView:
    """The flows of one class that a lease has in view, in the order of their tags; more are fetched after these."""

    line: Line
    weight: float
    quantum: int
    late_share: float  # of its time that a message has waited when its flow may be late
    tags: list[tuple[float, bytes]] = field(default_factory=list)
    whole: bool = True  # no flow stands behind those in view
    edge: float = 0.0  # the last tag in view: unseen flows stand behind it
    done: bool = False

    def fetch(self, left: int) -> None:
        """Brings the next flows into view."""
        count = min(LOOK_MAX, ceil(left / self.quantum) + 3)
        self.tags = [(tag, octets) for octets, tag in self.line.active.first(count)]
        self.whole = len(self.tags) < count
        self.edge = self.tags[-1][0] if self.tags else 0.0

    def insert(self, octets: bytes, tag: float) -> None:
        """A served flow back into view, behind its equals; not where unseen ones may stand before it."""
        if not self.whole and tag > self.edge:
            return
        at = len(self.tags)
        while at and self.tags[at - 1][0] > tag:
            at -= 1
        self.tags.insert(at, (tag, octets))


@dataclass(slots=True)
class Visit:
    """What one look at a flow's head brought."""

    used: int = 0  # references that are no longer in the flow
    taken: list[Reference] = field(default_factory=list)
    segments: int = 0
    gone: int = 0  # expired or canceled: they take no tokens
    gone_segments: int = 0
    tight: Scope | None = None  # what let no more through, and the segments that it would need
    need: float = 0.0
    full: bool = False  # the call must not take more
