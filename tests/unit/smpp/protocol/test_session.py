"""The session from both sides: states, window, silence, faults of the peer, and what is handed back at the end."""

from __future__ import annotations

from itertools import product

import pytest

from smpp.protocol import commands as c
from smpp.protocol import errors as e
from smpp.protocol.codec import encode, encode_bare
from smpp.protocol.errors import NotPermitted, PduInvalid, WindowFull
from smpp.protocol.events import Answered, Ended, PeerUnbound, Requested, TimedOut
from smpp.protocol.pdu import (
    AlertNotification,
    BindTransceiver,
    DataSm,
    DeliverSm,
    EnquireLink,
    GenericNack,
    SubmitSm,
    SubmitSmResp,
    Unbind,
    UnbindResp,
)
from smpp.protocol.session import Session
from smpp.protocol.settings import SessionSettings
from smpp.protocol.states import PERMITTED, TRANSITIONS, Side, State, Step, permitted
from tests.unit.smpp.protocol.pair import TIMERS, Pair, pdus_of


def bound(window: int = 10, first_sequence: int = 1) -> Session:
    """An ESME bound as transceiver, with `first_sequence` for what follows the bind."""
    settings = SessionSettings(window=window, first_sequence=first_sequence - 1 or c.SEQUENCE_MAX, timers=TIMERS)
    session = Session(Side.ESME, settings, 0.0)
    bind = BindTransceiver(system_id="acme", password="pw")
    session.bind(bind, "bind")
    session.take(0.0)
    session.receive(encode_bare(c.response_of(c.BIND_TRANSCEIVER), 0, bind.sequence_number), 0.0)
    assert session.state is State.BOUND_TRX
    return session


def submit(session: Session, token: object) -> int:
    return session.request(SubmitSm(destination_addr="447700900123", short_message=b"Hi"), token)


# -- states ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "state"),
    [("transceiver", State.BOUND_TRX), ("transmitter", State.BOUND_TX), ("receiver", State.BOUND_RX)],
)
def test_a_bind_moves_both_sides(kind: str, state: State) -> None:
    pair = Pair()
    pair.bind(kind)
    assert pair.esme.state is state
    assert pair.mc.state is state


def test_a_refused_bind_moves_nobody() -> None:
    pair = Pair()
    pair.esme.bind(BindTransceiver(system_id="acme", password="pw"), "bind")
    pair.flow()
    pair.mc.answer(pair.requests(pair.mc_events)[0], e.RINVPASWD)
    pair.flow()
    (answered,) = pair.esme_events
    assert isinstance(answered, Answered)
    assert (answered.token, answered.response.command_status) == ("bind", e.RINVPASWD)
    assert pair.esme.state is State.OPEN
    assert pair.mc.state is State.OPEN


@pytest.mark.parametrize(("state", "step"), list(product(State, Step)))
def test_every_pair_of_state_and_step_is_decided(state: State, step: Step) -> None:
    session = Session(Side.ESME, SessionSettings(timers=TIMERS), 0.0)
    session.state = state
    if (state, step) in TRANSITIONS:
        session._step(step)
        assert session.state is TRANSITIONS[(state, step)]
    else:
        with pytest.raises(NotPermitted):
            session._step(step)


@pytest.mark.parametrize("kind", ["transceiver", "transmitter", "receiver"])
def test_i21_each_side_sends_only_what_its_state_permits(kind: str) -> None:
    pair = Pair()
    pair.bind(kind)
    for session in (pair.esme, pair.mc):
        for command_id in (c.SUBMIT_SM, c.DELIVER_SM, c.DATA_SM, c.BIND_TRANSCEIVER, c.ALERT_NOTIFICATION):
            assert session.may_send(command_id) == permitted(session.side, command_id, session.state)
    if kind == "receiver":
        with pytest.raises(NotPermitted):
            submit(pair.esme, "a")
        pair.mc.request(DeliverSm(), "r")
    elif kind == "transmitter":
        submit(pair.esme, "a")
        with pytest.raises(NotPermitted):
            pair.mc.request(DeliverSm(), "r")


def test_i21_nothing_but_bind_before_bound() -> None:
    session = Session(Side.ESME, SessionSettings(timers=TIMERS), 0.0)
    with pytest.raises(NotPermitted):
        submit(session, "a")
    mc = Session(Side.MC, SessionSettings(timers=TIMERS), 0.0)
    assert mc.receive(encode(SubmitSm(sequence_number=5)), 0.0) == []
    assert mc.take(0.0) == encode_bare(c.response_of(c.SUBMIT_SM), e.RINVBNDSTS, 5)


