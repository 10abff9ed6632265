"""The egress role: owns SMPP sessions, claims leased work, writes it, and books what carriers answer and deliver."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any, Final

from gateway import logs
from gateway.egress import session_metrics
from gateway.egress.accounts import Accounts, account_of
from gateway.egress.claimer import Claimer, ClaimerParts, claim_line
from gateway.egress.health import HealthReporter
from gateway.egress.inbox_writer import InboxWriter
from gateway.egress.outcome_writer import OutcomeWriter, WriterParts, hand_on
from gateway.egress.owner import Owner
from gateway.egress.roster import plan
from gateway.egress.session_line import LineParts, SessionLine
from gateway.egress.shares import RetryShares
from gateway.egress.store_line import STORE_ERRORS, StoreLine
from gateway.egress.submissions import References
from gateway.ending_counts import count_endings
from gateway.ledger import owners
from gateway.ledger.claims import HOT_SETTINGS, PLANNER_SETTINGS
from gateway.ledger.outcomes import Bench
from gateway.ledger.session_orders import Orders, read_orders
from gateway.loops import end
from gateway.policy.rules.snapshot import Policy, Session
from gateway.policy.rules.tuning import tuning_of
from gateway.runtime import NO_SESSION, Runtime
from gateway.telemetry import metrics, status_label
from scheduler.store.scheduler import IndexUnavailable
from smpp.protocol.pdu import DataSm, DeliverSm
from smpp.protocol.status import NAMES, Consequence

LOOK_S: Final = 1.0
BURY_EVERY: Final = 2  # looks
OWN_CHECK_EVERY: Final = 10
FLUSH_S: Final = 5.0
ROUTE_REST_MS: Final = 60_000
_log = logs.get("egress")


async def run(rt: Runtime) -> None:
    """Runs until `rt.stopping` is set and everything in hand is settled."""
    egress = Egress(rt)
    await egress.run()


class Egress:
    """One process's sessions and writers, kept to its share of the sessions and to the policy of the moment."""

    def __init__(self, rt: Runtime) -> None:
        url = rt.settings.database_url or ""
        self._rt = rt
        self._lines: dict[str, SessionLine] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._looks = 0
        self._tuned: Policy | None = None
        self._check_own = False
        self._wake = asyncio.Event()
        self._side = StoreLine(url, PLANNER_SETTINGS)
        self._writer_line = StoreLine(url, HOT_SETTINGS)
        self._claim_line = claim_line(url)
        self._inbox_line = StoreLine(url, HOT_SETTINGS)
        self._owner = Owner(url, rt.process_id, rt.clock, self._locks_lost)
        self._writer = OutcomeWriter(
            WriterParts(rt.scheduler, rt.clock, self._writer_line, lambda: rt.policies.current, rt.pepper)
        )
        self._claimer = Claimer(
            ClaimerParts(
                scheduler=rt.scheduler,
                writer=self._writer,
                clock=rt.clock,
                line=self._claim_line,
                policy=lambda: rt.policies.current,
                owner_id=rt.process_id,
                references=References(),
                sealer=rt.sealer,
            )
        )
        self._inbox = InboxWriter(rt.clock, self._inbox_line, rt.sealer)
        self._accounts = Accounts(self._owner)
        self._health = HealthReporter(rt.scheduler, rt.clock.now_mono)
        self._shares = RetryShares(rt.clock.now_mono)
        self._orders = Orders()
        self._shown: frozenset[str] = frozenset()

    async def run(self) -> None:
        """The whole life of the role."""
        rt = self._rt
        rt.report["not_ready"] = NO_SESSION
        await self._await_policy()
        await self._take_ownership()
        work = [
            rt.spawn(self._owner.run(), "owner"),
            rt.spawn(self._writer.run(), "outcomes"),
            rt.spawn(self._claimer.run(), "claims"),
            rt.spawn(self._inbox.run(), "inbox"),
            rt.spawn(self._health.run(), "health"),
        ]
        self._owner.on_reconnect(self._own_claims_due)
        rt.policies.on_change(self._policy_changed)
        while not rt.stopping.is_set():
            await self._look()
            self._report()
            await self._pause()
        await self._drain()
        await end(work)
        await self._leave()

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """One look at policy and colleagues: sessions to take, to give up, to bind anew; the dead to bury."""
        self._looks += 1
        try:
            conn = await self._side.connection()
            members = await owners.members(conn)
            self._orders = await read_orders(conn)
        except STORE_ERRORS as fault:
            self._side.drop()
            _log.warning("roster_unreadable", error=type(fault).__name__)
            return
        await self._tune()
        wanted = self._configured()
        await self._rebind_changed(wanted)
        if self._owner.may_write():
            now_at = self._rt.clock.now_at()
            orders = plan(sorted(wanted), self._owner.held, members, self._rt.process_id, now_at)
            for name in orders.give_up:
                self._give_up(name)
            await self._take(orders.take, orders.room, wanted)
        self._give_orders()
        if self._looks % BURY_EVERY == 0:
            await self._bury()
        if self._check_own or self._looks % OWN_CHECK_EVERY == 0:
            await self._check_own_claims()

    async def _tune(self) -> None:
        """Tells the index of a policy that this process has taken up (the same version twice changes nothing)."""
        policy = self._rt.policies.current
        if policy is self._tuned:
            return
        try:
            await self._rt.scheduler.tune(tuning_of(policy))
            self._tuned = policy
        except IndexUnavailable as fault:
            _log.warning("tuning_waits", reason=fault.reason)

    async def _take(self, names: tuple[str, ...], room: int, wanted: dict[str, Session]) -> None:
        for name in names:
            if room <= 0:
                return
            if name not in self._leaving and await self._owner.take(name):
                room -= 1
                self._start(wanted[name])

    def _configured(self) -> dict[str, Session]:
        policy = self._rt.policies.current
        return {name: session for provider in policy.providers.values() for name, session in provider.sessions.items()}

    def _start(self, session: Session) -> None:
        parts = LineParts(
            scheduler=self._rt.scheduler,
            claimer=self._claimer,
            writer=self._writer,
            clock=self._rt.clock,
            owner=self._owner,
            accounts=self._accounts,
            health=self._health,
            policies=self._rt.policies,
            pepper=self._rt.pepper,
            delivered=self._delivered,
            held_elsewhere=self._held_elsewhere,
        )
        line = SessionLine(session, parts)
        line.order(self._orders.modes.get(session.name))
        self._lines[session.name] = line
        line.start(self._rt.spawn)

    async def _rebind_changed(self, wanted: dict[str, Session]) -> None:
        """Sessions whose definition changed are bound anew; others stay bound, with new limits and the new dialect."""
        policy = self._rt.policies.current
        changed: dict[str, SessionLine] = {}
        for name, line in list(self._lines.items()):
            session = wanted.get(name)
            if session is not None and line.binds_alike(session):
                line.retune(session)
                line.apply(policy)
            elif session is not None:  # removed ones are given up by the plan
                _log.info("session_rebinds", session=name)
                changed[name] = self._lines.pop(name)
        await asyncio.gather(*(line.stop(FLUSH_S) for line in changed.values()))
        for name in changed:
            if name in self._owner.held:
                self._start(wanted[name])

    def _give_up(self, name: str) -> None:
        """Leaves a session in good order and lets others have it."""
        if name in self._leaving:
            return
        line = self._lines.pop(name, None)

        async def leave() -> None:
            if line is not None:
                await line.stop(FLUSH_S)
            await self._owner.release(name)
            self._leaving.pop(name, None)
            _log.info("session_given_up", session=name)

        self._leaving[name] = self._rt.spawn(leave(), f"give up {name}")

    def _locks_lost(self, names: frozenset[str]) -> None:
        """The locks could not be taken again in time: others may bind, so our links end now."""
        for name in names:
            line = self._lines.pop(name, None)
            if line is not None:
                line.abandon()
                self._rt.spawn(line.stop(0.0), f"abandon {name}")

    def _give_orders(self) -> None:
        """What operators want of the sessions that are ours."""
        for name, line in self._lines.items():
            line.order(self._orders.modes.get(name))
            if 0 < line.refused_at < self._orders.resumed_at.get(name, 0):
                line.try_again()

    def _held_elsewhere(self, line: SessionLine, said: Consequence, status: int, route: str) -> None:
        """A refusal that concerns the whole account, or the route: others than this session rest."""
        name = NAMES.get(status, f"0x{status:08x}")
        if said.holds == "account":
            self._accounts.refuse(line.session)
            account = account_of(line.session)
            for each in self._lines.values():
                if account_of(each.session) == account:
                    each.stop_trying(f"account refused: {name}")
        elif said.holds == "route" and route:
            metrics.route_holds_total.labels(route, status_label(status)).inc()
            _log.error("route_rests", route=route, status=name, rest_ms=ROUTE_REST_MS)
            self._rt.spawn(self._rest_route(route), f"rest {route}")

    async def _rest_route(self, route: str) -> None:
        try:
            await self._rt.scheduler.pause(f"route:{route}", self._rt.clock.now_at() + ROUTE_REST_MS)
        except IndexUnavailable as fault:
            _log.warning("route_not_paused", route=route, reason=fault.reason)

    def _policy_changed(self, _policy: Policy) -> None:
        self._accounts.forgive_all()
        for name, line in list(self._lines.items()):
            if line.state == "refused":  # what refused it may have been put right
                del self._lines[name]
                self._rt.spawn(self._restart(name, line), f"restart {name}")
        self._wake.set()

    async def _restart(self, name: str, line: SessionLine) -> None:
        await line.stop(0.0)
        session = self._configured().get(name)
        if session is not None and name in self._owner.held and name not in self._lines:
            self._start(session)

    def _delivered(self, line: SessionLine, pdu: DeliverSm | DataSm) -> None:
        if line.link is not None:
            self._inbox.take(line.link, (line.session.provider, line.session.name), pdu, line.pump.dialect)

    # -- owners --------------------------------------------------------------------------------------------------------

    async def _await_policy(self) -> None:
        """Sessions come from the policy: without one there is nothing to own."""
        ready = asyncio.ensure_future(self._rt.policies.ready())
        stopping = asyncio.ensure_future(self._rt.stopping.wait())
        await asyncio.wait({ready, stopping}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        stopping.cancel()

    async def _take_ownership(self) -> None:
        while not self._rt.stopping.is_set():
            try:
                await self._owner.start()
                return
            except STORE_ERRORS as fault:
                _log.warning("owner_lock_waits", error=type(fault).__name__)
                await asyncio.sleep(0.5)

    def _own_claims_due(self) -> None:
        self._check_own = True
        self._wake.set()

    async def _bury(self) -> None:
        """Closes open claims of dead owners; several processes may try, each claim is closed once."""
        try:
            conn = await self._side.connection()
            burial = await owners.close_dead(conn, self._bench(), self._rt.process_id)
            for stored in burial.stored:
                count_endings(stored)
                await hand_on(self._rt.scheduler, conn, stored)
        except STORE_ERRORS as fault:
            self._side.drop()
            _log.warning("burial_failed", error=type(fault).__name__)
            return
        if burial.owners:
            closed = sum(len(stored.changes) for stored in burial.stored)
            _log.warning("dead_owner_closed", owners=burial.owners, messages=closed)

    async def _check_own_claims(self) -> None:
        """Claims whose answer was lost on the way to us go back: this process never held them."""
        before_at = self._claimer.quiet_before_at()
        try:
            conn = await self._side.connection()
            lost = await owners.lost_claims(
                conn, self._rt.process_id, before_at, self._writer.held, self._rt.clock.now_at()
            )
        except STORE_ERRORS as fault:
            self._side.drop()
            _log.warning("own_claims_unreadable", error=type(fault).__name__)
            return
        self._check_own = False
        for closing in lost:
            self._writer.close(closing)
        if lost:
            _log.warning("lost_claims_given_back", messages=len(lost))

    def _bench(self) -> Bench:
        rt = self._rt
        return Bench(rt.policies.current, rt.pepper, rt.clock.now_at(), random.random)

    # -- life ----------------------------------------------------------------------------------------------------------

    def _report(self) -> None:
        sessions: dict[str, Any] = {name: line.report() for name, line in self._lines.items()}
        self._rt.report["sessions"] = sessions
        for name in self._shown - sessions.keys() - self._leaving.keys():
            session_metrics.forget(name)  # others show it now, or nobody has it any more
        self._shown = frozenset(sessions) | frozenset(self._leaving)
        self._rt.report["holds"] = sorted(self._owner.held)
        self._shares.look()
        bound = any(line.state == "bound" for line in self._lines.values())
        waits = bool(self._lines) and not bound
        self._rt.report["not_ready"] = NO_SESSION if waits else None

    async def _pause(self) -> None:
        """Until the next look, or sooner when the policy changed, the owner came back, or the end begins."""
        stopping = asyncio.ensure_future(self._rt.stopping.wait())
        woken = asyncio.ensure_future(self._wake.wait())
        await asyncio.wait({stopping, woken}, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        woken.cancel()
        self._wake.clear()

    async def _drain(self) -> None:
        """SIGTERM: no new lease, the rest given back, answers awaited, everything booked, then unbound (I34)."""
        drain_s = max(1.0, min(10.0, self._rt.settings.drain_s - FLUSH_S))
        _log.info("draining", sessions=len(self._lines))
        lines, self._lines = list(self._lines.values()), {}
        results = await asyncio.gather(*(line.stop(drain_s) for line in lines), return_exceptions=True)
        results += await asyncio.gather(*self._leaving.values(), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                _log.error("drain_incomplete", exc_info=result)
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await self._claimer.wait_idle()
                for line in lines:
                    line.pump.give_back()  # what a slow ledger claimed after its session had left
                await self._writer.wait_idle()
                await self._inbox.wait_idle()

    async def _leave(self) -> None:
        """Ends the process for the others: what it left open may be closed at once."""
        try:
            await owners.end(await self._side.connection(), self._rt.process_id, self._rt.clock.now_at())
        except STORE_ERRORS as fault:
            _log.warning("end_not_told", error=type(fault).__name__)
        await self._owner.close()
        for line in (self._side, self._writer_line, self._claim_line, self._inbox_line):
            await line.close()
