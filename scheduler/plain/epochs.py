"""The epoch of the index, its rebuild, and how batches come in."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.core.gcra import Debts
from scheduler.core.records import Entry, Reference
from scheduler.core.unavailable import IndexUnavailable
from scheduler.plain.ordered import Ordered
from scheduler.plain.state import Index
from scheduler.plain.turn import Turn

_REBUILDER_MS = 15_000  # without a sign of life the rebuilder is gone
_BATCH_MS = 3_600_000  # how long a batch is known


def state_of(index: Index, now: float) -> str:
    """`ready`, `loading` (by a live rebuilder) or `lost`."""
    if index.state == "loading" and now > index.rebuilder_until:
        return "lost"
    return index.state


def begin(turn: Turn, epoch: str) -> bool:
    """A new epoch, closed and empty; False while a rebuilder is at it.

    Limits, pauses and sessions stand; every bucket reads as empty, and keeps the debt that it had.
    """
    index, now = turn.index, turn.now
    if now <= index.rebuilder_until:
        return False
    if index.state == "lost":
        index.scopes.clear()
        index.answers.clear()
        index.tuning, index.classes = None, {}
    for name in list(index.scopes):
        scope = turn.scope(name)
        assert scope is not None
        scope.waiting, scope.flows, scope.promised = {}, {}, {}
        scope.reserved, scope.reserved_for = 0, ""
        scope.holding_since, scope.promised_at, scope.debts = 0, 0, Debts(now, now)
        scope.paid_until = max(scope.paid_until - turn.clock, scope.burst * scope.pace_ms)
        turn.change(scope)
    turn.keep()
    index.state, index.epoch, index.started_at = "loading", epoch, now
    index.rebuilder_until = now + _REBUILDER_MS
    index.opened.clear()
    index.leases.clear()
    index.lapses = Ordered()
    index.lines.clear()
    for flow in index.flows.values():
        flow.references.clear()
        flow.promised = 0
    for provider in index.providers.values():
        provider.parked, provider.held = Ordered(), Ordered()
    return True


def rebuilding(index: Index, epoch: str, now: float) -> None:
    """A sign of life of the rebuilder of this epoch; IndexUnavailable for another one."""
    if index.state != "loading" or index.epoch != epoch:
        raise IndexUnavailable("epoch")
    index.rebuilder_until = now + _REBUILDER_MS


def finish(index: Index) -> None:
    """All classes are served."""
    index.state, index.rebuilder_until = "ready", -1.0
    index.opened.clear()


def enqueue(turn: Turn, batch_id: bytes, entries: Sequence[Entry]) -> bool:
    """Queues a committed batch; False when it was queued before."""
    index = turn.index
    if turn.now <= index.batches.get(batch_id, -1.0):
        return False
    groups = _groups(turn, entries)
    if not all(index.is_open(turn.flow(key).class_name) for key, _ in groups):
        raise IndexUnavailable("loading")
    for (key, front), references in groups.items():
        flow = turn.flow(key)
        segments = turn.put(flow, references, front=front)
        if flow.promised > 0 and turn.now <= flow.promised_until:  # what was promised at the door is here now
            flow.promised = max(0, flow.promised - len(references))
            line = turn.line(flow.line)
            line.promised = max(0, line.promised - len(references))
            for scope in turn.needs(flow):
                turn.change(scope)
                promised = scope.promised.get(flow.class_name, 0) - segments
                scope.promised[flow.class_name] = max(0, promised)
    index.batches[batch_id] = turn.now + _BATCH_MS
    turn.keep()
    return True


def load(turn: Turn, epoch: str, entries: Sequence[Entry]) -> None:
    """Queues what the ledger holds, in the epoch of its rebuilder."""
    rebuilding(turn.index, epoch, turn.now)
    for (key, front), references in _groups(turn, entries).items():
        turn.put(turn.flow(key), references, front=front)
    turn.keep()


def _groups(turn: Turn, entries: Sequence[Entry]) -> dict[tuple[str, bool], list[Reference]]:
    groups: dict[tuple[str, bool], list[Reference]] = {}
    for entry in entries:
        groups.setdefault((entry.queue_key, entry.front), []).append(entry.reference)
    if not all(turn.flow(key).class_name in turn.index.classes for key, _ in groups):
        raise IndexUnavailable("class")
    return groups


def drop_line(turn: Turn, provider: str, class_name: str) -> None:
    """Empties one line; leases stand."""
    line = turn.line((provider, class_name))
    known = turn.provider(provider)
    parked = [member for member, _ in known.parked if turn.flow(member[1].decode()).line == line.name]
    for octets in [octets for octets, _ in line.active] + [octets for _, octets in parked]:
        flow = turn.flow(octets.decode())
        turn.account(flow, -len(flow.references), -sum(reference.segments for reference in flow.references))
        flow.references.clear()
        turn.count_active(flow, -1)
    line.active = Ordered()
    for member in parked:
        known.parked.discard(member)
    for held, _ in list(known.held):
        flow = turn.flow(held[1].decode())
        if flow.line == line.name:
            turn.account(flow, -1, -Reference.unpack(held[2]).segments)
            known.held.discard(held)
    turn.keep()
