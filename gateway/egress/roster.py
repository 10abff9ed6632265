"""Who takes which session: every live egress process up to its even share, one owner per session (design section 4)."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.ledger.owners import Member, share
from scheduler.core.values import valueclass


@valueclass
class Plan:
    """What this process should do now: sessions to try for (at most `room` of them) and sessions to give up."""

    take: tuple[str, ...]
    room: int
    give_up: tuple[str, ...]


def plan(names: Sequence[str], held: frozenset[str], members: Sequence[Member], owner_id: int, now_at: int) -> Plan:
    """The plan of one look at the others; pure.

    Sessions of a process whose lock is away but that may still be bound (a broken connection, a restart of the server)
    are left alone until it is dead.
    """
    others = [member for member in members if member.id != owner_id and member.is_live(now_at)]
    cap = share(len(names), len(others) + 1)
    known = set(names)
    ours = sorted(held & known)
    gone = sorted(held - known)
    # Nothing is given up to processes that cannot take it now.
    surplus = ours[cap:] if any(member.locked for member in others) else []
    limbo = {name for member in others if not member.locked for name in member.holds}
    taken = {name for member in others for name in member.holds}
    # Free ones first: a name that another still reports is most likely refused.
    wanted = [name for name in names if name not in held and name not in limbo]
    wanted.sort(key=lambda name: name in taken)
    return Plan(take=tuple(wanted), room=max(0, cap - len(ours)), give_up=(*gone, *surplus))
