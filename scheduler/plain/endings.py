"""How leases and waiting messages end: acknowledged, given back, canceled."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.core.gcra import returned
from scheduler.core.records import Reference
from scheduler.plain.numbers import Numbers
from scheduler.plain.state import Lease
from scheduler.plain.turn import Turn

TRIAL_MS = 30_000  # a silent carrier is tried again after this
_PURGED_MAX = 1_000


def take_back(turn: Turn, lease_id: bytes) -> Lease | None:
    """Ends a lease with its references back at the head of their flows; None where it has ended before."""
    lease = turn.index.leases.pop(lease_id, None)
    turn.index.lapses.discard(lease_id)
    if lease is None:
        return None
    _ended(turn, lease)
    for key, references in reversed(lease.groups):
        turn.put(turn.flow(key), references, front=True)
    return lease


def _ended(turn: Turn, lease: Lease) -> None:
    for key, references in lease.groups:
        line = turn.line(turn.flow(key).line)
        line.leased = max(0, line.leased - len(references))


def restore(turn: Turn, lease_id: bytes) -> bool:
    """A lease that was not used: its references and its tokens come back."""
    lease = take_back(turn, lease_id)
    if lease is None:
        return False
    for key, references in lease.groups:
        _give_back(turn, lease, key, references)
    turn.keep()
    return True


def acknowledge(turn: Turn, lease_id: bytes, given_back: Sequence[tuple[Reference, str]]) -> bool:
    """A lease whose references were claimed; the tokens of those that never left come back."""
    lease = turn.index.leases.pop(lease_id, None)
    if lease is None:
        return False
    turn.index.lapses.discard(lease_id)
    _ended(turn, lease)
    unsent: dict[str, list[Reference]] = {}
    for reference, key in given_back:
        unsent.setdefault(key, []).append(reference)
    for key, references in unsent.items():
        _give_back(turn, lease, key, references)
    claimed = sum(len(references) for _, references in lease.groups) - len(given_back)
    provider = turn.provider(lease.provider)
    if claimed > 0 and (provider.owed_at <= provider.answered_at or turn.now - provider.owed_at > TRIAL_MS):
        provider.owed_at = turn.now  # from now on an answer is owed
    turn.keep()
    return True


def _give_back(turn: Turn, lease: Lease, key: str, references: Sequence[Reference]) -> None:
    """Charges come back as far as they are still in their buckets: else more than a limit allows could leave."""
    flow, numbers = turn.flow(key), Numbers(turn)
    segments = sum(reference.segments for reference in references)
    for reference in references:
        scope = numbers.limit(flow, reference.number)
        if scope is not None:
            numbers.give_back(scope, reference.number, reference.segments, lease.charged_at)
    for scope in [*turn.needs(flow), turn.scope(f"session:{lease.session}")]:
        if scope is not None and scope.pace_ms > 0:
            back, scope.debts = returned(scope.debts, lease.charged_at, segments)
            scope.paid_until -= back * scope.pace_ms
            turn.change(scope)


def tombstone(turn: Turn, ids: Sequence[bytes], keep_ms: float) -> None:
    """References of these messages (16 octets) or slots (20 octets) are dropped when they come up."""
    tombstones = turn.index.tombstones
    for id_ in ids:
        tombstones.put(id_, float(round(turn.now + keep_ms)))
    for old in tombstones.due(turn.now, _PURGED_MAX):
        tombstones.discard(old)