def test_requests_for_the_other_side_are_refused() -> None:
    session = bound()
    assert session.receive(encode(SubmitSm(sequence_number=5)), 0.0) == []
    assert session.take(0.0) == encode_bare(c.response_of(c.SUBMIT_SM), e.RINVBNDSTS, 5)


def test_a_second_bind_is_already_bound() -> None:
    pair = Pair()
    pair.bind()
    pair.mc.receive(encode(BindTransceiver(system_id="acme", sequence_number=9)), pair.now_mono)
    assert pair.mc.take(pair.now_mono) == encode_bare(c.response_of(c.BIND_TRANSCEIVER), e.RALYBND, 9)


def test_two_binds_at_once_bind_once() -> None:
    mc = Session(Side.MC, SessionSettings(timers=TIMERS), 0.0)
    twice = encode(BindTransceiver(system_id="a", sequence_number=1)) + encode(
        BindTransceiver(system_id="a", sequence_number=2)
    )
    first, second = Pair.requests(mc.receive(twice, 0.0))
    mc.answer(first)
    mc.answer(second)
    assert [pdu.command_status for pdu in pdus_of(mc.take(0.0))] == [e.ROK, e.RALYBND]
    assert mc.state is State.BOUND_TRX


def test_the_tables_cover_both_sides() -> None:
    assert set(PERMITTED) == set(Side)
    assert Side.ESME.peer is Side.MC


# -- window and sequences ----------------------------------------------------------------------------------------------


def test_s05_no_more_than_the_window_is_outstanding() -> None:
    session = bound(window=10)
    for number in range(10):
        submit(session, number)
    assert session.window_free == 0
    with pytest.raises(WindowFull):
        submit(session, "one too many")
    assert session.unanswered == 10


def test_s06_answers_out_of_order_one_negative() -> None:
    session = bound(first_sequence=71)
    assert [submit(session, token) for token in (71, 72, 73)] == [71, 72, 73]
    session.take(0.0)
    events = []
    for answer in (
        "000000158000000400000000000000494944373300",
        "000000158000000400000000000000474944373100",
        "00000010800000040000000b00000048",
    ):
        events += session.receive(bytes.fromhex(answer), 1.0)
    outcome = {}
    for event in events:
        assert isinstance(event, Answered) and isinstance(event.response, SubmitSmResp) and not event.late
        outcome[event.token] = (event.response.command_status, event.response.message_id)
    assert outcome == {73: (0, "ID73"), 71: (0, "ID71"), 72: (0x0B, "")}


def test_s24_sequences_wrap_to_one() -> None:
    session = bound(first_sequence=c.SEQUENCE_MAX)
    assert submit(session, "a") == c.SEQUENCE_MAX
    assert submit(session, "b") == 1


def test_s29_every_request_has_its_own_sequence() -> None:
    session = bound()
    assert len({submit(session, number) for number in range(3)}) == 3


def test_i20_stray_answers_change_nothing() -> None:
    session = bound()
    sequence = submit(session, "a")
    session.take(0.0)
    assert session.receive(encode(SubmitSmResp("x", sequence_number=sequence + 7)), 0.0) == []
    assert session.receive(encode_bare(c.response_of(c.QUERY_SM), 8, sequence), 0.0) == []
    assert session.receive(encode_bare(0x80000ABC, 0, sequence), 0.0) == []
    assert session.counts["stray_response"] == 3
    (answered,) = session.receive(encode(SubmitSmResp("x", sequence_number=sequence)), 0.0)
    assert isinstance(answered, Answered)
    assert session.receive(encode(SubmitSmResp("x", sequence_number=sequence)), 0.0) == []


def test_a_pdu_that_cannot_be_written_leaves_no_trace() -> None:
    session = bound()
    with pytest.raises(PduInvalid):
        session.request(SubmitSm(short_message=b"x" * 300), "a")
    assert session.unanswered == 0
    assert session.queued_octets == 0


def test_s13_generic_nack_with_our_sequence() -> None:
    session = bound(first_sequence=90)
    assert submit(session, "a") == 90
    session.take(0.0)
    (answered,) = session.receive(bytes.fromhex("0000001080000000000000010000005a"), 1.0)
    assert isinstance(answered, Answered) and isinstance(answered.response, GenericNack)
    assert (answered.token, answered.response.command_status) == ("a", 1)
    assert session.unanswered == 0


