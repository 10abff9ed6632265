"""An ESME and an MC on one wire that slices, delays and breaks: who may say what, and every token ends once.

Invariant I21 against a model that only reads the octets on the wire, and I20 for both directions at once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from smpp.protocol import commands as c
from smpp.protocol.codec import decode, encode
from smpp.protocol.errors import NotPermitted, WindowFull
from smpp.protocol.events import Answered, Ended, Event, Requested, TimedOut
from smpp.protocol.framer import Framer
from smpp.protocol.pdu import (
    TYPES,
    Bind,
    DataSm,
    DeliverSm,
    Pdu,
    QuerySm,
    SubmitSm,
    Unbind,
)
from smpp.protocol.session import Session
from smpp.protocol.settings import SessionSettings
from smpp.protocol.states import Side
from smpp.protocol.timers import TimerSettings

WINDOW = 3
TIMERS = TimerSettings(
    session_init_s=1_000, enquire_link_s=15, response_s=10, inactivity_s=1_000, pdu_read_s=1_000, unbind_grace_s=2
)
MESSAGES = {Side.ESME: (SubmitSm, QuerySm, DataSm), Side.MC: (DeliverSm, DataSm)}
TRANSMITS = (c.BIND_TRANSMITTER, c.BIND_TRANSCEIVER)
RECEIVES = (c.BIND_RECEIVER, c.BIND_TRANSCEIVER)


class Party:
    """One side: its session, what it wrote and the peer has not read yet, what it owes and what it waits for."""

    def __init__(self, side: Side) -> None:
        self.session = Session(side, SessionSettings(window=WINDOW, timers=TIMERS), 0.0)
        self.side = side
        self.wire = bytearray()
        self.watched = Framer()
        self.owes: list[Pdu] = []
        self.open: set[int] = set()
        self.ends: Counter[int] = Counter()
        self.late: set[int] = set()
        self.sequences: set[int] = set()
        self.quiet = False
        """It unbound, or read the peer's unbind: nothing new may leave."""


