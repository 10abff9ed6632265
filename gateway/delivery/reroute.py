"""Takes messages off routes that cannot send now, and gives them their next candidate (design section 3, Health).

A route is blocked while it or its carrier is paused by hand, and once its carrier has had no session, or an open
breaker, for a while; what a new policy left without its carrier is blocked at once. What waits for it moves where the
policy names another route that is up and would send it in time, under that route's limits, one-time passwords first.
What finds none stays, and goes when its own route is back.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

from gateway.admission.flows import FlowFacts, flow_of, number_token
from gateway.delivery.outbox import hand_over
from gateway.ledger.pauses import PROVIDER, ROUTE, list_pauses
from gateway.ledger.reroutes import Cursor, begins_by, move_messages, stuck_messages
from gateway.logs import get
from gateway.loops import repeat
from gateway.policy.rules.lookup import candidates, destination_for
from gateway.policy.rules.snapshot import Policy, Route
from gateway.runtime import Runtime
from gateway.telemetry import metrics
from scheduler.core.asks import Ask, IndexReport
from scheduler.core.values import valueclass
from scheduler.store.scheduler import IndexUnavailable

LOOK_S: Final = 2.0
AGAIN_S: Final = 0.1
GRACE_MS: Final = 10_000
_VOID_MS: Final = 3 * 86_400_000
_FIRST: Final = UUID(int=0)

log = get(__name__)


@valueclass
class Outages:
    """Routes and carriers that cannot send now, and carriers that can."""

    routes: frozenset[str] = frozenset()
    providers: frozenset[str] = frozenset()
    up: frozenset[str] = frozenset()

    def blocks(self, route: str, provider: str) -> bool:
        """Whether nothing can leave by a route."""
        return route in self.routes or provider in self.providers

    def takes(self, route: Route) -> bool:
        """Whether a route may be given what others cannot send."""
        return route.provider in self.up and not self.blocks(route.name, route.provider)


def removed_carriers(report: IndexReport, policy: Policy) -> frozenset[str]:
    """Carriers that the policy names no longer and that work still waits for."""
    return frozenset(
        name for (name, _), line in report.lines.items() if line.depth > 0 and name not in policy.providers
    )


def outages_of(
    report: IndexReport, paused: Sequence[tuple[str, str]], removed: frozenset[str] = frozenset()
) -> Outages:
    """What the index reports, what is paused by hand, (kind, name), and carriers that are no more."""
    broken = {
        name
        for name, link in report.providers.items()
        if link.state in ("down", "open", "paused") and link.since_ms >= GRACE_MS
    }
    held = {name for (kind, name), scope in report.scopes.items() if kind == ROUTE and scope.paused}
    return Outages(
        routes=frozenset(held | {name for kind, name in paused if kind == ROUTE}),
        providers=frozenset(broken | removed | {name for kind, name in paused if kind == PROVIDER}),
        up=frozenset(name for name, link in report.providers.items() if link.state == "up"),
    )


def ways_out(policy: Policy, outages: Outages, row: Mapping[str, Any]) -> tuple[Route, ...]:
    """The candidates that may take a message off its route, in order of preference; the row names its tenant.

    A long message whose first parts may have left stays with its carrier, and a long one goes only where its text is
    parted the same way: its segments are what the limits were promised.
    """
    current = policy.providers.get(row["provider"])
    if row["segments"] > 1 and (row["submit_begun"] or current is None):
        return ()
    tlvs = set((row["extras"] or {}).get("tlvs") or ())
    found = []
    for route in candidates(policy, row["tenant"], row["class"], row["sender"], row["recipient"]):
        dialect = policy.providers[route.provider].dialect
        fits = row["segments"] == 1 or (current is not None and dialect.carriage == current.dialect.carriage)
        other = (route.name, route.provider) != (row["route"], row["provider"])
        if other and outages.takes(route) and fits and tlvs <= set(dialect.tlvs):
            found.append(route)
    return tuple(found)


class Rerouter:
    """The loop of one process; several are safe, since each move wins a message's slot."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._outages = Outages()
        self._after: Cursor | None = None

    async def run(self) -> None:
        """Work until the role stops."""
        await repeat("reroute", self._rt.stopping, self.turn)

    async def turn(self) -> float:
        """One look; returns the seconds until the next."""
        rt, policy = self._rt, self._rt.policies.current
        report = await rt.scheduler.report()
        async with rt.pool.acquire() as conn:
            paused = [(one.place.kind, one.place.name) for one in await list_pauses(conn)]
        removed = removed_carriers(report, policy)
        self._outages = outages_of(report, paused, removed)
        blocked = [one.name for one in policy.routes.values() if self._outages.blocks(one.name, one.provider)]
        if not (blocked or removed) or not any(self._outages.takes(route) for route in policy.routes.values()):
            self._after = None
            return LOOK_S
        now_at = rt.clock.now_at()
        async with rt.pool.acquire() as conn:
            first, gone = (now_at, _FIRST), sorted(removed)
            codes, _ = await stuck_messages(conn, blocked, first, otp=True, providers=gone)
            rows, self._after = await stuck_messages(conn, blocked, self._after or first, otp=False, providers=gone)
        moved = await self._move(policy, codes)
        known = {row["id"] for row in codes}
        moved += await self._move(policy, [row for row in rows if row["id"] not in known])
        return AGAIN_S if moved or self._after is not None else LOOK_S

    def detour(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """A message that is about to be queued again, on its next candidate where its own route is blocked."""
        if not self._outages.blocks(row["route"], row["provider"]):
            return row
        ways = ways_out(self._rt.policies.current, self._outages, row)
        return {**row, "route": ways[0].name, "provider": ways[0].provider} if ways else row

    async def _move(self, policy: Policy, rows: Sequence[Mapping[str, Any]]) -> int:
        """Move those that another route would send in time; returns how many went."""
        rt, now_at = self._rt, self._rt.clock.now_at()
        ways = {row["id"]: ways_out(policy, self._outages, row) for row in rows}
        asked = [row for row in rows if ways[row["id"]] and begins_by(row) > now_at]
        if not asked:
            return 0
        verdicts = await rt.scheduler.admit([_ask(policy, rt.pepper, row, ways[row["id"]], now_at) for row in asked])
        wanted = [
            (row, ways[row["id"]][verdict.candidate])
            for row, verdict in zip(asked, verdicts, strict=True)
            if verdict.accepted
        ]
        if not wanted:
            return 0
        async with rt.pool.acquire() as conn:
            moved = await move_messages(conn, policy, rt.pepper, wanted, now_at)
        if moved.void:
            # Old references lose at the claim in any case; this takes them off the counts.
            with suppress(IndexUnavailable, TimeoutError):
                octets = [one.bytes + struct.pack(">I", slot) for one, slot in moved.void]
                await rt.scheduler.tombstone(octets, _VOID_MS)
            metrics.reroutes_total.inc(len(moved.void))
            log.info("messages_rerouted", messages=len(moved.void))
        await hand_over(rt, moved.outbox_id, moved.entries)
        return len(moved.void)


def _ask(policy: Policy, pepper: bytes, row: Mapping[str, Any], ways: Sequence[Route], now_at: int) -> Ask:
    """Would it be sent in time? Asked without a trace: the message has been accepted long ago."""
    begun_at = max(row["created_at"], row["not_before"] or 0)
    left_ms = begins_by(row) - now_at
    flows = tuple(
        flow_of(
            policy,
            FlowFacts(
                tenant=row["tenant"],
                class_name=row["class"],
                application=row["application"],
                sender=row["sender"],
                recipient=row["recipient"],
                route=route.name,
                provider=route.provider,
                ttl_ms=row["expires_at"] - begun_at,
            ),
        )
        for route in ways
    )
    number = number_token(pepper, destination_for(policy, row["recipient"]), row["recipient"])
    return Ask(flows, row["segments"], left_ms, left_ms, left_ms, row["id"].bytes[:8], number=number, probe=True)