@pytest.mark.parametrize("sequence", [0, 777])
def test_generic_nack_without_our_sequence_ends_the_link(sequence: int) -> None:
    session = bound()
    submit(session, "a")
    session.take(0.0)
    (ended,) = session.receive(encode_bare(c.GENERIC_NACK, 2, sequence), 1.0)
    assert isinstance(ended, Ended)
    assert session.end() == [("a", True)]


# -- silence -----------------------------------------------------------------------------------------------------------


def test_s23_enquire_link_is_answered_with_a_full_window() -> None:
    session = bound(window=1)
    submit(session, "a")
    session.take(0.0)
    assert session.receive(bytes.fromhex("0000001000000015000000000000004d"), 0.0) == []
    assert session.take(0.0).hex() == "0000001080000015000000000000004d"


def test_enquire_link_is_answered_before_bound() -> None:
    mc = Session(Side.MC, SessionSettings(timers=TIMERS), 0.0)
    mc.receive(encode_bare(c.ENQUIRE_LINK, 0, 3), 0.0)
    assert mc.take(0.0) == encode_bare(c.response_of(c.ENQUIRE_LINK), 0, 3)


def test_an_idle_link_is_probed_and_lives() -> None:
    pair = Pair()
    pair.bind()
    for _ in range(20):
        pair.wait(15.0)
        pair.flow()
    assert pair.esme_events == []
    assert pair.esme.bound


def test_s23_a_silent_peer_ends_the_link() -> None:
    session = bound()
    submit(session, "a")
    session.take(14.0)
    assert session.next_tick_mono() == 15.0
    assert session.tick(15.0) == []
    assert isinstance(pdus_of(session.take(15.0))[0], EnquireLink)
    assert session.tick(24.0) == [TimedOut("a")], "the response timer"
    assert session.take(24.0) == b"", "the link is being probed already"
    (ended,) = session.tick(25.0)
    assert ended == Ended("enquire_link unanswered")
    assert session.end() == []


def test_a_lost_answer_keeps_the_link_and_probes_at_once() -> None:
    session = bound()
    first = submit(session, "a")
    session.take(0.0)
    session.receive(encode_bare(c.ENQUIRE_LINK, 0, 3), 9.0)
    session.take(9.0)
    assert session.tick(10.0) == [TimedOut("a")]
    (probe,) = pdus_of(session.take(10.0))
    assert isinstance(probe, EnquireLink)
    assert session.unanswered == 0
    session.receive(encode_bare(c.response_of(c.ENQUIRE_LINK), 0, probe.sequence_number), 10.5)
    assert session.tick(20.5) == []
    assert session.bound
    assert submit(session, "b") != first
    (late,) = session.receive(encode(SubmitSmResp("A1", sequence_number=first)), 21.0)
    assert isinstance(late, Answered) and late.late and late.token == "a"
    assert session.receive(encode(SubmitSmResp("A1", sequence_number=first)), 21.0) == []


def test_the_response_timer_begins_when_the_request_is_written() -> None:
    session = bound()
    submit(session, "a")
    session.receive(encode_bare(c.ENQUIRE_LINK, 0, 3), 12.0)
    assert session.tick(12.0) == [], "still in our own queue: nothing to wait for"
    session.take(12.0)
    assert session.next_tick_mono() == 22.0
    assert session.tick(22.0) == [TimedOut("a")]


def test_session_init_timer_of_the_mc() -> None:
    mc = Session(Side.MC, SessionSettings(timers=TIMERS), 0.0)
    assert mc.tick(9.9) == []
    assert mc.tick(10.0) == [Ended("session init timer")]


def test_a_pdu_that_never_ends() -> None:
    session = bound()
    session.receive(b"\0\0\0\x20", 1.0)
    for moment in range(2, 11):
        session.receive(b"\0", float(moment))
    assert session.tick(11.0) == [Ended("pdu unfinished")]


# -- unbind ------------------------------------------------------------------------------------------------------------


