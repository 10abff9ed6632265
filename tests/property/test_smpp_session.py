"""A session against a carrier that answers in any order, late, twice, wrongly or never: every token ends once.

Invariants I20 and I21.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from smpp.protocol import commands as c
from smpp.protocol.codec import decode, encode, encode_bare
from smpp.protocol.events import Answered, Ended, Event, TimedOut
from smpp.protocol.framer import Framer
from smpp.protocol.pdu import BindTransceiver, EnquireLink, SubmitSm, SubmitSmResp, Unbind
from smpp.protocol.session import Session
from smpp.protocol.settings import SessionSettings
from smpp.protocol.states import Side
from smpp.protocol.timers import TimerSettings

WINDOW = 4
RESPONSE_S = 10.0


class CarrierAndSession(RuleBasedStateMachine):
    """The model is three sets of tokens: waiting, timed out, done."""

    def __init__(self) -> None:
        super().__init__()
        self.now_mono = 0.0
        timers = TimerSettings(response_s=RESPONSE_S, enquire_link_s=15, inactivity_s=10_000)
        settings_ = SessionSettings(window=WINDOW, first_sequence=c.SEQUENCE_MAX - 5, timers=timers)
        self.session = Session(Side.ESME, settings_, 0.0)
        self.carrier = Framer()
        self.session.bind(BindTransceiver(system_id="a"), "bind")
        self.session.take(0.0)
        self.session.receive(encode_bare(c.response_of(c.BIND_TRANSCEIVER), 0, c.SEQUENCE_MAX - 5), 0.0)
        self.tokens = 0
        self.waiting: dict[int, int] = {}
        self.unwritten: set[int] = set()
        self.timed_out: dict[int, int] = {}
        self.done: set[int] = set()
        self.unanswered_probe: int | None = None
        self.ended = False

    def note(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Answered):
                assert isinstance(event.token, int)
                source = self.timed_out if event.late else self.waiting
                assert event.response.sequence_number == source.pop(event.token)
                assert event.token not in self.done
                self.done.add(event.token)
            elif isinstance(event, TimedOut):
                assert isinstance(event.token, int)
                self.timed_out[event.token] = self.waiting.pop(event.token)
            elif isinstance(event, Ended):
                self.finish()

    def finish(self) -> None:
        self.ended = True
        handed_back = self.session.end()
        assert dict(handed_back) == {token: token not in self.unwritten for token in self.waiting}
        assert len(handed_back) == len(self.waiting)
        assert self.session.end() == []

    @precondition(lambda self: not self.ended and self.session.may_send(c.SUBMIT_SM) and self.session.window_free)
    @rule()
    def submit(self) -> None:
        self.tokens += 1
        sequence = self.session.request(SubmitSm(short_message=b"x"), self.tokens)
        assert 1 <= sequence <= c.SEQUENCE_MAX
        assert sequence not in self.waiting.values() and sequence not in self.timed_out.values()
        self.waiting[self.tokens] = sequence
        self.unwritten.add(self.tokens)

    @precondition(lambda self: not self.ended)
    @rule()
    def write(self) -> None:
        for octets in self.carrier.feed(self.session.take(self.now_mono)):
            pdu = decode(octets)
            if isinstance(pdu, EnquireLink):
                assert self.unanswered_probe is None, "one probe at a time"
                self.unanswered_probe = pdu.sequence_number
        if self.session.may_send(c.SUBMIT_SM):
            self.unwritten.clear()

    @precondition(lambda self: not self.ended and (self.waiting or self.timed_out))
    @rule(data=st.data(), status=st.sampled_from([0, 0x58, 0x45]), nack=st.booleans(), times=st.integers(1, 2))
    def answer(self, data: st.DataObject, status: int, nack: bool, times: int) -> None:
        sent = {token: sequence for token, sequence in self.waiting.items() if token not in self.unwritten}
        known = list({**sent, **self.timed_out}.values())
        if not known:
            return
        sequence = data.draw(st.sampled_from(known))
        octets = (
            encode_bare(c.GENERIC_NACK, status, sequence)
            if nack and times == 1
            else encode(SubmitSmResp("id" if not status else "", command_status=status, sequence_number=sequence))
        )
        self.note(self.session.receive(octets * times, self.now_mono))

    @precondition(lambda self: not self.ended)
    @rule(sequence=st.integers(0, 0xFFFF), command_id=st.sampled_from([c.SUBMIT_SM, c.QUERY_SM, c.DATA_SM]))
    def stray(self, sequence: int, command_id: int) -> None:
        if sequence in self.waiting.values() or sequence in self.timed_out.values():
            command_id = c.QUERY_SM
        assert self.session.receive(encode_bare(c.response_of(command_id), 8, sequence), self.now_mono) == []

    @precondition(lambda self: not self.ended and self.unanswered_probe is not None)
    @rule()
    def answer_probe(self) -> None:
        octets = encode_bare(c.response_of(c.ENQUIRE_LINK), 0, self.unanswered_probe or 0)
        self.unanswered_probe = None
        self.note(self.session.receive(octets, self.now_mono))

    @precondition(lambda self: not self.ended)
    @rule(seconds=st.floats(0.1, 12))
    def wait(self, seconds: float) -> None:
        self.now_mono += seconds
        self.note(self.session.tick(self.now_mono))

    @precondition(lambda self: not self.ended)
    @rule()
    def peer_unbinds(self) -> None:
        self.note(self.session.receive(encode(Unbind(sequence_number=5)), self.now_mono))

    @precondition(lambda self: not self.ended)
    @rule()
    def link_breaks(self) -> None:
        self.finish()

    @precondition(lambda self: self.ended)
    @rule(sequence=st.integers(1, c.SEQUENCE_MAX))
    def speak_to_the_dead(self, sequence: int) -> None:
        assert self.session.receive(encode(SubmitSmResp("id", sequence_number=sequence)), self.now_mono) == []
        assert self.session.tick(self.now_mono + 1e6) == []
        assert self.session.end() == []

    @invariant()
    def window_holds(self) -> None:
        if not self.ended:
            assert self.session.unanswered == len(self.waiting) <= WINDOW
            assert self.session.window_free == WINDOW - len(self.waiting)


CarrierAndSession.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCarrierAndSession = CarrierAndSession.TestCase
