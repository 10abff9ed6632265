"""Long messages of handsets put together from their parts, whatever the order in which those came: pure.

Parts of one message share sender, recipient, reference and total (3GPP TS 23.040, 9.2.3.24.1). A reference comes round
again, so a part whose number is taken by other content begins the next message; the same content again is a double.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from scheduler.core.values import valueclass
from smpp.text.gsm import NO_SHIFT, Shift

Coding = tuple[int, Shift]  # data_coding, and the national tables that the header names


@valueclass
class Part:
    """One part as it came; `row_id` rises with time, `done` was handed over before."""

    row_id: int
    number: int
    total: int
    octets: bytes
    coding: Coding
    received_at: int
    done: bool = False


@dataclass(slots=True)
class Gathered:
    """Parts of one message, by number."""

    total: int
    parts: dict[int, Part] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether no part lacks."""
        return len(self.parts) == self.total

    @property
    def begun_at(self) -> int:
        """When its first part came, UTC ms."""
        return min(part.received_at for part in self.parts.values())

    @property
    def row_ids(self) -> list[int]:
        """The rows of its parts."""
        return [part.row_id for part in self.parts.values()]

    def text(self, decode: Callable[[bytes, Coding], str]) -> str:
        """The text in the order of the parts; runs of one coding are decoded whole.

        A cut through a surrogate pair or an escape sequence heals so.
        """
        pieces: list[str] = []
        run, coding = b"", (0, NO_SHIFT)
        for number in sorted(self.parts):
            part = self.parts[number]
            gap = number - 1 not in self.parts and run
            if part.coding != coding or gap:
                pieces.append(decode(run, coding) if run else "")
                run, coding = b"", part.coding
            run += part.octets
        pieces.append(decode(run, coding) if run else "")
        return "".join(pieces)


@valueclass
class Settled:
    """What can be handed over now, and which rows turned out to be doubles."""

    messages: list[Gathered]
    doubles: list[int]


def settle(parts: Sequence[Part], now_at: int, timeout_ms: int) -> Settled:
    """Sorts the parts of one key: whole messages, those waited for long enough, and doubles; the rest goes on waiting.

    `parts` in the order in which they came, those handed over lately among them. Instants are UTC ms.
    """
    known: set[tuple[int, bytes]] = set()  # handed over before the part at hand came
    messages: list[Gathered] = []
    doubles: list[int] = []
    current: Gathered | None = None
    for part in parts:
        if part.done:
            known.add((part.number, part.octets))
            continue
        standing = current.parts.get(part.number) if current is not None else None
        if (part.number, part.octets) in known or (standing is not None and standing.octets == part.octets):
            doubles.append(part.row_id)
            continue
        if current is None or standing is not None:
            if current is not None:
                messages.append(current)
            current = Gathered(part.total)
        current.parts[part.number] = part
        if current.complete:
            messages.append(current)
            known.update((one.number, one.octets) for one in current.parts.values())
            current = None
    if current is not None and now_at >= current.begun_at + timeout_ms:
        messages.append(current)
    return Settled(messages, doubles)