def test_s22_unbind_of_the_peer_with_work_in_flight() -> None:
    session = bound(first_sequence=100)
    submit(session, 100)
    submit(session, 101)
    session.take(0.0)
    assert session.receive(bytes.fromhex("00000010000000060000000000000384"), 1.0) == [PeerUnbound()]
    assert session.take(1.0).hex() == "00000010800000060000000000000384"
    with pytest.raises(NotPermitted):
        submit(session, 102)
    (answered,) = session.receive(bytes.fromhex("000000158000000400000000000000645531303000"), 1.5)
    assert isinstance(answered, Answered) and answered.token == 100
    assert session.tick(2.9) == []
    assert session.tick(3.0) == [Ended("unbound")]
    assert session.end() == [(101, True)]


def test_unbind_of_the_peer_with_nothing_in_flight_ends_at_once() -> None:
    session = bound()
    assert session.receive(encode(Unbind(sequence_number=9)), 1.0) == [PeerUnbound(), Ended("unbound")]
    assert pdus_of(session.parting()) == [UnbindResp(sequence_number=9)]


def test_the_last_answer_after_unbind_ends_the_link() -> None:
    session = bound()
    sequence = submit(session, "a")
    session.take(0.0)
    session.receive(encode(Unbind(sequence_number=9)), 1.0)
    events = session.receive(encode(SubmitSmResp("A1", sequence_number=sequence)), 1.1)
    assert isinstance(events[0], Answered)
    assert events[1] == Ended("unbound")


def test_what_is_queued_when_the_peer_unbinds_never_leaves() -> None:
    session = bound()
    submit(session, "sent")
    session.take(0.0)
    submit(session, "queued")
    session.receive(encode(Unbind(sequence_number=9)), 1.0)
    assert pdus_of(session.take(1.0)) == [UnbindResp(sequence_number=9)]
    assert session.queued_octets == 0
    session.tick(3.0)
    assert session.end() == [("sent", True), ("queued", False)]


def test_our_unbind_ends_with_its_response() -> None:
    pair = Pair()
    pair.bind()
    pair.esme.unbind("unbind", pair.now_mono)
    assert not pair.esme.may_send(c.SUBMIT_SM)
    pair.flow()
    assert [type(event) for event in pair.mc_events] == [PeerUnbound, Ended]
    pair.esme_events += pair.esme.receive(pair.mc.parting(), pair.now_mono)
    assert [type(event) for event in pair.esme_events] == [Answered, Ended]
    assert pair.esme.state is State.UNBOUND
    assert pair.mc.state is State.UNBOUND


def test_our_unbind_without_answer_ends_by_the_response_timer() -> None:
    session = bound()
    session.unbind("unbind", 0.0)
    session.take(0.0)
    assert session.tick(9.9) == []
    assert session.tick(10.0) == [Ended("unbound")]


def test_receipts_are_still_taken_while_leaving() -> None:
    pair = Pair()
    pair.bind()
    pair.esme.leave()
    pair.mc.request(DeliverSm(short_message=b"id:1"), "receipt")
    pair.flow()
    (request,) = pair.requests(pair.esme_events)
    pair.esme.answer(request)
    pair.flow()
    (answered,) = pair.mc_events
    assert isinstance(answered, Answered) and answered.token == "receipt"


# -- faults of the peer ------------------------------------------------------------------------------------------------


def test_s15_unknown_command() -> None:
    session = bound()
    assert session.receive(bytes.fromhex("000000120000009900000000000000210102"), 0.0) == []
    assert session.take(0.0).hex() == "00000010800000000000000300000021"
    assert session.bound


def test_s16_lost_framing_nacks_and_ends() -> None:
    session = bound()
    submit(session, "a")
    events = session.receive(bytes.fromhex("80000009000000000000000100"), 0.0)
    assert events == [Ended("command_length is out of bounds")]
    (nack,) = pdus_of(session.parting())
    assert nack == GenericNack(command_status=e.RINVCMDLEN)
    assert session.receive(b"more", 0.0) == []
    assert session.end() == [("a", False)], "its octets never left"


def test_s17_and_s19_pieces_through_the_session() -> None:
    session = bound(first_sequence=95)
    submit(session, 95)
    submit(session, 96)
    session.take(0.0)
    first = session.receive(
        bytes.fromhex("0000001680000004000000000000006054574f39360000000010000000150000000000000005000000178000"), 0.0
    )
    assert session.take(0.0).hex() == "00000010800000150000000000000005"
    second = session.receive(bytes.fromhex("0004000000000000005f46524147393500"), 0.0)
    assert [event.token for event in first + second if isinstance(event, Answered)] == [96, 95]