class TwoSides(RuleBasedStateMachine):
    """`bound` is the kind of bind whose good answer the ESME has read, and the MC has written."""

    def __init__(self) -> None:
        super().__init__()
        self.now_mono = 0.0
        self.parties = {side: Party(side) for side in Side}
        self.wrote_bound = 0
        self.read_bound = 0
        self.asked = 0
        self.tokens = 0
        self.broken = False

    @initialize(kind=st.sampled_from(sorted(c.BINDS)), at_once=st.sampled_from([True, True, True, False]))
    def begin(self, kind: int, at_once: bool) -> None:
        """Most runs begin with a good bind, so that the steps reach further."""
        if at_once:
            self.bind(kind)
            self.carry(Side.ESME, 1_000)
            self.parties[Side.MC].session.answer(self.parties[Side.MC].owes.pop())
            self.carry(Side.MC, 1_000)
            assert self.read_bound == kind

    def write(self, party: Party) -> None:
        octets = party.session.take(self.now_mono)
        party.wire += octets
        for one in party.watched.feed(octets):
            self.watch(party, decode(one))

    def watch(self, party: Party, pdu: Pdu) -> None:
        command_id = pdu.COMMAND_ID
        if c.is_response(command_id):
            if command_id & ~c.RESPONSE_BIT in c.BINDS and pdu.command_status == 0:
                assert not self.wrote_bound
                self.wrote_bound = command_id & ~c.RESPONSE_BIT
            return
        assert 1 <= pdu.sequence_number <= c.SEQUENCE_MAX
        assert pdu.sequence_number not in party.sequences, "unique: this run is far shorter than the numbers"
        party.sequences.add(pdu.sequence_number)
        if isinstance(pdu, MESSAGES[party.side]):
            bound = self.read_bound if party.side is Side.ESME else self.wrote_bound
            assert bound in (TRANSMITS if party.side is Side.ESME else RECEIVES)
            assert not party.quiet, "nothing new after an unbind"
        elif isinstance(pdu, Bind):
            assert party.side is Side.ESME and not self.read_bound and not party.quiet
        elif isinstance(pdu, Unbind):
            party.quiet = True

    def hear(self, party: Party, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Answered) and isinstance(event.token, int):
                assert event.late == (event.token in party.late)
                party.late.discard(event.token)
                party.open.discard(event.token)
                party.ends[event.token] += 1
            elif isinstance(event, TimedOut):
                assert isinstance(event.token, int)
                party.open.remove(event.token)
                party.late.add(event.token)
            elif isinstance(event, Requested):
                party.owes.append(event.pdu)
            elif isinstance(event, Ended):
                self.break_link()
                return

    @precondition(lambda self: not self.broken)
    @rule(kind=st.sampled_from(sorted(c.BINDS)))
    def bind(self, kind: int) -> None:
        esme = self.parties[Side.ESME]
        pdu: Any = TYPES[kind]()
        try:
            esme.session.bind(pdu, "bind")
        except NotPermitted:
            assert self.read_bound or esme.session.state != "open" or not esme.session.may_send(kind)
        else:
            assert not self.read_bound
            self.asked += 1

    @precondition(lambda self: not self.broken)
    @rule(side=st.sampled_from(Side), data=st.data())
    def request(self, side: Side, data: st.DataObject) -> None:
        party = self.parties[side]
        kind = data.draw(st.sampled_from(MESSAGES[side]))
        self.tokens += 1
        bound = self.read_bound if side is Side.ESME else self.wrote_bound
        try:
            party.session.request(kind(), self.tokens)
        except WindowFull:
            assert len(party.open) == WINDOW
        except NotPermitted:
            allowed = TRANSMITS if side is Side.ESME else RECEIVES
            # The MC's session is bound as it queues its answer, a moment before that is on the wire.
            assert bound not in allowed or party.quiet or not party.session.may_send(kind.COMMAND_ID)
        else:
            party.open.add(self.tokens)
            assert len(party.open) <= WINDOW

    @precondition(lambda self: not self.broken)
    @rule(side=st.sampled_from(Side), size=st.sampled_from([1, 5, 16, 40, 1_000]))
    def carry(self, side: Side, size: int) -> None:
        sender, reader = self.parties[side], self.parties[side.peer]
        self.write(sender)
        chunk = bytes(sender.wire[:size])
        del sender.wire[:size]
        before = reader.session.bound
        events = reader.session.receive(chunk, self.now_mono)
        if reader.session.bound and not before and reader.side is Side.ESME:
            self.read_bound = self.wrote_bound
        if not reader.session.bound and before:
            reader.quiet = True
        self.hear(reader, events)

    @precondition(lambda self: not self.broken and any(party.owes for party in self.parties.values()))
    @rule(data=st.data(), status=st.sampled_from([0, 0, 0, 0x08, 0x58]))
    def answer(self, data: st.DataObject, status: int) -> None:
        party = data.draw(st.sampled_from([party for party in self.parties.values() if party.owes]))
        request = party.owes.pop(data.draw(st.integers(0, len(party.owes) - 1)))
        if request.COMMAND_ID in c.UNANSWERED:
            return
        party.session.answer(request, status)

    @precondition(lambda self: not self.broken)
    @rule(side=st.sampled_from(Side))
    def unbind(self, side: Side) -> None:
        party = self.parties[side]
        if party.quiet or not party.session.bound:
            return
        party.session.unbind("bye", self.now_mono)

    @precondition(lambda self: not self.broken)
    @rule(seconds=st.floats(0.1, 9))
    def wait(self, seconds: float) -> None:
        self.now_mono += seconds
        for party in self.parties.values():
            if not self.broken:
                self.hear(party, party.session.tick(self.now_mono))

    @precondition(lambda self: not self.broken)
    @rule()
    def cut(self) -> None:
        self.break_link()

    @precondition(lambda self: self.broken)
    @rule(side=st.sampled_from(Side))
    def speak_to_the_dead(self, side: Side) -> None:
        session = self.parties[side].session
        assert session.receive(encode(SubmitSm(sequence_number=1)), self.now_mono) == []
        assert session.take(self.now_mono) == b"" and not session.may_send(c.SUBMIT_SM)

    def break_link(self) -> None:
        self.broken = True
        for party in self.parties.values():
            handed_back = [token for token, _ in party.session.end()]
            assert sorted(handed_back) == sorted(party.open)
            party.ends.update(handed_back)
            assert all(times == 1 for times in party.ends.values()), "every token ends once"
            assert party.session.end() == []

    def teardown(self) -> None:
        if not self.broken:
            self.break_link()


TwoSides.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestTwoSides = TwoSides.TestCase
