"""What ended in the queue where no lease comes by: past its deadline, or canceled."""

from __future__ import annotations

from scheduler.core.records import Reference
from scheduler.plain.state import FlowQueue, Line
from scheduler.plain.turn import Turn

_FLOWS_MAX = 200  # flows looked at per list
_DROPPED_MAX = 1_000  # references dropped per call


class Sweeping:
    """One call of `sweep`: `from_` flows of each list of the provider are passed over."""

    def __init__(self, turn: Turn, provider: str, from_: int) -> None:
        self._turn = turn
        self._provider = turn.provider(provider)
        self._from = from_
        self._room = _DROPPED_MAX
        self._more = False

    def run(self) -> tuple[int, int | None]:
        """How many were dropped, and where to go on; None where all flows were seen."""
        turn = self._turn
        if turn.index.state != "ready":  # being loaded: the next sweep looks
            return 0, None
        self._parked()
        self._held()
        for _, line in list(turn.index.lines_of(self._provider.name)):
            self._line(line)
        turn.keep()
        dropped = _DROPPED_MAX - self._room
        if self._room <= 0:
            return dropped, self._from
        return dropped, self._from + _FLOWS_MAX if self._more else None

    def _parked(self) -> None:
        """One that is empty must not stay parked, and no longer counts."""
        parked = self._provider.parked
        seen = [member for member, _ in list(parked)[self._from : self._from + _FLOWS_MAX]]
        for member in seen:
            flow = self._turn.flow(member[1].decode())
            if not self._drop_heads(flow):
                parked.discard(member)
                self._turn.count_active(flow, -1)
        self._more = len(seen) == _FLOWS_MAX

    def _held(self) -> None:
        """What a number holds comes back at its deadline at the latest."""
        held = self._provider.held
        for member in held.due(self._turn.now, _FLOWS_MAX):
            reference = Reference.unpack(member[2])
            if self._ended(reference):
                held.discard(member)
                self._turn.account(self._turn.flow(member[1].decode()), -1, -reference.segments)

    def _line(self, line: Line) -> None:
        """An empty flow stays until a lease visits it; a line without any other is idle, as a lease would find it."""
        seen = [octets for octets, _ in list(line.active)[self._from : self._from + _FLOWS_MAX]]
        left = [self._drop_heads(self._turn.flow(octets.decode())) for octets in seen]
        if len(seen) == _FLOWS_MAX:
            self._more = True
        elif self._from == 0 and not any(left) and not line.idle:
            if line.drain_count > 0:
                self._turn.sample_drain(line)
            line.idle, line.busy_at, line.drain_count, line.drain_from = True, 0, 0, self._turn.now

    def _drop_heads(self, flow: FlowQueue) -> bool:
        """Whether something is left."""
        count = segments = 0
        while self._room > 0 and flow.references and self._ended(flow.references[0]):
            segments += flow.references.popleft().segments
            count, self._room = count + 1, self._room - 1
        if count:
            self._turn.account(flow, -count, -segments)
        return bool(flow.references)

    def _ended(self, reference: Reference) -> bool:
        tombstones, packed = self._turn.index.tombstones, reference.pack()
        names = packed[:16], packed[:20]
        canceled = any(name in tombstones for name in names)
        if canceled:
            for name in names:
                tombstones.discard(name)
        return canceled or reference.deadline_at <= self._turn.now
