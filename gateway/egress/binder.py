"""Keeping one session bound: waits, attempts, and when not to try at all (design section 4; reliability.md 3.2, S).

A refusal of the credentials stops it until the policy changes, somebody resumes it by hand or the process starts anew.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Final, Protocol

from gateway import logs
from gateway.clock import Clock
from gateway.egress.accounts import Accounts
from gateway.egress.binding import ALARM_AFTER, Patience, open_bound
from gateway.policy.holder import PolicyHolder
from gateway.policy.rules.snapshot import Policy, Session
from gateway.policy.secrets import SecretMissing
from gateway.telemetry import metrics, status_label
from scheduler.core.values import valueclass
from smpp.link import BindRefused, Connection, LinkHandler, LinkLost
from smpp.protocol.errors import PduInvalid
from smpp.protocol.status import NAMES, consequence

STATES: Final = (
    "waiting", "connecting", "bound", "paused", "resting", "drained", "refused", "leaving", "closed",
)  # fmt: skip
_log = logs.get("egress.session")


class Holder(LinkHandler, Protocol):
    """The session that is kept bound; it hears of the link's end as the link's handler."""

    async def opened(self, link: Connection) -> None:
        """A bind succeeded."""

    async def closed(self) -> None:
        """The link that was opened has ended."""

    async def awaits(self, wait_s: float) -> None:
        """The next attempt begins in so many seconds."""

    def enter(self, state: str) -> None:
        """One of STATES."""

    def tell(self, fault: str) -> None:
        """Why there is no link, for a person: no secret, no address."""


@valueclass
class BinderParts:
    """What binding works with."""

    accounts: Accounts
    policies: PolicyHolder
    clock: Clock


class Binder:
    """One task of one session."""

    def __init__(self, session: Session, parts: BinderParts, holder: Holder) -> None:
        self.leaving = asyncio.Event()
        self.drained = False
        self.refused_at = 0  # on the queue's clock, 0 while not refused: a later order to resume counts
        self._session = session
        self._parts = parts
        self._holder = holder
        self._patience = Patience(session.reconnect_base_ms, session.reconnect_max_ms)
        self._lost = asyncio.Event()
        self._stirred = asyncio.Event()  # an order came, or the end

    def leave(self) -> None:
        """No attempt begins any more."""
        self.leaving.set()
        self._stirred.set()

    def drain(self, drained: bool) -> None:
        """Stays down once the link has ended, or comes back."""
        self.drained = drained
        self._stirred.set()

    def refuse(self, reason: str) -> None:
        """Stops trying: the carrier does not take these credentials."""
        if not self.refused_at:
            self.refused_at = self._parts.clock.now_at()
            self._holder.tell(reason)
            self._stirred.set()
            _log.error("session_stopped", session=self._session.name, reason=reason)

    def forgive(self) -> None:
        """Tries again after a refusal."""
        if self.refused_at:
            self.refused_at = 0
            self._parts.accounts.forgive(self._session)
            self._stirred.set()

    def lost(self) -> None:
        """The link ended, or an attempt did."""
        self._lost.set()

    async def run(self) -> None:
        """Runs until `leave`."""
        while not self.leaving.is_set():
            self._stirred.clear()
            if self.refused_at:
                await self._stay_down("refused")
            elif self.drained:
                await self._stay_down("drained")
            elif await self._wait_turn() and await self._try():
                self._patience.bound()
                await self._lost.wait()
                await self._holder.closed()
                if not (self.leaving.is_set() or self.drained or self.refused_at):
                    metrics.reconnects_total.labels(self._session.name).inc()

    async def _stay_down(self, state: str) -> None:
        self._holder.enter(state)
        await self._stirred.wait()

    async def _wait_turn(self) -> bool:
        """The back-off before an attempt; False where something else came up."""
        self._holder.enter("waiting")
        until_mono = self._parts.clock.now_mono() + (wait_s := self._patience.wait_s(random.random()))
        await self._holder.awaits(wait_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(until_mono - self._parts.clock.now_mono()):
                await self._stirred.wait()
        return not self._stirred.is_set()

    async def _try(self) -> bool:
        """One attempt, once it is this session's turn; whether the session is bound."""
        async with self._parts.accounts.turn(self._session, self._stirred.is_set) as granted:
            if not granted:
                return False
            if self._parts.accounts.is_refused(self._session):
                self.refuse("another session of the account was refused")
                return False
            self._holder.enter("connecting")
            self._lost.clear()
            link = await self._open()
            if link is None:
                return False
            if self._lost.is_set() or self.leaving.is_set():
                link.close()
                return False
            await self._holder.opened(link)
            return True

    async def _open(self) -> Connection | None:
        name, status = self._session.name, None
        policy = self._parts.policies.current
        try:
            return await open_bound(self._session, self._holder)
        except BindRefused as refusal:
            status = refusal.command_status
        except SecretMissing as missing:
            self._holder.tell(f"password {missing}")
            _log.error("bind_without_password", session=name, reference=missing.reference)
        except PduInvalid:
            self._holder.tell("a bind field does not fit")
            _log.error("bind_field_invalid", session=name)
        except (LinkLost, OSError, TimeoutError) as fault:
            what = "no answer in time" if isinstance(fault, TimeoutError) else type(fault).__name__
            self._holder.tell(f"connect failed: {what}")
            _log.warning("bind_failed", session=name, error=type(fault).__name__)
        self._patience.failed(status)
        if status is not None:
            self._refused_with(status, policy)
        return None

    def _refused_with(self, status: int, tried: Policy) -> None:
        name = NAMES.get(status, f"0x{status:08x}")
        metrics.binds_refused_total.labels(self._session.name, status_label(status)).inc()
        _log.error("bind_refused", session=self._session.name, status=name)
        self._holder.tell(f"bind refused: {name}")
        provider = self._parts.policies.current.providers.get(self._session.provider)
        overrides = {} if provider is None else provider.dialect.status_overrides
        # Refused under a policy that is no longer the one in use: what it says now has not been tried yet.
        if consequence(status, overrides).stop and tried is self._parts.policies.current:
            self._parts.accounts.refuse(self._session)
            self.refuse(f"bind refused: {name}")
        elif self._patience.held == ALARM_AFTER:
            _log.error("account_still_bound", session=self._session.name, refusals=ALARM_AFTER)
