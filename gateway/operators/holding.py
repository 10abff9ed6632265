"""What operators hold by hand and let go on: one way for `/admin`, the command line behind it, and the console."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from gateway.ledger import audit, pauses, session_orders
from gateway.ledger.pauses import DRAIN, PAUSE, PROVIDER, ROUTE, SESSION, Place
from gateway.policy.rules.snapshot import Policy
from gateway.runtime import Runtime
from scheduler.store.scheduler import IndexUnavailable

RESUME: Final = "resume"


def modes(kind: str) -> tuple[str, ...]:
    """What can be done to a kind of place besides resuming it: only a session can be drained."""
    return (PAUSE, DRAIN) if kind == SESSION else (PAUSE,)


async def hold(rt: Runtime, place: Place, mode: str, actor: str) -> bool:
    """Pauses or drains a route, provider or session; False where the policy has none of this name.

    Written to the audit where it changes anything. Raises what PostgreSQL's client raises when it is away.
    """
    if not is_named(rt.policies.current, place):
        return False
    async with rt.pool.acquire() as conn:
        await pauses.set_pause(conn, place, mode, actor, rt.clock.now_at())
    if place.kind != SESSION:
        # Delivery tells the index too; this way it knows before the call is answered.
        with suppress(IndexUnavailable, TimeoutError):
            await rt.scheduler.pause(place.scope)
    return True


async def let_go(rt: Runtime, place: Place, actor: str) -> bool:
    """Ends a pause, and lets a session that its carrier refused try again; False where neither can be."""
    now_at = rt.clock.now_at()
    named = is_named(rt.policies.current, place)
    async with rt.pool.acquire() as conn:
        ended = await pauses.clear_pause(conn, place, actor, now_at)
        if place.kind == SESSION and named:
            await session_orders.resume(conn, place.name, now_at)
            if not ended:
                await audit.note(conn, now_at, actor, "session.resume", {"name": place.name, "retry": True})
    return ended or named


def is_named(policy: Policy, place: Place) -> bool:
    """Whether the policy has such a place."""
    if place.kind == ROUTE:
        return place.name in policy.routes
    if place.kind == PROVIDER:
        return place.name in policy.providers
    return any(place.name in provider.sessions for provider in policy.providers.values())
