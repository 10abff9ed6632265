"""Requests that wait for their response on one session (SMPP 3.4 sections 2.7, 2.9 and 5.1.4).

Slots end in exactly one way: answered, timed out (the slot is free, a tombstone stays so that a late answer still
finds its token), or drained when the link ends.
"""

from __future__ import annotations

from collections.abc import Container
from math import inf
from typing import Final

from smpp.protocol.commands import SEQUENCE_MAX, response_of
from smpp.protocol.errors import WindowFull
from smpp.values import valueclass

TOMBSTONES_MAX: Final = 10_000
"""Timed-out sequences kept per session; the oldest go first. At 100 lost answers a second this is 100 s."""


@valueclass
class Match:
    """A response found its request."""

    token: object
    late: bool


class Window:
    """`size` bounds the unanswered requests; sequence numbers are unique among them and their tombstones.

    `reserved` holds further sequence numbers in use on the session (bind, unbind and enquire_link of ours).
    """

    __slots__ = ("_next", "_reserved", "_tombstones", "_waiting", "size")

    def __init__(self, size: int, first_sequence: int = 1, reserved: Container[int] = ()) -> None:
        self.size = size
        self._next = first_sequence
        self._reserved = reserved
        self._waiting: dict[int, tuple[object, int, float]] = {}
        self._tombstones: dict[int, tuple[object, int]] = {}

    @property
    def used(self) -> int:
        return len(self._waiting)

    @property
    def free(self) -> int:
        return self.size - len(self._waiting)

    @property
    def tombstones(self) -> int:
        return len(self._tombstones)

    @property
    def oldest_mono(self) -> float:
        """When the request that waits longest was written; infinity when none is on the wire."""
        for _, _, written_mono in self._waiting.values():
            return written_mono
        return inf

    def next_sequence(self) -> int:
        """The next number of 1..0x7FFFFFFF that nothing on this session uses."""
        sequence = self._next
        while sequence in self._waiting or sequence in self._tombstones or sequence in self._reserved:
            sequence = sequence + 1 if sequence < SEQUENCE_MAX else 1
        self._next = sequence + 1 if sequence < SEQUENCE_MAX else 1
        return sequence

    def open(self, command_id: int, token: object) -> int:
        """Takes a slot and returns its sequence number; its response timer starts at `written`. Raises WindowFull."""
        if len(self._waiting) >= self.size:
            raise WindowFull("window is full")
        sequence = self.next_sequence()
        self._waiting[sequence] = (token, response_of(command_id), inf)
        return sequence

    def written(self, sequence: int, now_mono: float) -> None:
        """The request was given to the socket."""
        found = self._waiting.get(sequence)
        if found is not None:
            self._waiting[sequence] = (found[0], found[1], now_mono)

    def cancel(self, sequence: int) -> None:
        """Gives back a slot whose request never existed on the wire."""
        self._waiting.pop(sequence, None)

    def answer(self, sequence: int, response_id: int | None) -> Match | None:
        """Ends the request that this response answers; None for generic_nack, which answers any command.

        A sequence that nobody waits for, or a response to another command, changes nothing and returns None.
        """
        found = self._waiting.get(sequence)
        if found is not None:
            if response_id is not None and response_id != found[1]:
                return None
            del self._waiting[sequence]
            return Match(found[0], late=False)
        buried = self._tombstones.get(sequence)
        if buried is None or (response_id is not None and response_id != buried[1]):
            return None
        del self._tombstones[sequence]
        return Match(buried[0], late=True)

    def expire(self, written_before_mono: float) -> list[object]:
        """Frees the slots written at or before this moment, oldest first; their tombstones stay."""
        expired = []
        for sequence, (_, _, written_mono) in self._waiting.items():
            if written_mono > written_before_mono:
                break  # slots are written in the order in which they were opened
            expired.append(sequence)
        tokens = []
        for sequence in expired:
            token, response_id, _ = self._waiting.pop(sequence)
            self._tombstones[sequence] = (token, response_id)
            tokens.append(token)
        while len(self._tombstones) > TOMBSTONES_MAX:
            del self._tombstones[next(iter(self._tombstones))]
        return tokens

    def drain(self) -> list[tuple[int, object]]:
        """Hands back every (sequence, token) that waits, in order, and forgets them and the tombstones."""
        waiting = [(sequence, token) for sequence, (token, _, _) in self._waiting.items()]
        self._waiting.clear()
        self._tombstones.clear()
        return waiting
