"""One SMPP session, from either side, without socket or clock (SMPP 3.4 sections 2 and 7).

Octets and moments go in, events and octets come out. The rules:

1. `states.TRANSITIONS` and `states.PERMITTED` decide; a request of ours that they forbid raises NotPermitted, one of
   the peer's is answered with ESME_RINVBNDSTS. What a carrier delivers before its answer to our bind waits for that.
2. Requests of ours are bounded by the window; enquire_link, bind and unbind stand outside of it, and the peer's
   enquire_link is answered however full it is.
3. A request that gets no response in time frees its slot, keeps a tombstone and sends one enquire_link; only when that
   stays unanswered the link ends.
4. After an unbind, from either side, no request of ours leaves; the peer's unbind is answered at once and answers that
   are due are awaited for the grace time.
5. `end` hands back every unanswered token exactly once and says whether its octets may have left.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Final

from smpp.protocol import commands as c
from smpp.protocol import errors as e
from smpp.protocol.codec import decode, encode, encode_bare
from smpp.protocol.errors import NotPermitted, PduInvalid, ProtocolError
from smpp.protocol.events import Answered, Ended, Event, PeerUnbound, Requested, TimedOut
from smpp.protocol.framer import Framer
from smpp.protocol.pdu import TYPES, DataSm, DeliverSm, EnquireLink, GenericNack, Pdu, Unbind, Unknown
from smpp.protocol.settings import SessionSettings
from smpp.protocol.states import BOUND, PERMITTED, TRANSITIONS, Side, State, Step, permitted
from smpp.protocol.timers import Timers, Verdict
from smpp.protocol.window import Window

EARLY_MAX: Final = 100  # deliveries of a carrier that wait for its answer to our bind; further ones are refused

_STEPS: Final = {step.value: step for step in Step}


class Session:
    """`side` is who we are. `counts` has what was ignored or refused, by name, for metrics."""

    __slots__ = (
        "_control", "_control_queue", "_early", "_framer", "_leaving", "_over", "_peer_permitted", "_peer_requests",
        "_permitted", "_queued_octets", "_request_queue", "_settings", "_timers", "_unwritten", "_window",
        "_withheld", "counts", "side", "state",
    )  # fmt: skip

    def __init__(self, side: Side, settings: SessionSettings, now_mono: float) -> None:
        self.side = side
        self.state = State.OPEN
        self.counts: Counter[str] = Counter()
        self._settings = settings
        self._permitted = PERMITTED[side]
        self._peer_permitted = PERMITTED[side.peer]
        self._framer = Framer(settings.pdu_octets_max)
        self._timers = Timers(settings.timers, now_mono)
        self._control: dict[int, tuple[object, Pdu]] = {}
        self._window = Window(settings.window, settings.first_sequence, reserved=self._control)
        self._control_queue: list[bytes] = []
        self._request_queue: list[bytes] = []
        self._unwritten: list[int] = []
        self._withheld: set[int] = set()
        self._queued_octets = 0
        self._peer_requests = 0
        self._early: list[Pdu] = []
        self._leaving = False
        self._over = False

    @property
    def bound(self) -> bool:
        return self.state in BOUND

    @property
    def window_free(self) -> int:
        return self._window.free

    @property
    def unanswered(self) -> int:
        """Requests of ours that wait for a response."""
        return self._window.used

    @property
    def peer_requests(self) -> int:
        """Requests of the peer that were handed on and not answered yet."""
        return self._peer_requests

    @property
    def queued_octets(self) -> int:
        """Octets that `take` would give."""
        return self._queued_octets

    def may_send(self, command_id: int) -> bool:
        """Whether `request` would permit this command now, window aside."""
        return not self._leaving and self.state in self._permitted.get(command_id, ())

    # -- what we send ------------------------------------------------------------------------------------------------

    def request(self, pdu: Pdu, token: object) -> int:
        """Queues a request under the window, sets and returns its sequence number.

        Raises NotPermitted, WindowFull or PduInvalid; then nothing has changed.
        """
        if not self.may_send(pdu.COMMAND_ID):
            raise NotPermitted(f"{type(pdu).__name__} in state {self.state}")
        if pdu.COMMAND_ID in c.UNANSWERED:
            pdu.sequence_number = self._window.next_sequence()
            self._queue(encode(pdu))
            return pdu.sequence_number
        sequence = pdu.sequence_number = self._window.open(pdu.COMMAND_ID, token)
        try:
            octets = encode(pdu)
        except PduInvalid:
            self._window.cancel(sequence)
            raise
        self._request_queue.append(octets)
        self._queued_octets += len(octets)
        self._unwritten.append(sequence)
        return sequence

    def bind(self, pdu: Pdu, token: object) -> None:
        """Queues a bind request; its response comes as Answered with this token, and moves the state when good."""
        if not self.may_send(pdu.COMMAND_ID) or pdu.COMMAND_ID not in c.BINDS:
            raise NotPermitted(f"{type(pdu).__name__} in state {self.state}")
        self._ask(pdu, token)

    def leave(self) -> None:
        """No further request of ours, from now on; answers still come in and go out."""
        self._leaving = True

    def unbind(self, token: object, now_mono: float) -> None:
        """Queues unbind; the link ends with its response, or when the response timer runs out."""
        if not permitted(self.side, c.UNBIND, self.state):
            raise NotPermitted(f"Unbind in state {self.state}")
        self._leaving = True
        self._withhold()
        self._ask(Unbind(), token)
        self._timers.end_by(now_mono + self._settings.timers.response_s)

    def respond(self, request: Pdu, response: Pdu) -> None:
        """Queues the response to a request of the peer. On an ended link it is dropped: the peer asks again elsewhere.

        A good bind response moves the state; when another bind was answered before, it becomes ESME_RALYBND.
        """
        if self._over:
            return
        response.sequence_number = request.sequence_number
        if request.COMMAND_ID not in c.BINDS:
            self._peer_requests = max(0, self._peer_requests - 1)
        elif response.command_status == e.ROK:
            if self.state is not State.OPEN:
                self._queue(encode_bare(response.COMMAND_ID, e.RALYBND, request.sequence_number))
                return
            self._step(_STEPS[response.COMMAND_ID])
        self._queue(encode(response))

    def answer(self, request: Pdu, command_status: int = e.ROK) -> None:
        """Queues the plain response to a request of the peer: this status, empty fields."""
        response = TYPES[c.response_of(request.COMMAND_ID)]
        self.respond(request, response(command_status=command_status))

    def take(self, now_mono: float) -> bytes:
        """Everything that is queued, responses first; from here on it counts as written."""
        octets = b"".join(self._control_queue) + b"".join(self._request_queue)
        for sequence in self._unwritten:
            self._window.written(sequence, now_mono)
        self._control_queue.clear()
        self._request_queue.clear()
        self._unwritten.clear()
        self._queued_octets = 0
        return octets

    def parting(self) -> bytes:
        """After Ended: the responses that are still queued, without any request. They may be written before closing."""
        octets = b"".join(self._control_queue)
        self._control_queue.clear()
        return octets

    # -- what we read ------------------------------------------------------------------------------------------------

    def receive(self, octets: bytes, now_mono: float) -> list[Event]:
        """Takes what was read from the socket."""
        events: list[Event] = []
        if self._over:
            return events
        pdus: list[bytes] = []
        if self._framer.fault is None:
            with suppress(ProtocolError):  # told below, the framer keeps it
                pdus = self._framer.feed(octets)
        if pdus:
            self._timers.heard(now_mono)
        self._timers.reading(self._framer.held_octets > 0, bool(pdus), now_mono)
        for octets_of_one in pdus:
            self._read(octets_of_one, now_mono, events)
            if events and isinstance(events[-1], Ended):
                return events
        fault = self._framer.fault
        if fault is not None:
            self.counts["malformed"] += 1
            self._queue(encode_bare(c.GENERIC_NACK, fault.command_status, fault.sequence_number))
            self._finish("command_length is out of bounds", events)
        elif self.state is State.UNBOUND:
            self._settle(events)
        return events

    def tick(self, now_mono: float) -> list[Event]:
        """Lets the timers act; call it at `next_tick_mono`, earlier does no harm."""
        events: list[Event] = []
        if self._over:
            return events
        expired = self._window.expire(now_mono - self._settings.timers.response_s)
        if expired:
            events.extend(TimedOut(token) for token in expired)
            if self.bound and not self._timers.probing:
                self._probe(now_mono)
        verdict = self._timers.due(now_mono)
        if verdict is Verdict.PROBE:
            self._probe(now_mono)
        elif verdict is not None:
            self._finish(verdict.value, events)
        return events

    def next_tick_mono(self) -> float:
        """When `tick` has to be called next."""
        return min(self._timers.next_mono(), self._window.oldest_mono + self._settings.timers.response_s)

    def end(self) -> list[tuple[object, bool]]:
        """The link is gone or closes now: hands back (token, written) of every unanswered request, once.

        `written` is False only when no octet of the request was ever given out by `take`.
        """
        self._over = True
        self._leaving = True
        self._step(Step.LINK_ENDED)
        unwritten = self._withheld.union(self._unwritten)
        self._control_queue.clear()
        self._request_queue.clear()
        self._unwritten.clear()
        self._control.clear()
        self._queued_octets = 0
        self._peer_requests = 0
        return [(token, sequence not in unwritten) for sequence, token in self._window.drain()]

    # -- inside ------------------------------------------------------------------------------------------------------

    def _queue(self, octets: bytes) -> None:
        self._control_queue.append(octets)
        self._queued_octets += len(octets)

    def _ask(self, pdu: Pdu, token: object) -> None:
        sequence = pdu.sequence_number = self._window.next_sequence()
        self._queue(encode(pdu))
        self._control[sequence] = (token, pdu)

    def _probe(self, now_mono: float) -> None:
        self._ask(EnquireLink(), None)
        self._timers.probed(now_mono)

    def _step(self, step: Step) -> None:
        following = TRANSITIONS.get((self.state, step))
        if following is None:
            raise NotPermitted(f"{step.name} in state {self.state}")
        self.state = following
        if following in BOUND:
            self._timers.bound()

    def _finish(self, reason: str, events: list[Event]) -> None:
        self._over = True
        self._leaving = True
        events.append(Ended(reason))

    def _withhold(self) -> None:
        # What is still queued at an unbind never leaves; `end` gives it back as unwritten.
        self._withheld.update(self._unwritten)
        self._queued_octets -= sum(map(len, self._request_queue))
        self._request_queue.clear()
        self._unwritten.clear()

    def _settle(self, events: list[Event]) -> None:
        # Withheld requests cannot be answered; everything else is awaited until the grace time is over.
        if self._window.used == len(self._withheld):
            self._finish(Verdict.UNBOUND.value, events)

    def _read(self, octets: bytes, now_mono: float, events: list[Event]) -> None:
        try:
            pdu = decode(octets)
        except ProtocolError as fault:
            self._refuse_malformed(fault, now_mono, events)
            return
        if isinstance(pdu, Unknown):
            if c.is_response(pdu.command_id):
                self.counts["stray_response"] += 1
            else:
                self.counts["unknown_command"] += 1
                self._queue(encode_bare(c.GENERIC_NACK, e.RINVCMDID, pdu.sequence_number))
        elif c.is_response(pdu.COMMAND_ID):
            self._read_response(pdu, events)
        else:
            self._read_request(pdu, now_mono, events)

    def _refuse_malformed(self, fault: ProtocolError, now_mono: float, events: list[Event]) -> None:
        self.counts["malformed"] += 1
        readable = fault.readable
        if isinstance(readable, (DeliverSm, DataSm)):
            # A receipt says all in its text; refused for a broken parameter behind it, it would never come again whole.
            self._read_request(readable, now_mono, events)
        elif isinstance(readable, Pdu):
            # Its header tells whether the request was taken; an id that cannot be read does not undo that.
            self._read_response(readable, events)
        elif fault.command_id not in c.UNANSWERED:
            self._queue(encode_bare(c.response_of(fault.command_id), fault.command_status, fault.sequence_number))

    def _read_response(self, pdu: Pdu, events: list[Event]) -> None:
        sequence = pdu.sequence_number
        nacked = isinstance(pdu, GenericNack)
        if nacked and pdu.command_status == e.ROK:
            pdu.command_status = e.RUNKNOWNERR  # it could not be read, whatever the status says: never an acceptance
        asked = self._control.get(sequence)
        if asked is not None:
            token, request = asked
            if nacked or c.response_of(request.COMMAND_ID) == pdu.COMMAND_ID:
                del self._control[sequence]
                self._read_control_response(pdu, (token, request), events)
            else:
                self.counts["stray_response"] += 1
            return
        match = self._window.answer(sequence, None if nacked else pdu.COMMAND_ID)
        if match is not None:
            events.append(Answered(match.token, pdu, match.late))
        else:
            self.counts["stray_response"] += 1
            if nacked:
                # The peer could not read something of ours and cannot say what: the streams no longer agree.
                self._finish("generic_nack without a request", events)

    def _read_control_response(self, pdu: Pdu, asked: tuple[object, Pdu], events: list[Event]) -> None:
        token, request = asked
        if isinstance(request, EnquireLink):
            self._timers.probe_answered()
            return
        if isinstance(request, Unbind):
            if self.state is not State.UNBOUND:
                self._step(Step.UNBIND_ANSWERED)
            events.append(Answered(token, pdu, late=False))
            self._finish(Verdict.UNBOUND.value, events)
            return
        if pdu.command_status == e.ROK and self.state is State.OPEN:
            self._step(_STEPS[pdu.COMMAND_ID])
        events.append(Answered(token, pdu, late=False))
        while self.bound and self._early:
            self._hand_on(self._early.pop(0), events)

    def _read_request(self, pdu: Pdu, now_mono: float, events: list[Event]) -> None:
        command_id = pdu.COMMAND_ID
        if self._is_early(command_id):
            self._early.append(pdu)
        elif self.state not in self._peer_permitted.get(command_id, ()):
            self._refuse(pdu)
        elif command_id == c.ENQUIRE_LINK:
            self._queue(encode_bare(c.response_of(command_id), e.ROK, pdu.sequence_number))
        elif command_id == c.UNBIND:
            self._queue(encode_bare(c.response_of(command_id), e.ROK, pdu.sequence_number))
            self._step(Step.UNBIND_ANSWERED)
            self._leaving = True
            self._withhold()
            self._timers.end_by(now_mono + self._settings.timers.unbind_grace_s)
            events.append(PeerUnbound())
        elif command_id in c.UNANSWERED or command_id in c.BINDS:
            events.append(Requested(pdu))
        else:
            self._hand_on(pdu, events)

    def _refuse(self, pdu: Pdu) -> None:
        self.counts["refused_request"] += 1
        if pdu.COMMAND_ID not in c.UNANSWERED:
            status = e.RALYBND if pdu.COMMAND_ID in c.BINDS and self.bound else e.RINVBNDSTS
            self._queue(encode_bare(c.response_of(pdu.COMMAND_ID), status, pdu.sequence_number))

    def _is_early(self, command_id: int) -> bool:
        awaited = command_id in (c.DELIVER_SM, c.DATA_SM) and self.state is State.OPEN and len(self._early) < EARLY_MAX
        return awaited and any(request.COMMAND_ID in c.BINDS for _, request in self._control.values())

    def _hand_on(self, pdu: Pdu, events: list[Event]) -> None:
        if self.state not in self._peer_permitted[pdu.COMMAND_ID]:
            self._refuse(pdu)
        elif self._peer_requests >= self._settings.peer_requests_max:
            self.counts["peer_window"] += 1
            self._queue(encode_bare(c.response_of(pdu.COMMAND_ID), e.RX_T_APPN, pdu.sequence_number))
        else:
            self._peer_requests += 1
            events.append(Requested(pdu))
