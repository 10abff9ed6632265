"""The pump of one session: claimed work to the socket while the window and the socket take it, answers to endings.

No task and no timer per message: the pump runs when work arrives, when the window opens, and at the next paced moment.
The deadline is looked at when the octets go (design section 1, hop 7; I16); claimed work that did not leave within two
seconds goes back. A throttling answer stops the session: what was refused and what stood behind it go back together, in
their order, once the answers on their way are in (case S01).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.clock import Clock
from gateway.domain import outcomes
from gateway.egress import counters
from gateway.egress.flights import Flight, Part
from gateway.egress.pacing import Pacer
from gateway.egress.shelf import Shelf
from gateway.egress.submissions import validity_period
from gateway.egress.tallies import Tally
from gateway.ledger.outcomes import Closing
from gateway.policy.rules.snapshot import Dialect, Session
from gateway.telemetry import metrics, status_label
from smpp.link.connection import Connection
from smpp.protocol.errors import ROK, NotPermitted, PduInvalid, WindowFull
from smpp.protocol.pdu import Pdu
from smpp.protocol.status import NAMES, Consequence, consequence
from smpp.receipts import normal_id

WRITE_WITHIN_S: Final = 2.0
_ROUND_TRIP_S: Final = 0.2
_REST_S: Final = 1.0
UNSENDABLE: Final = "unsendable"
DEADLINES_DOUBTFUL: Final = frozenset({"otp"})
"""Classes that wait while the clock is in doubt: a late one-time password is worse than none (design section 3)."""


@dataclass(slots=True)
class Orders:
    """What the pump tells the rest of its process. All are plain calls and must not block."""

    close: Callable[[Closing], None]  # a slot has ended
    answered: Callable[[str, str, int], None]  # provider, class, segments
    hungry: Callable[[], None]  # stock went down
    held: Callable[[Consequence, int, str], None]  # link, route or account is at fault; command_status, route
    counted: Callable[[], None]  # the tally has something to tell
    ticket: Callable[[], int]  # how many endings were reported so far
    claiming: Callable[[], int]  # leased messages whose claim is under way
    may_write: Callable[[], bool]  # this process still owns the session


class Pump:
    """Ready and flying work of one session; `connection` is set while bound."""

    def __init__(self, session: Session, clock: Clock, pacer: Pacer, tally: Tally, orders: Orders) -> None:
        self.connection: Connection | None = None
        self.dialect = Dialect()
        self.pacer = pacer
        self.tally = tally
        self.returns_ticket = 0  # until the writer has come so far, what was refused is not first in line again
        self.round_trip_s = _ROUND_TRIP_S
        self.answered_mono = 0.0
        self.last_error: str | None = None
        self._provider = session.provider
        self._session = session.name
        self._clock = clock
        self._orders = orders
        self._ready = Shelf()
        self._taken: list[tuple[Part, Pdu, float]] = []  # accepted, and when; not booked yet
        self._midway: list[Flight] = []  # long messages between two parts
        self._flying: dict[Flight, None] = {}  # in the order in which they began
        self._returning: list[Flight] = []  # set aside in a rest, to go back together
        self._return_by_mono = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._stale_timer: asyncio.TimerHandle | None = None
        self._response_seconds = metrics.submit_response_seconds.labels(session.provider)

    @property
    def stock(self) -> int:
        """Claimed messages that wait for their write."""
        return len(self._ready)

    @property
    def flying(self) -> int:
        """Messages with an unanswered or unsent part."""
        return len(self._flying)

    @property
    def waiting(self) -> int:
        """Claimed parts that are not written yet."""
        return self._ready.parts + sum(flight.left for flight in self._midway)

    def unanswered_s(self, now_mono: float) -> float:
        """Age of the oldest message whose answer is awaited, in seconds; 0 where none is."""
        for flight in self._flying:
            if flight.pending:
                return max(0.0, now_mono - flight.begun_mono)
        return 0.0

    def is_resting(self, now_mono: float) -> bool:
        """Whether a throttling answer stops this session, or what it refused is still on its way back."""
        return bool(self._returning) or self.pacer.rest_s(now_mono) > 0

    def add(self, flights: list[Flight]) -> None:
        """Takes freshly claimed work; what cannot be sent at all ends at once."""
        for flight in flights:
            if flight.is_over:
                self._finish(flight)
            else:
                self._ready.put(flight)
        if self.is_resting(self._clock.now_mono()):
            self._put_by()
        self.run()
        self._watch_stale()

    def run(self) -> None:
        """Writes what may leave now."""
        now_mono = self._clock.now_mono()
        self._return(now_mono)
        while self._can_write(now_mono):
            flight = self._next(now_mono)
            if flight is None:
                break
            self._write(flight, now_mono)
        if self._taken:
            if self.connection is not None:
                self.connection.push()
            self._book_taken()
        self._arm(now_mono)
        self._orders.hungry()

    def give_back_ready(self) -> None:
        """Everything that has not begun goes back to the queue."""
        self._put_by()
        self._return(float("inf"))

    def give_back(self) -> None:
        """As `give_back_ready`, and messages between two parts begin no further part."""
        self.give_back_ready()
        for flight in list(self._midway):
            flight.stopped = True
            self._midway.remove(flight)
            self._end_if_over(flight)

    def answered(self, part: Part, response: Pdu, late: bool) -> None:
        """One answer of the carrier. An acceptance is booked in `run`, once what it made room for is on its way."""
        now_mono = self._clock.now_mono()
        if response.command_status == ROK and not late:
            self._taken.append((part, response, now_mono))
            return
        self._book_taken()
        self._book(part, response, now_mono, late=late)
        self._tell_health()

    def _book_taken(self) -> None:
        if not self._taken:
            return
        taken, self._taken = self._taken, []
        for part, response, came_mono in taken:
            self._book(part, response, came_mono, late=False)
        self._tell_health()

    def _book(self, part: Part, response: Pdu, now_mono: float, *, late: bool) -> None:
        """What an answer says decides the part, the pace and perhaps the link."""
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
            self.pacer.accepted()
            self.tally.accepted()
        else:
            self._react(flight, said, status, now_mono)
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
        self._book_taken()
        part.flight.doubt(part.number)
        self.tally.silent()
        self._tell_health()
        self._settle(part, late=False)

    def lost(self, tokens: list[tuple[object, bool]]) -> None:
        """The link ended: written parts are in doubt, unwritten ones provably are not."""
        self._book_taken()
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
        self._return(float("inf"))

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
            flight = self._ready.take()
            doubtful = self._clock.doubtful and flight.class_name in DEADLINES_DOUBTFUL
            if now_mono - flight.claimed_mono <= WRITE_WITHIN_S and not doubtful:
                return flight
            flight.stopped = True  # claimed too long ago: somebody else may be quicker
            self._finish(flight)
        return None

    def _write(self, flight: Flight, now_mono: float) -> None:
        now_at = self._clock.now_at()
        if not self._in_time(flight, now_at):
            if self._clock.doubtful:
                flight.stopped = True  # nothing expires by a clock that may be wrong: it goes back
            else:
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
                self._ready.put_back(flight)
            self.connection = None  # it said can_send and does not: the binder finds out what it is
            return
        self._wrote(flight, now_at, now_mono)

    def _wrote(self, flight: Flight, now_at: int, now_mono: float) -> None:
        if not flight.begun:
            flight.written_at = now_at
            flight.begun_mono = now_mono
            if not self._flying:
                self._orders.counted()
            self._flying[flight] = None
            counters.waits(flight.class_name).observe(max(0, now_at - flight.queued_at) / 1000)
        flight.position += 1
        flight.pending += 1
        self.pacer.spend(now_mono)
        counters.segments(flight.class_name).inc()
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
        if self._returning:
            self._return(self._clock.now_mono())

    def _end_if_over(self, flight: Flight) -> None:
        if flight.is_over and not flight.ended:
            self._finish(flight)

    def _finish(self, flight: Flight) -> None:
        self._flying.pop(flight, None)
        throttled = flight.outcome == outcomes.THROTTLED and not flight.doubts
        if throttled and self.pacer.rest_s(self._clock.now_mono()) > 0:
            self._returning.append(flight)
            return
        self._orders.close(flight.closing(self._clock.now_at()))

    def _put_by(self) -> None:
        """What has not begun is set aside, to go back in its order."""
        put_by = self._ready.take_claimed_before(float("inf"))
        for flight in put_by:
            flight.stopped = True
        self._returning.extend(put_by)

    def _return(self, now_mono: float) -> None:
        """What was set aside goes back as one batch, once the answers and claims on their way are in."""
        if not self._returning:
            return
        awaited = any(flight.pending for flight in self._flying) or self._orders.claiming() > 0
        if awaited and now_mono < self._return_by_mono and self.pacer.rest_s(now_mono) > 0:
            return
        returning = sorted(self._returning, key=lambda flight: (flight.queued_at, flight.id.int))
        self._returning.clear()
        now_at = self._clock.now_at()
        for flight in returning:
            self._orders.close(flight.closing(now_at))
        self.returns_ticket = self._orders.ticket()

    def _react(self, flight: Flight, said: Consequence, status: int, now_mono: float) -> None:
        self.last_error = NAMES.get(status, f"0x{status:08x}")
        self.tally.refused(said, status, flight.recipient)
        if said.kind == "throttle":
            self.pacer.slow(now_mono, self.round_trip_s)
            least_s = _REST_S if said.delay_ms is None else said.delay_ms / 1000
            if self.pacer.rest(now_mono, least_s, random.random()):
                self._return_by_mono = now_mono + WRITE_WITHIN_S
                self._put_by()
        if said.holds is not None:
            self._orders.held(said, status, flight.route)

    def _tell_health(self) -> None:
        self.tally.round_trip_s = self.round_trip_s
        self._orders.counted()

    def _count(self, flight: Flight, said: Consequence, status: int) -> None:
        attempt = "retry" if flight.is_retry else "first"
        counters.submits(self._provider, self._session, said.kind, attempt).inc()
        if status:
            metrics.carrier_errors_total.labels(self._provider, status_label(status)).inc()

    def _arm(self, now_mono: float) -> None:
        """One timer for the next paced write or the next part, only while something waits for that moment."""
        moments = [flight.due_mono for flight in self._midway]
        wait_s = self.pacer.wait_s(now_mono)
        if wait_s > 0 and (self._ready or self._midway or self.pacer.rest_s(now_mono) > 0):
            moments.append(now_mono + wait_s)
        if self._returning:
            moments.append(self._return_by_mono)
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
        for flight in self._ready.take_claimed_before(now_mono - WRITE_WITHIN_S * 0.75):
            flight.stopped = True
            self._finish(flight)
        self._watch_stale()
        self._orders.hungry()
