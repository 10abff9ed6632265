"""One SMPP session of this process: bind, keep bound, take work, write it, leave in good order.

Reconnects wait a full-jitter back-off, before the first try too; one bind attempt at a time per account
(reliability.md section 4). A refusal of the credentials stops it until the policy changes.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway import logs
from gateway.clock import Clock
from gateway.egress.claimer import Claimer
from gateway.egress.flights import Part
from gateway.egress.outcome_writer import OutcomeWriter
from gateway.egress.owner import Owner
from gateway.egress.pacing import Pacer
from gateway.egress.pump import Orders, Pump
from gateway.egress.stock import Stock, StockParts
from gateway.egress.tls import tls_context
from gateway.policy.holder import PolicyHolder
from gateway.policy.rules.snapshot import Policy, Ramp, Session, StatusOverride
from gateway.policy.secrets import SecretMissing, resolve
from gateway.telemetry import metrics
from scheduler.store.scheduler import IndexUnavailable, Scheduler
from smpp.link import BindRefused, Connection, LinkLost, LinkSettings, connect
from smpp.protocol.errors import PduInvalid
from smpp.protocol.pdu import DataSm, DeliverSm, Pdu
from smpp.protocol.status import NAMES, Consequence, consequence

STATES: Final = ("waiting", "connecting", "bound", "resting", "refused", "leaving", "closed")
_REST_S: Final = 5.0
_ACCOUNT_WAIT_S: Final = 0.2
_log = logs.get("egress.session")


@dataclass(frozen=True, slots=True)
class LineParts:
    """What a session works with; `delivered` takes what the carrier delivers on it."""

    scheduler: Scheduler
    claimer: Claimer
    writer: OutcomeWriter
    clock: Clock
    owner: Owner
    policies: PolicyHolder
    delivered: Callable[[SessionLine, DeliverSm | DataSm], None]


class SessionLine:
    """Runs one session between `start` and `stop`; implements the link's handler."""

    def __init__(self, session: Session, parts: LineParts) -> None:
        self.session = session
        self.link: Connection | None = None
        self.state = "waiting"
        self._parts = parts
        limits = session.limits
        self._pacer = Pacer(limits.rate_per_s if limits is not None else None)
        orders = Orders(
            close=parts.writer.close,
            answered=parts.writer.answered,
            hungry=self._notice,
            held=self._held,
            may_write=parts.owner.may_write,
        )
        self.pump = Pump(session.provider, session.name, parts.clock, self._pacer, orders)
        self._stock = Stock(
            session.provider,
            session.name,
            session.window,
            StockParts(parts.scheduler, parts.claimer, parts.writer, parts.clock, parts.policies, self.pump),
        )
        self._lost = asyncio.Event()
        self._leaving = asyncio.Event()
        self._abandoned = False
        self._tasks: list[asyncio.Task[None]] = []

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self, spawn: Callable[[Any, str], asyncio.Task[Any]]) -> None:
        """Starts binding and leasing."""
        name = self.session.name
        self._tasks = [spawn(self._keep_bound(), f"bind {name}"), spawn(self._stock.run(), f"stock {name}")]

    async def stop(self, drain_s: float) -> None:
        """Leaves in good order: no lease, nothing ready kept, answers awaited up to `drain_s`, unbind."""
        self._enter("leaving")
        self._leaving.set()
        self._stock.close()
        await self._settle_claims(drain_s)
        self.pump.give_back()
        link = self.link
        if link is not None:
            await link.unbind(drain_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self._abandoned:
            await self._forget()
        self._enter("closed")

    async def _forget(self) -> None:
        try:
            await self._parts.scheduler.forget_session(self.session.provider, self.session.name)  # down as well
        except IndexUnavailable as fault:
            _log.warning("session_not_forgotten", session=self.session.name, reason=fault.reason)

    def abandon(self) -> None:
        """Drops the link at once: the lock is gone and another process may bind, and speak for the session."""
        self._abandoned = True
        self._leaving.set()
        self._stock.close()
        if self.link is not None:
            self.link.close()

    def report(self) -> dict[str, Any]:
        """What `status` shows of this session."""
        used = 0 if self.link is None else self.link.unanswered
        metrics.session_window_used.labels(self.session.name).set(used)
        rate_per_s = self._pacer.rate_per_s(self._parts.clock.now_mono())
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
            "rate": round(self._pacer.measured_per_s, 1),
            "limit": rate_per_s,
            "last_error": self.pump.last_error,
        }

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
        if isinstance(pdu, DeliverSm | DataSm):
            self._parts.delivered(self, pdu)

    def room(self) -> None:
        """Window or socket have space."""
        self.pump.run()

    def lost(self, tokens: list[tuple[object, bool]], reason: str) -> None:
        """The link ended."""
        self.link = None
        self._stock.close()
        self.pump.lost(tokens)
        self.pump.last_error = reason
        self._lost.set()

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _keep_bound(self) -> None:
        tries = 0
        while not self._leaving.is_set():
            await self._back_off(tries)
            if self._leaving.is_set():
                return
            tries += 1
            refused = await self._try()
            if refused is not None and refused.stop:
                self._enter("refused")
                await self._leaving.wait()
                return
            if self.link is None:
                continue
            tries = 0
            await self._lost.wait()
            await self._tell_down()
            if not self._leaving.is_set():
                metrics.reconnects_total.labels(self.session.name).inc()
                _log.warning("session_lost", session=self.session.name, reason=self.pump.last_error)

    async def _back_off(self, tries: int) -> None:
        """Full jitter, the first try included: many processes that start together must not bind together."""
        self._enter("waiting")
        ceiling_ms = min(self.session.reconnect_max_ms, self.session.reconnect_base_ms << min(tries, 16))
        try:
            await asyncio.wait_for(self._leaving.wait(), random.uniform(0.0, ceiling_ms / 1000))
        except TimeoutError:
            return

    async def _try(self) -> Consequence | None:
        """One connection and bind; the refusal's consequence where the carrier refused."""
        if not self._parts.owner.may_write():
            return None
        account = f"{self.session.host}:{self.session.port}:{self.session.system_id}"
        while not await self._parts.owner.take_account(account):
            if self._leaving.is_set() or not self._parts.owner.may_write():
                return None
            await asyncio.sleep(random.uniform(_ACCOUNT_WAIT_S / 2, _ACCOUNT_WAIT_S))
        try:
            await self._bind()
        except BindRefused as refusal:
            name = NAMES.get(refusal.command_status, f"0x{refusal.command_status:08x}")
            self.pump.last_error = f"bind refused: {name}"
            _log.error("bind_refused", session=self.session.name, status=name)
            return consequence(refusal.command_status, self._status_overrides())
        except SecretMissing:
            self.pump.last_error = "the password cannot be resolved"
            _log.error("bind_without_password", session=self.session.name)
        except PduInvalid:
            self.pump.last_error = "a bind field does not fit"
            _log.error("bind_field_invalid", session=self.session.name)
        except (LinkLost, OSError, TimeoutError) as fault:
            self.pump.last_error = f"connect failed: {type(fault).__name__}"
            _log.warning("bind_failed", session=self.session.name, error=type(fault).__name__)
        finally:
            await self._parts.owner.release_account(account)
        return None

    def _status_overrides(self) -> Mapping[int, StatusOverride]:
        provider = self._parts.policies.current.providers.get(self.session.provider)
        return {} if provider is None else provider.dialect.status_overrides

    async def _bind(self) -> None:
        self._enter("connecting")
        session = self.session
        password = resolve(session.password)
        tls: ssl.SSLContext | None = tls_context(session.tls) if session.tls is not None else None
        settings = LinkSettings(
            window=session.window,
            enquire_link_s=session.enquire_link_ms / 1000,
            response_timeout_s=session.response_timeout_ms / 1000,
            inactivity_s=session.inactivity_ms / 1000,
        )
        self._lost.clear()
        link = await connect(session.host, session.port, tls=tls, settings=settings, handler=self)
        try:
            await link.bind(session.bind, session.system_id, password, session.system_type)
        except BaseException:
            link.close()
            raise
        if self._lost.is_set() or self._leaving.is_set():
            link.close()
            return
        await self._opened(link)

    async def _opened(self, link: Connection) -> None:
        self.link = link
        self.pump.last_error = None
        self.pump.answered_mono = self._parts.clock.now_mono()
        self._enter("bound")
        _log.info("session_bound", session=self.session.name, provider=self.session.provider)
        if self.session.bind == "receiver":
            return
        self._refresh()
        try:
            await self._tell_up()
        except IndexUnavailable as fault:
            # Without a wake list the loop still looks once a second.
            _log.warning("session_not_registered", session=self.session.name, reason=fault.reason)
        if self.link is link:
            self.pump.connection = link
            self._stock.open()

    async def _tell_up(self) -> None:
        """Asks for wakes and starts the ramp of a fresh bind (contract section 3, `ramp`)."""
        provider, name = self.session.provider, self.session.name
        carrier = self._parts.policies.current.providers.get(provider)
        ramp = carrier.ramp if carrier is not None else Ramp()
        await self._parts.scheduler.register_session(provider, name)
        await self._parts.scheduler.session_up(provider, name, ramp.start, ramp.double_every_ms)

    async def _tell_down(self) -> None:
        """The door must know when a provider has no session left."""
        if self._leaving.is_set():
            return  # `stop` forgets the session altogether
        try:
            await self._parts.scheduler.session_down(self.session.provider, self.session.name)
        except IndexUnavailable as fault:
            _log.warning("session_not_told_down", session=self.session.name, reason=fault.reason)

    def apply(self, policy: Policy) -> None:
        """Takes over what a new policy says of the provider; the bind itself is unchanged."""
        provider = policy.providers.get(self.session.provider)
        if provider is not None:
            self.pump.dialect = provider.dialect

    def _refresh(self) -> None:
        self.apply(self._parts.policies.current)

    async def _settle_claims(self, timeout_s: float) -> None:
        """Claims that are under way come back into the pump first, so that they can be given back from there."""
        try:
            await asyncio.wait_for(self._parts.claimer.wait_idle(), timeout_s)
        except TimeoutError:
            _log.warning("claims_under_way", session=self.session.name)

    def _notice(self) -> None:
        self._stock.notice()

    def _held(self, said: Consequence, status: int) -> None:
        """The link or the account is at fault, not the message: rest, rebind or stop (reliability.md 3.2, class S)."""
        self._stock.close()
        _log.error("session_held", session=self.session.name, status=NAMES.get(status, f"0x{status:08x}"))
        if said.stop:
            self._leaving.set()
            self._enter("refused")
        link = self.link
        if link is not None:
            self.pump.connection = None
            self._enter("refused" if said.stop else "resting")
            asyncio.get_running_loop().call_later(0.0 if said.stop else _REST_S, self._leave_link, link)

    def _leave_link(self, link: Connection) -> None:
        """Ends a link after its answers in flight had time to come; the binder makes a new one."""
        task = asyncio.get_running_loop().create_task(link.unbind(2.0), name=f"unbind {self.session.name}")
        self._tasks.append(task)

    def _enter(self, state: str) -> None:
        if self.state == "closed":
            return
        self.state = state
        for each in STATES:
            metrics.session_state.labels(self.session.name, each).set(1 if each == state else 0)
