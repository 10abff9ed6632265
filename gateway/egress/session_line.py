"""One SMPP session of this process: take work while bound, write it, obey orders by hand, leave in good order.

`binder` keeps it bound; what the carrier or an operator says about the session as a whole is carried out here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from gateway import logs
from gateway.clock import Clock
from gateway.egress import session_metrics
from gateway.egress.accounts import Accounts
from gateway.egress.binder import Binder, BinderParts
from gateway.egress.claimer import Claimer
from gateway.egress.flights import Part
from gateway.egress.health import HealthReporter, Load, Member
from gateway.egress.outcome_writer import OutcomeWriter
from gateway.egress.owner import Owner
from gateway.egress.pacing import Pacer
from gateway.egress.pump import Orders, Pump
from gateway.egress.stock import Stock, StockParts
from gateway.egress.tallies import Tally
from gateway.ledger.session_orders import DRAIN
from gateway.loops import end
from gateway.policy.holder import PolicyHolder
from gateway.policy.rules.snapshot import Policy, Ramp, Session
from gateway.telemetry import metrics
from scheduler.core.asks import Health
from scheduler.core.values import valueclass
from scheduler.store.scheduler import IndexUnavailable, Scheduler
from smpp.link import Connection
from smpp.protocol.pdu import DataSm, DeliverSm, Pdu
from smpp.protocol.status import NAMES, Consequence

_REST_S: Final = 5.0
_ANSWERS_S: Final = 2.0
_log = logs.get("egress.session")


@valueclass
class LineParts:
    """What a session works with; `delivered` takes what the carrier delivers on it.

    `held_elsewhere` hears of refusals that concern more than the session: the route or the whole account.
    """

    scheduler: Scheduler
    claimer: Claimer
    writer: OutcomeWriter
    clock: Clock
    owner: Owner
    accounts: Accounts
    health: HealthReporter
    policies: PolicyHolder
    pepper: bytes
    delivered: Callable[[SessionLine, DeliverSm | DataSm], None]
    held_elsewhere: Callable[[SessionLine, Consequence, int, str], None]


class SessionLine:
    """Runs one session between `start` and `stop`; implements the link's handler."""

    def __init__(self, session: Session, parts: LineParts) -> None:
        self.session = session
        self.link: Connection | None = None
        self.state = "waiting"
        self._parts = parts
        self._mode: str | None = None  # what an operator ordered: pause, drain
        limits = session.limits
        self._pacer = Pacer(limits.rate_per_s if limits is not None else None)
        tally = Tally(parts.pepper)
        self._member = Member(session.provider, session.name, tally, self)
        self.pump = Pump(session, parts.clock, self._pacer, tally, self._orders())
        self._stock = Stock(
            session.provider,
            session.name,
            session.window,
            StockParts(
                parts.scheduler, parts.claimer, parts.writer, parts.clock, parts.policies, self.pump, self._enlist
            ),
        )
        self._binder = Binder(session, BinderParts(parts.accounts, parts.policies, parts.clock), self)
        self._abandoned = False
        self._ramps = False  # the index is yet to be told that its rate ramps up from now on
        self._early: list[DeliverSm | DataSm] = []  # came right behind the bind's answer, before `opened` was told
        self._tasks: list[asyncio.Task[Any]] = []

    @property
    def refused_at(self) -> int:
        """When a refusal stopped it (queue's clock), 0 while none did: an order to resume counts when it is later."""
        return self._binder.refused_at

    def _orders(self) -> Orders:
        parts = self._parts
        return Orders(
            close=parts.writer.close,
            answered=parts.writer.answered,
            hungry=self._notice,
            held=self._held,
            may_write=parts.owner.may_write,
            counted=parts.health.notice,
            ticket=lambda: parts.writer.reported,
            claiming=lambda: self._stock.claiming,
        )

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self, spawn: Callable[[Any, str], asyncio.Task[Any]]) -> None:
        """Starts binding and leasing."""
        name = self.session.name
        metrics.unconfirmed_total.labels(self.session.provider)
        metrics.reconnects_total.labels(name)
        self._parts.health.join(self._member)
        self._tasks = [spawn(self._binder.run(), f"bind {name}"), spawn(self._stock.run(), f"stock {name}")]

    async def stop(self, drain_s: float) -> None:
        """Leaves in good order: no lease, nothing ready kept, answers awaited up to `drain_s`, unbind."""
        self.enter("leaving")
        self._binder.leave()
        await self._leave_link(self.link, drain_s)
        await end(self._tasks)
        self._parts.health.leave(self._member)
        if not self._abandoned:
            await self._forget()
        self.enter("closed")

    async def _leave_link(self, link: Connection | None, answers_s: float) -> None:
        """Takes no more work, gives back what has not begun, awaits answers, unbinds."""
        self._stock.close()
        await self._settle_claims(answers_s)
        self.pump.give_back()
        if link is not None:
            await link.unbind(answers_s)

    async def _forget(self) -> None:
        try:
            await self._parts.scheduler.forget_session(self.session.provider, self.session.name)  # down as well
        except IndexUnavailable as fault:
            _log.warning("session_not_forgotten", session=self.session.name, reason=fault.reason)

    def abandon(self) -> None:
        """Drops the link at once: the lock is gone and another process may bind, and speak for the session."""
        self._abandoned = True
        self._binder.leave()
        self._stock.close()
        if self.link is not None:
            self.link.close()

    def order(self, mode: str | None) -> None:
        """What an operator wants now: None (work), `pause` (stay bound, take no work) or `drain` (unbind, stay down).

        What is in flight is finished in either case.
        """
        if mode == self._mode:
            return
        _log.info("session_ordered", session=self.session.name, mode=mode or "resume")
        self._mode = mode
        self._binder.drain(mode == DRAIN)
        link = self.link
        if link is None:
            return
        if mode is None:
            self._take_up(link)
        elif mode == DRAIN:
            self._begin(self._leave_link(link, self.session.response_timeout_ms / 1000), "drain")
        else:
            self._begin(self._put_down(), "pause")

    def try_again(self) -> None:
        """Binds again after a refusal that stopped the session."""
        self._binder.forgive()

    def stop_trying(self, reason: str) -> None:
        """The account is refused: this session goes down and does not come back by itself."""
        self._binder.refuse(reason)
        if self.link is not None:
            self.pump.connection = None
            self.enter("refused")
            self._begin(self._leave_link(self.link, _ANSWERS_S), "refused")

    def report(self) -> dict[str, Any]:
        """What `status` shows of this session."""
        used = 0 if self.link is None else self.link.unanswered
        metrics.session_window_used.labels(self.session.name).set(used)
        metrics.session_window_max.labels(self.session.name).set(self.session.window)
        now_mono = self._parts.clock.now_mono()
        rate_per_s = self._pacer.rate_per_s(now_mono)
        if rate_per_s is None and self.session.limits is not None:
            rate_per_s = self.session.limits.rate_per_s
        if rate_per_s is not None:
            metrics.session_rate_per_s.labels(self.session.name).set(rate_per_s)
        return {
            "provider": self.session.provider,
            "state": self.state,
            "window": self.session.window,
            "used": used,
            "ready": self.pump.stock,
            "rate": round(self._pacer.shown_per_s(now_mono), 1),
            "limit": rate_per_s,
            "round_trip_ms": round(self.pump.round_trip_s * 1000, 1),
            "last_error": self.pump.last_error,
        }

    # -- what the health reporter asks and tells -----------------------------------------------------------------------

    def load(self, now_mono: float) -> Load:
        """What this session has in hand."""
        return Load(self._pacer.measured_per_s, self.pump.waiting, self.pump.unanswered_s(now_mono) * 1000)

    def healthy(self, health: Health, asked_less: bool) -> None:
        """The scheduler's verdict: what is held here follows it, and goes back where a breaker is open."""
        if health.breaker == "open":
            self.pump.give_back_ready()
        if asked_less and health.rate_per_s is not None and health.rate_share < 1:
            self._pacer.follow(health.rate_per_s, self._parts.clock.now_mono())

    # -- the link's handler --------------------------------------------------------------------------------------------

    def answered(self, token: object, response: Pdu, late: bool) -> None:
        """An answer to a submit_sm."""
        if isinstance(token, Part):
            self.pump.answered(token, response, late)

    def timed_out(self, token: object) -> None:
        """No answer in time; the link stays open."""
        if isinstance(token, Part):
            self.pump.timed_out(token)

    def requested(self, pdu: Pdu) -> None:
        """A receipt or a handset's message: kept before it is answered. An alert_notification needs no answer."""
        if not isinstance(pdu, DeliverSm | DataSm):
            return
        if self.link is None:
            self._early.append(pdu)
        else:
            self._parts.delivered(self, pdu)

    def room(self) -> None:
        """Window or socket have space."""
        self.pump.run()

    def lost(self, tokens: list[tuple[object, bool]], reason: str) -> None:
        """The link ended."""
        self.link = None
        self._early.clear()
        self._stock.close()
        self.pump.lost(tokens)
        self.pump.last_error = reason
        self._binder.lost()

    # -- inside --------------------------------------------------------------------------------------------------------

    async def opened(self, link: Connection) -> None:
        """A bind succeeded."""
        self.link = link
        early, self._early = self._early, []
        for pdu in early:
            self._parts.delivered(self, pdu)
        self.pump.last_error = None
        self.pump.answered_mono = self._parts.clock.now_mono()
        _log.info("session_bound", session=self.session.name, provider=self.session.provider)
        self.apply(self._parts.policies.current)
        if self._mode is None:
            self._take_up(link)
        elif self._mode == DRAIN:
            self._begin(self._leave_link(link, _ANSWERS_S), "drain")
        else:
            self.enter("paused")

    async def closed(self) -> None:
        """The link has ended."""
        await self._tell_down()
        if not self._binder.leaving.is_set() and not self._binder.drained:
            _log.warning("session_lost", session=self.session.name, reason=self.pump.last_error)

    async def awaits(self, wait_s: float) -> None:
        """The next attempt to bind begins in so many seconds: the door's estimate counts on it."""
        await self._tell_down(self._parts.clock.now_at() + int(wait_s * 1000))

    def tell(self, fault: str) -> None:
        """Why there is no link, for `status`."""
        self.pump.last_error = fault

    def _take_up(self, link: Connection) -> None:
        """The session takes work."""
        self.enter("bound")
        if self.session.bind == "receiver":
            return
        self._ramps = True
        self.pump.connection = link
        self._stock.open()

    async def _enlist(self) -> None:
        """Tells the index, which may be lost, that the session is up and wants wakes; the rate ramps up once a bind."""
        provider, name = self.session.provider, self.session.name
        carrier = self._parts.policies.current.providers.get(provider)
        ramp = carrier.ramp if carrier is not None else Ramp()
        start = ramp.start if self._ramps else 1.0
        await self._parts.scheduler.session_up(provider, name, start, ramp.double_every_ms)
        self._ramps = False
        if self.link is None or self.state != "bound":  # gone meanwhile: the index may have heard of that before
            await self._tell_down()

    async def _put_down(self) -> None:
        """The session takes no more work; what has not begun goes back, what is in flight is finished."""
        self.enter("paused")
        self._stock.close()
        await self._settle_claims(_ANSWERS_S)
        self.pump.give_back_ready()
        await self._tell_down()

    async def _tell_down(self, back_at: int | None = None) -> None:
        """The door must know when a provider has no session left, and when it may be back."""
        if self._binder.leaving.is_set() or self.session.bind == "receiver":
            return  # `stop` forgets the session altogether; a receiver never took work
        try:
            await self._parts.scheduler.session_down(self.session.provider, self.session.name, back_at)
        except IndexUnavailable as fault:
            _log.debug("session_not_told_down", session=self.session.name, reason=fault.reason)

    def binds_alike(self, session: Session) -> bool:
        """Whether another definition needs no new bind: it differs in its limits at most."""
        return replace(session, limits=self.session.limits) == self.session

    def retune(self, session: Session) -> None:
        """Takes over other limits; the scheduler's leases follow them, the link stays."""
        if session.limits != self.session.limits:
            self.session = session
            self._pacer.configure(None if session.limits is None else session.limits.rate_per_s)

    def apply(self, policy: Policy) -> None:
        """Takes over what a new policy says of the provider; the bind itself is unchanged."""
        provider = policy.providers.get(self.session.provider)
        if provider is not None:
            self.pump.dialect = provider.dialect

    async def _settle_claims(self, timeout_s: float) -> None:
        """Claims that are under way come back into the pump first, so that they can be given back from there."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._parts.claimer.wait_idle()
        except TimeoutError:
            _log.warning("claims_under_way", session=self.session.name)

    def _notice(self) -> None:
        self._stock.notice()

    def _held(self, said: Consequence, status: int, route: str) -> None:
        """The link, the route or the account is at fault, not the message (reliability.md 3.2)."""
        name = NAMES.get(status, f"0x{status:08x}")
        _log.error("session_held", session=self.session.name, status=name, holds=said.holds)
        if said.holds != "session":
            self._parts.held_elsewhere(self, said, status, route)
            return
        link = self.link
        if link is None or self.state == "resting":
            return
        self._stock.close()
        self.pump.connection = None
        self.enter("resting")
        self._begin(self._rest(link, _REST_S if said.delay_ms is None else said.delay_ms / 1000), "rest")

    async def _rest(self, link: Connection, rest_s: float) -> None:
        """Answers in flight have time to come, then the link ends; the binder makes a new one."""
        self.pump.give_back()
        with suppress(TimeoutError):
            async with asyncio.timeout(rest_s):
                await self._binder.leaving.wait()
        await link.unbind(_ANSWERS_S)

    def _begin(self, work: Any, word: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"{word} {self.session.name}")
        self._tasks = [one for one in self._tasks if not one.done()]
        self._tasks.append(task)

    def enter(self, state: str) -> None:
        """Shows the state of the session, one of `binder.STATES`."""
        if self.state == "closed":
            return
        self.state = state
        session_metrics.show_state(self.session.name, state)
