"""The pump of one session: claimed work to the socket while the window and the socket take it, answers to endings.

No task and no timer per message: the pump runs when work arrives, when the window opens, and at the next paced moment.
The deadline is looked at when the octets go (design section 1, hop 7; I16); claimed work that did not leave within two
seconds goes back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.clock import Clock
from gateway.egress.flights import Flight, Part
from gateway.egress.pacing import Pacer
from gateway.egress.submissions import validity_period
from gateway.ledger.outcomes import Closing
from gateway.policy.rules.snapshot import Dialect
from gateway.telemetry import metrics
from smpp.link.connection import Connection
from smpp.protocol.errors import NotPermitted, PduInvalid, WindowFull
from smpp.protocol.pdu import Pdu
from smpp.protocol.status import NAMES, Consequence, consequence
from smpp.receipts import normal_id

WRITE_WITHIN_S: Final = 2.0
_ROUND_TRIP_S: Final = 0.2
UNSENDABLE: Final = "unsendable"


@dataclass(slots=True)
class Orders:
    """What the pump tells the rest of its process. All are plain calls and must not block."""

    close: Callable[[Closing], None]  # a slot has ended
    answered: Callable[[str, str, int], None]  # provider, class, segments
    hungry: Callable[[], None]  # stock went down
    held: Callable[[Consequence, int], None]  # the link or the account is at fault, with the command_status
    may_write: Callable[[], bool]  # this process still owns the session


class Pump:
    """Ready and flying work of one session; `connection` is set while bound."""

    def __init__(self, provider: str, session: str, clock: Clock, pacer: Pacer, orders: Orders) -> None:
        self.connection: Connection | None = None
        self.dialect = Dialect()
        self.pacer = pacer
        self.round_trip_s = _ROUND_TRIP_S
        self.answered_mono = 0.0
        self.last_error: str | None = None
        self._provider = provider
        self._session = session
        self._clock = clock
        self._orders = orders
        self._ready: deque[Flight] = deque()
        self._midway: list[Flight] = []  # long messages between two parts
        self._flying: set[Flight] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._stale_timer: asyncio.TimerHandle | None = None
        self._response_seconds = metrics.submit_response_seconds.labels(provider)

    @property
    def stock(self) -> int:
        """Claimed messages that wait for their write."""
        return len(self._ready)

    @property
    def flying(self) -> int:
        """Messages with an unanswered or unsent part."""
        return len(self._flying)

    def add(self, flights: list[Flight]) -> None:
        """Takes freshly claimed work; what cannot be sent at all ends at once."""
        for flight in flights:
            if flight.is_over:
                self._finish(flight)
            else:
                self._ready.append(flight)
        self.run()
        self._watch_stale()

    def run(self) -> None:
        """Writes what may leave now."""
        now_mono = self._clock.now_mono()
        while self._can_write(now_mono):
            flight = self._next(now_mono)
            if flight is None:
                break
            self._write(flight, now_mono)
        self._arm(now_mono)
        self._orders.hungry()

    def give_back(self) -> None:
        """Everything ready goes back to the queue; messages between two parts begin no further part."""
        ready, self._ready = self._ready, deque()
        for flight in ready:
            flight.stopped = True
            self._finish(flight)
        for flight in list(self._midway):
            flight.stopped = True
            self._midway.remove(flight)
            self._end_if_over(flight)

    def answered(self, part: Part, response: Pdu, late: bool) -> None:
        """One answer of the carrier: what it says decides the part, the pace and perhaps the link."""
        now_mono = self._clock.now_mono()
        flight, status = part.flight, response.command_status
        said = consequence(status, self.dialect.status_overrides)
        round_trip_s = now_mono - part.written_mono
        self.answered_mono = now_mono
        self._response_seconds.observe(round_trip_s)
        self._count(flight, said, status)
        self._orders.answered(self._provider, flight.class_name, 1)
        carrier_id = ""
        if said.kind == "accepted":
            raw_id = getattr(response, "message_id", "")
            carrier_id = normal_id(raw_id, self.dialect.receipt_ids, "answer") if raw_id else ""
            self.round_trip_s += (round_trip_s - self.round_trip_s) / 8
        else:
            self._react(said, status, now_mono)
        if flight.ended:
            self._orders.close(flight.late(part.number, status, said, carrier_id, self._clock.now_at()))
            return
        if said.kind == "accepted":
            flight.took(part.number, carrier_id)
        else:
            flight.refuse(part.number, status, said)
        self._settle(part, late)

    def timed_out(self, part: Part) -> None:
        """No answer in time: that part is in doubt, the link stays."""
        part.flight.doubt(part.number)
        self._settle(part, late=False)

    def lost(self, tokens: list[tuple[object, bool]]) -> None:
        """The link ended: written parts are in doubt, unwritten ones provably are not."""
        self.connection = None
        touched: list[Flight] = []
        for token, written in tokens:
            if not isinstance(token, Part) or token.settled:
                continue
            if written:
                token.flight.doubt(token.number)
            else:
                token.flight.unwritten()
            token.settled = True
            token.flight.pending -= 1
            touched.append(token.flight)
        self.give_back()
        for flight in touched:
            flight.stopped = True
            self._end_if_over(flight)

    def _can_write(self, now_mono: float) -> bool:
        link = self.connection
        return (
            link is not None
            and link.can_send
            and link.window_free > 0
            and link.writable
            and self.pacer.wait_s(now_mono) <= 0
            and self._orders.may_write()
        )

    def _next(self, now_mono: float) -> Flight | None:
        """The next message to write a part of: one whose next part is due, else the oldest ready one."""
        for place, flight in enumerate(self._midway):
            if flight.due_mono <= now_mono:
                del self._midway[place]
                return flight
        while self._ready:
            flight = self._ready.popleft()
            if now_mono - flight.claimed_mono <= WRITE_WITHIN_S:
                return flight
            flight.stopped = True  # claimed too long ago: somebody else may be quicker
            self._finish(flight)
        return None

    def _write(self, flight: Flight, now_mono: float) -> None:
        now_at = self._clock.now_at()
        if not self._in_time(flight, now_at):
            flight.run_out()
            self._end_if_over(flight)
            return
        number, pdu = flight.pdus[flight.position]
        pdu.validity_period = validity_period(
            self.dialect.validity_period, now_at, flight.expires_at, self.dialect.timezone
        )
        part = Part(flight, number, now_mono)
        try:
            assert self.connection is not None
            self.connection.submit(pdu, part)
        except PduInvalid:
            flight.reject_itself(UNSENDABLE)
            self._end_if_over(flight)
            return
        except (NotPermitted, WindowFull):
            if flight.begun:
                self._midway.append(flight)
            else:
                self._ready.appendleft(flight)
            self.connection = None  # it said can_send and does not: the binder finds out what it is
            return
        self._wrote(flight, now_at, now_mono)

    def _wrote(self, flight: Flight, now_at: int, now_mono: float) -> None:
        if not flight.begun:
            flight.written_at = now_at
            self._flying.add(flight)
            metrics.queue_wait_seconds.labels(flight.class_name).observe(max(0, now_at - flight.queued_at) / 1000)
        flight.position += 1
        flight.pending += 1
        self.pacer.spend(now_mono)
        metrics.segments_submitted_total.labels(flight.class_name).inc()
        if flight.left:
            flight.due_mono = now_mono + flight.spacing_s
            self._midway.append(flight)

    def _in_time(self, flight: Flight, now_at: int) -> bool:
        """The last check: a long message begins only where its last part still fits (contract, "The two clocks")."""
        if flight.begun:
            return now_at < flight.expires_at
        last_at = now_at + (flight.left - 1) * flight.spacing_s * 1000
        return now_at < flight.deadline_at and last_at < flight.expires_at

    def _settle(self, part: Part, late: bool) -> None:
        if not late and not part.settled:
            part.settled = True
            part.flight.pending -= 1
        flight = part.flight
        if flight.stopped and flight in self._midway:
            self._midway.remove(flight)
        self._end_if_over(flight)

    def _end_if_over(self, flight: Flight) -> None:
        if flight.is_over and not flight.ended:
            self._finish(flight)

    def _finish(self, flight: Flight) -> None:
        self._flying.discard(flight)
        self._orders.close(flight.closing(self._clock.now_at()))

    def _react(self, said: Consequence, status: int, now_mono: float) -> None:
        self.last_error = NAMES.get(status, f"0x{status:08x}")
        if said.kind == "throttle":
            self.pacer.slow(now_mono, self.round_trip_s)
        elif said.kind == "hold":
            self._orders.held(said, status)

    def _count(self, flight: Flight, said: Consequence, status: int) -> None:
        attempt = "retry" if flight.is_retry else "first"
        metrics.submits_total.labels(self._provider, self._session, said.kind, attempt).inc()
        if status:
            metrics.carrier_errors_total.labels(self._provider, NAMES.get(status, f"0x{status:08x}")).inc()

    def _arm(self, now_mono: float) -> None:
        """One timer for the next paced write or the next part, only while something waits for that moment."""
        moments = [flight.due_mono for flight in self._midway]
        if self._ready or self._midway:
            wait_s = self.pacer.wait_s(now_mono)
            if wait_s > 0:
                moments.append(now_mono + wait_s)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if moments and self.connection is not None:
            delay_s = max(0.001, min(moments) - now_mono)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.run()

    def _watch_stale(self) -> None:
        """Claimed work that finds no room is given back in time even if nothing else happens on this session."""
        if self._ready and self._stale_timer is None:
            self._stale_timer = asyncio.get_running_loop().call_later(WRITE_WITHIN_S / 4, self._drop_stale)

    def _drop_stale(self) -> None:
        self._stale_timer = None
        now_mono = self._clock.now_mono()
        while self._ready and now_mono - self._ready[0].claimed_mono > WRITE_WITHIN_S * 0.75:
            flight = self._ready.popleft()
            flight.stopped = True
            self._finish(flight)
        self._watch_stale()
        self._orders.hungry()
