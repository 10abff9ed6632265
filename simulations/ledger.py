"""What the database would know: every accepted message, how it ended, and what is on its way into the index."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from scheduler.core.records import Entry, Flow, Reference
from simulations.traffic import Kind

PATIENCE_MS = 2_000  # the outbox sweep repeats what is older (gateway.delivery.outbox)


class Message:
    """One accepted message; instants are ms on the simulation's clock, None before they come.

    `end` is sent, expired, failed or unconfirmed; `slot` rises with each slot that was closed without acceptance.
    """

    __slots__ = (
        "accepted_at", "attempts", "closing", "deadline_at", "end", "ended_at", "enqueued_at", "expires_at", "flow",
        "id", "kind", "predicted_ms", "segments", "slot", "started_at", "token",
    )  # fmt: skip

    def __init__(self, number: int, kind: Kind, flow: Flow, accepted_at: float, predicted_ms: int) -> None:
        self.id = number
        self.kind = kind
        self.flow = flow
        self.accepted_at = accepted_at
        self.predicted_ms = predicted_ms
        self.segments = 1
        self.deadline_at = 0
        self.expires_at = 0
        self.token = bytes(8)
        self.slot = 0
        self.attempts = 0
        self.enqueued_at: float | None = None
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.end: str | None = None
        self.closing = False  # its present slot has been claimed

    def entry(self, *, front: bool = False, capped: bool = True) -> Entry:
        """Its reference as it enters the index; a retry not `capped` has a flow like any other (a control)."""
        begun = self.started_at is not None
        reference = Reference(
            self.id.to_bytes(16, "big"),
            self.slot,
            self.segments,
            self.expires_at if begun else self.deadline_at,
            int(self.accepted_at),
            self.token,
        )
        if self.attempts and not capped:
            return Entry(replace(self.flow, ttl_band=self.flow.ttl_band + 32), reference, front=front)
        return Entry(self.flow, reference, front=front, retry=self.attempts > 0)


@dataclass(slots=True)
class Batch:
    """One outbox row: a committed batch whose entries are not in the index yet."""

    id: bytes
    entries: list[Entry]
    committed_at: float
    told: bool = True  # False: the process that should have enqueued it is gone


@dataclass(slots=True)
class Ledger:
    """The truth of one simulation."""

    messages: list[Message] = field(default_factory=list)
    outbox: list[Batch] = field(default_factory=list)
    doubles: int = 0
    _due: list[tuple[float, int, Message]] = field(default_factory=list)
    _batches: int = 0

    def commit(self, entries: list[Entry], now: float, *, told: bool = True) -> None:
        """Entries on their way into the index."""
        if entries:
            self._batches += 1
            self.outbox.append(Batch(b"b%015d" % self._batches, entries, now, told))

    def to_enqueue(self, now: float) -> list[Batch]:
        """Batches of living processes, and abandoned ones that the sweep takes up."""
        due: list[Batch] = []
        left: list[Batch] = []
        for batch in self.outbox:
            (due if batch.told or now - batch.committed_at >= PATIENCE_MS else left).append(batch)
        self.outbox = left
        return due

    def wait_until(self, at: float, message: Message) -> None:
        """A message that is due later: a retry or a deferral."""
        heapq.heappush(self._due, (at, message.id, message))

    def come_due(self, now: float) -> list[Message]:
        """Messages whose time has come."""
        found = []
        while self._due and self._due[0][0] <= now:
            found.append(heapq.heappop(self._due)[2])
        return found

    @property
    def due_later(self) -> int:
        """Messages that wait for their time."""
        return len(self._due)

    def claim(self, reference: Reference) -> Message | None:
        """The arbiter: the message whose slot this call closes, None where it is closed already."""
        message = self.messages[int.from_bytes(reference.id, "big")]
        if message.end is not None or message.closing or reference.slot != message.slot:
            self.doubles += 1
            return None
        message.closing = True
        return message

    def open_messages(self) -> Iterator[Message]:
        """Accepted messages without an end."""
        return (message for message in self.messages if message.end is None)

    def end(self, message: Message, how: str, now: float) -> None:
        """The end of a message."""
        message.end = how
        message.ended_at = now
        message.closing = False