def test_s25_alert_notification_is_told_and_not_answered() -> None:
    session = bound()
    alert = "0000002c00000102000000000000002801013434373730303930303132330000013630303730000422000100"
    (requested,) = session.receive(bytes.fromhex(alert), 0.0)
    assert isinstance(requested, Requested) and isinstance(requested.pdu, AlertNotification)
    assert session.take(0.0) == b""
    assert session.peer_requests == 0


def test_s27_receipts_are_answered_with_an_empty_message_id() -> None:
    session = bound()
    receipt = encode(DeliverSm(source_addr="447700900123", short_message=b"id:90001", sequence_number=0x1267))
    (requested,) = session.receive(receipt, 0.0)
    assert isinstance(requested, Requested)
    assert session.peer_requests == 1
    session.answer(requested.pdu)
    assert session.take(0.0).hex() == "0000001180000005000000000000126700"
    assert session.peer_requests == 0


def test_a_malformed_request_is_answered_by_its_own_response() -> None:
    session = bound()
    broken = bytearray(encode(DeliverSm(short_message=b"abc", sequence_number=8)))
    broken[-4] = 200
    assert session.receive(bytes(broken), 0.0) == []
    assert session.take(0.0) == encode_bare(c.response_of(c.DELIVER_SM), e.RINVMSGLEN, 8)
    assert session.bound
    assert session.counts["malformed"] == 1


@pytest.mark.parametrize(
    ("body", "message_id"),
    [
        (b"abc", "abc"),  # no NUL at the end: met in the field
        (b"x" * 300, ""),
        (b"abc\0\x04\x27\0\x09\x02", "abc"),
        (b"abc\0\x04\x27\x01", "abc"),
    ],
)
def test_a_malformed_good_answer_is_an_answer_all_the_same(body: bytes, message_id: str) -> None:
    session = bound()
    sequence = submit(session, "a")
    session.take(0.0)
    broken = c.HEADER.pack(16 + len(body), c.response_of(c.SUBMIT_SM), 0, sequence) + body
    expected = SubmitSmResp(message_id, sequence_number=sequence)
    assert session.receive(broken, 0.0) == [Answered("a", expected, late=False)]
    assert session.counts["malformed"] == 1
    assert session.bound and session.end() == []


def test_more_receipts_than_are_answered_are_put_off() -> None:
    pair = Pair(window=10, peer_requests_max=3)
    pair.bind()
    for number in range(5):
        pair.mc.request(DeliverSm(short_message=b"id"), number)
    pair.flow()
    assert len(pair.requests(pair.esme_events)) == 3
    statuses = {event.token: event.response.command_status for event in pair.mc_events if isinstance(event, Answered)}
    assert statuses == {3: e.RX_T_APPN, 4: e.RX_T_APPN}


def test_data_sm_goes_both_ways() -> None:
    pair = Pair()
    pair.bind()
    pair.esme.request(DataSm(), "from esme")
    pair.mc.request(DataSm(), "from mc")
    pair.flow()
    pair.mc.answer(pair.requests(pair.mc_events)[0])
    pair.esme.answer(pair.requests(pair.esme_events)[0])
    pair.flow()
    assert [event.token for event in pair.esme_events if isinstance(event, Answered)] == ["from esme"]
    assert [event.token for event in pair.mc_events if isinstance(event, Answered)] == ["from mc"]


# -- the end -----------------------------------------------------------------------------------------------------------


def test_end_hands_back_each_token_once_with_its_flag() -> None:
    session = bound()
    sequence = submit(session, "answered")
    submit(session, "written")
    session.take(0.0)
    submit(session, "queued")
    session.receive(encode(SubmitSmResp("A1", sequence_number=sequence)), 0.0)
    assert session.end() == [("written", True), ("queued", False)]
    assert session.end() == []
    assert session.state is State.CLOSED
    with pytest.raises(NotPermitted):
        submit(session, "late")


def test_an_ended_session_does_nothing() -> None:
    session = bound()
    (requested,) = session.receive(encode(DeliverSm(sequence_number=1)), 0.0)
    session.end()
    assert isinstance(requested, Requested)
    session.answer(requested.pdu)
    assert session.queued_octets == 0
    assert session.tick(1e9) == []
    assert session.receive(encode(EnquireLink(sequence_number=1)), 0.0) == []
