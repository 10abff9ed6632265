"""What peers get wrong, one fault at a time: the session answers, ignores or ends, and no token is lost or doubled."""

from __future__ import annotations

import pytest

from smpp.protocol import commands as c
from smpp.protocol import errors as e
from smpp.protocol.codec import encode, encode_bare
from smpp.protocol.commands import HEADER
from smpp.protocol.events import Answered, Ended, PeerUnbound, Requested
from smpp.protocol.framer import PDU_OCTETS_MAX
from smpp.protocol.pdu import (
    TYPES,
    BindTransceiver,
    BindTransceiverResp,
    DataSm,
    DeliverSm,
    EnquireLink,
    Outbind,
    SubmitSm,
    SubmitSmResp,
    Unbind,
)
from smpp.protocol.session import EARLY_MAX, Session
from smpp.protocol.settings import SessionSettings
from smpp.protocol.states import Side, State
from smpp.protocol.status import consequence
from tests.unit.smpp.protocol.pair import TIMERS
from tests.unit.smpp.protocol.test_session import bound, submit

SUBMIT_RESP = c.response_of(c.SUBMIT_SM)


def waiting(count: int = 1) -> tuple[Session, list[int]]:
    """A bound session whose submits are on the wire; tokens are `a`, `b` ..."""
    session = bound()
    sequences = [submit(session, chr(ord("a") + number)) for number in range(count)]
    session.take(0.0)
    return session, sequences


# -- lengths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 4, 15, PDU_OCTETS_MAX + 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_lengths_that_cannot_be_true_end_the_link_at_once(length: int) -> None:
    session, _ = waiting()
    (ended,) = session.receive(length.to_bytes(4, "big"), 0.0)
    assert isinstance(ended, Ended), "without waiting for the rest, whatever it claims"
    assert session.parting() == encode_bare(c.GENERIC_NACK, e.RINVCMDLEN, 0)
    assert session.end() == [("a", True)]


def test_the_nack_of_a_lying_length_names_the_sequence_where_the_header_is_there() -> None:
    session = bound()
    session.receive(HEADER.pack(PDU_OCTETS_MAX + 1, c.DELIVER_SM, 0, 77), 0.0)
    assert session.parting() == encode_bare(c.GENERIC_NACK, e.RINVCMDLEN, 77)


def test_the_longest_pdu_is_read_and_one_octet_more_is_not() -> None:
    room = PDU_OCTETS_MAX - len(encode(DataSm(tlvs=((0x0424, b""),))))
    longest = encode(DataSm(tlvs=((0x0424, bytes(room)),), sequence_number=5))
    assert len(longest) == PDU_OCTETS_MAX
    assert [type(event) for event in bound().receive(longest, 0.0)] == [Requested]
    session = Session(Side.ESME, SessionSettings(pdu_octets_max=PDU_OCTETS_MAX - 1, timers=TIMERS), 0.0)
    assert [type(event) for event in session.receive(longest, 0.0)] == [Ended]


def test_what_comes_before_a_lying_length_is_still_worth_something() -> None:
    session, (sequence,) = waiting()
    stream = encode(SubmitSmResp("id", sequence_number=sequence)) + bytes(4)
    answered, ended = session.receive(stream, 0.0)
    assert isinstance(answered, Answered) and isinstance(ended, Ended)
    assert session.end() == []


def test_a_request_of_a_header_alone_is_refused_by_its_own_response() -> None:
    session = bound()
    assert session.receive(encode_bare(c.DELIVER_SM, 0, 8), 0.0) == []
    assert session.take(0.0) == encode_bare(c.response_of(c.DELIVER_SM), e.RINVCMDLEN, 8)
    assert session.bound


def test_a_response_of_a_header_alone_is_good() -> None:
    session, (sequence,) = waiting()
    expected = SubmitSmResp("", sequence_number=sequence)
    assert session.receive(encode_bare(SUBMIT_RESP, 0, sequence), 0.0) == [Answered("a", expected, late=False)]


def test_a_body_where_there_is_none_is_refused_and_the_link_stays() -> None:
    session = bound()
    probe = HEADER.pack(19, c.ENQUIRE_LINK, 0, 6) + b"abc"
    assert session.receive(probe, 0.0) == []
    assert session.take(0.0) == encode_bare(c.response_of(c.ENQUIRE_LINK), e.RINVOPTPARSTREAM, 6)
    assert session.bound


def test_a_delivery_is_not_refused_for_a_broken_parameter_behind_its_text() -> None:
    session = bound()
    octets = (
        encode(DeliverSm(short_message=b"id:7 stat:DELIVRD", esm_class=4, sequence_number=9)) + b"\x04\x27\x00\x05\2"
    )
    (requested,) = session.receive(len(octets).to_bytes(4, "big") + octets[4:], 0.0)
    assert isinstance(requested, Requested) and isinstance(requested.pdu, DeliverSm)
    assert (requested.pdu.short_message, requested.pdu.tlvs) == (b"id:7 stat:DELIVRD", ())
    session.answer(requested.pdu)
    assert session.take(0.0) == HEADER.pack(17, c.response_of(c.DELIVER_SM), 0, 9) + b"\0"
    assert session.bound and session.counts["malformed"] == 1


# -- sequence numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sequence", [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_the_peers_sequence_numbers_are_mirrored_whatever_they_are(sequence: int) -> None:
    session = bound()
    session.receive(encode(EnquireLink(sequence_number=sequence)), 0.0)
    (requested,) = session.receive(encode(DeliverSm(sequence_number=sequence)), 0.0)
    assert isinstance(requested, Requested)
    session.answer(requested.pdu)
    assert session.take(0.0) == encode_bare(c.response_of(c.ENQUIRE_LINK), 0, sequence) + (
        HEADER.pack(17, c.response_of(c.DELIVER_SM), 0, sequence) + b"\0"
    )


def test_the_same_sequence_in_both_directions_is_no_clash() -> None:
    session, (sequence,) = waiting()
    (requested,) = session.receive(encode(DeliverSm(sequence_number=sequence)), 0.0)
    assert isinstance(requested, Requested)
    assert session.unanswered == 1


@pytest.mark.parametrize("sequence", [0, 0x80000002, 0xFFFFFFFF, 12345])
def test_a_nack_without_a_request_of_ours_ends_the_link(sequence: int) -> None:
    session, _ = waiting()
    assert session.receive(encode_bare(c.GENERIC_NACK, 3, sequence), 0.0) == [Ended("generic_nack without a request")]
    assert session.end() == [("a", True)]


def test_a_nack_for_a_late_request_is_a_late_answer() -> None:
    session, (sequence,) = waiting()
    session.tick(TIMERS.response_s)
    (answered,) = session.receive(encode_bare(c.GENERIC_NACK, 8, sequence), TIMERS.response_s)
    assert isinstance(answered, Answered) and answered.late and answered.token == "a"
    assert session.receive(encode_bare(SUBMIT_RESP, 0, sequence), TIMERS.response_s) == []


# -- responses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command_id", [c.QUERY_SM, c.DATA_SM, c.DELIVER_SM, c.BIND_TRANSCEIVER, c.UNBIND, c.ENQUIRE_LINK, 0x21]
)
def test_a_response_to_another_command_changes_nothing(command_id: int) -> None:
    session, (sequence,) = waiting()
    wrong = encode_bare(c.response_of(command_id), 8, sequence)
    assert session.receive(wrong, 0.0) == []
    assert session.counts["stray_response"] == 1 and session.bound
    assert [type(event) for event in session.receive(encode_bare(SUBMIT_RESP, 0, sequence), 0.0)] == [Answered]


def test_answers_that_come_twice_count_once() -> None:
    session, (sequence,) = waiting()
    answer = encode(SubmitSmResp("id", sequence_number=sequence))
    assert len(session.receive(answer * 3, 0.0)) == 1
    assert session.counts["stray_response"] == 2


def test_an_answer_to_what_was_never_sent_is_counted() -> None:
    session, _ = waiting()
    assert session.receive(encode(SubmitSmResp("id", sequence_number=4_000)), 0.0) == []
    assert session.unanswered == 1


# -- binds -------------------------------------------------------------------------------------------------------------


def opened() -> Session:
    session = Session(Side.ESME, SessionSettings(timers=TIMERS), 0.0)
    session.bind(BindTransceiver(system_id="acme"), "bind")
    session.take(0.0)
    return session


@pytest.mark.parametrize(
    "body",
    [b"SMSC\0", b"", b"\0", b"SMSC\0\x02\x10\x00\x01\x34", b"SMSC", b"SMSC\0\x02\x10\x00\x09\x34", b"S" * 64 + b"\0"],
    ids=["plain", "bare", "empty", "version", "no NUL", "lying version", "long"],
)
def test_bind_responses_of_every_shape_bind(body: bytes) -> None:
    session = opened()
    octets = HEADER.pack(16 + len(body), c.response_of(c.BIND_TRANSCEIVER), 0, 1) + body
    (answered,) = session.receive(octets, 0.0)
    assert isinstance(answered, Answered) and answered.token == "bind"
    assert session.state is State.BOUND_TRX


def test_a_refusal_with_a_body_and_a_version_is_a_refusal() -> None:
    session = opened()
    refused = BindTransceiverResp("SMSC", command_status=0x0E, sequence_number=1, tlvs=((0x0210, b"\x34"),))
    (answered,) = session.receive(encode(refused), 0.0)
    assert isinstance(answered, Answered) and answered.response.command_status == 0x0E
    assert session.state is State.OPEN


def test_a_second_bind_response_changes_nothing() -> None:
    session = opened()
    good = encode(BindTransceiverResp("SMSC", sequence_number=1))
    assert len(session.receive(good + good, 0.0)) == 1
    refusal = encode_bare(c.response_of(c.BIND_TRANSCEIVER), 0x0E, 1)
    assert session.receive(refusal, 0.0) == []
    assert session.state is State.BOUND_TRX and session.counts["stray_response"] == 2


@pytest.mark.parametrize("command_id", [c.BIND_RECEIVER, c.BIND_TRANSMITTER, c.ENQUIRE_LINK, c.SUBMIT_SM])
def test_a_bind_response_of_another_kind_does_not_bind(command_id: int) -> None:
    session = opened()
    assert session.receive(encode_bare(c.response_of(command_id), 0, 1), 0.0) == []
    assert session.state is State.OPEN
    assert session.tick(TIMERS.session_init_s) == [Ended("session init timer")]


def test_a_nack_refuses_a_bind() -> None:
    session = opened()
    (answered,) = session.receive(encode_bare(c.GENERIC_NACK, 3, 1), 0.0)
    assert isinstance(answered, Answered) and answered.response.command_status == 3
    assert session.state is State.OPEN


def test_a_nack_that_says_ok_accepts_nothing() -> None:
    """Neither a bind nor a submit: the peer could not read it, and a status of zero has no meaning beside that."""
    session = opened()
    (answered,) = session.receive(encode_bare(c.GENERIC_NACK, e.ROK, 1), 0.0)
    assert isinstance(answered, Answered) and answered.response.command_status == e.RUNKNOWNERR
    assert session.state is State.OPEN
    session, (sequence,) = waiting()
    (answered,) = session.receive(encode_bare(c.GENERIC_NACK, e.ROK, sequence), 0.0)
    assert isinstance(answered, Answered) and answered.response.command_status == e.RUNKNOWNERR
    assert consequence(answered.response.command_status).kind == "later"
    assert session.bound and session.unanswered == 0


@pytest.mark.parametrize("kind", [c.GENERIC_NACK, c.response_of(c.ENQUIRE_LINK), c.response_of(c.UNBIND), SUBMIT_RESP])
@pytest.mark.parametrize("status", [e.ROK, e.RINVCMDLEN, e.RTHROTTLED, 0xFFFFFFFF])
def test_no_answer_of_any_status_to_any_control_request_raises(kind: int, status: int) -> None:
    for begin in (opened, bound):
        session = begin()
        if session.bound:
            session.unbind("leaving", 0.0)
            session.take(0.0)
        for sequence in (0, 1, 2, 3, 0xFFFFFFFF):
            session.receive(encode_bare(kind, status, sequence), 0.0)
        assert session.state in (State.OPEN, State.BOUND_TRX, State.UNBOUND)


def test_nothing_but_an_outbind_or_a_probe_is_taken_before_the_bind() -> None:
    session = Session(Side.ESME, SessionSettings(timers=TIMERS), 0.0)
    early = encode(DeliverSm(sequence_number=1)) + encode(DataSm(sequence_number=2)) + encode(SubmitSm())
    assert session.receive(early, 0.0) == []
    refused = (c.DELIVER_SM, 1), (c.DATA_SM, 2), (c.SUBMIT_SM, 0)
    assert session.take(0.0) == b"".join(
        encode_bare(c.response_of(command_id), e.RINVBNDSTS, sequence) for command_id, sequence in refused
    )
    assert [type(event) for event in session.receive(encode(Outbind()), 0.0)] == [Requested]


@pytest.mark.parametrize("kind", [DeliverSm, DataSm])
def test_what_is_delivered_before_the_binds_answer_is_taken_once_that_is_good(kind: type[DeliverSm | DataSm]) -> None:
    session = opened()
    assert session.receive(encode(kind(sequence_number=7)) + encode(kind(sequence_number=8)), 0.0) == []
    assert session.take(0.0) == b""
    events = session.receive(encode(BindTransceiverResp("mc", sequence_number=1)), 0.0)
    assert [type(event) for event in events] == [Answered, Requested, Requested]
    for event in events[1:]:
        assert isinstance(event, Requested)
        session.answer(event.pdu)
    assert session.take(0.0) == b"".join(
        encode(TYPES[c.response_of(kind.COMMAND_ID)](sequence_number=n)) for n in (7, 8)
    )


def test_what_is_delivered_before_a_refused_bind_is_not_answered() -> None:
    session = opened()
    session.receive(encode(DeliverSm(sequence_number=7)), 0.0)
    (refused,) = session.receive(encode_bare(c.response_of(c.BIND_TRANSCEIVER), e.RBINDFAIL, 1), 0.0)
    assert isinstance(refused, Answered)
    assert session.take(0.0) == b""


def test_a_carrier_delivers_only_so_much_before_the_binds_answer() -> None:
    session = opened()
    for sequence in range(EARLY_MAX + 1):
        session.receive(encode(DeliverSm(sequence_number=sequence)), 0.0)
    assert session.take(0.0) == encode_bare(c.response_of(c.DELIVER_SM), e.RINVBNDSTS, EARLY_MAX)


def test_a_carrier_that_binds_or_submits_to_us_is_refused() -> None:
    session = bound()
    session.receive(encode(BindTransceiver(sequence_number=3)) + encode(SubmitSm(sequence_number=4)), 0.0)
    assert session.take(0.0) == encode_bare(c.response_of(c.BIND_TRANSCEIVER), e.RALYBND, 3) + encode_bare(
        SUBMIT_RESP, e.RINVBNDSTS, 4
    )
    assert session.bound


# -- unbind ------------------------------------------------------------------------------------------------------------


def test_an_unbind_response_nobody_asked_for_changes_nothing() -> None:
    session, _ = waiting()
    assert session.receive(encode_bare(c.response_of(c.UNBIND), 0, 9), 0.0) == []
    assert session.bound


def test_what_is_queued_when_we_unbind_never_leaves() -> None:
    session, _ = waiting()
    queued = submit(session, "b")
    session.unbind("bye", 0.0)
    assert session.take(0.0) == encode_bare(c.UNBIND, 0, queued + 1)
    session.receive(encode_bare(c.response_of(c.UNBIND), 0, queued + 1), 0.0)
    assert session.end() == [("a", True), ("b", False)]


def test_answers_after_our_unbind_still_count() -> None:
    session, sequences = waiting(2)
    session.unbind("bye", 0.0)
    session.take(0.0)
    (answered,) = session.receive(encode(SubmitSmResp("id", sequence_number=sequences[0])), 0.0)
    assert isinstance(answered, Answered) and answered.token == "a"
    unbound = session.receive(encode_bare(c.response_of(c.UNBIND), 0, sequences[-1] + 1), 0.0)
    assert [type(event) for event in unbound] == [Answered, Ended]
    assert session.end() == [("b", True)]


def test_both_unbind_at_once() -> None:
    session, _ = waiting()
    session.unbind("bye", 0.0)
    session.take(0.0)
    events = session.receive(encode(Unbind(sequence_number=50)), 0.0)
    assert [type(event) for event in events] == [PeerUnbound]
    assert session.take(0.0) == encode_bare(c.response_of(c.UNBIND), 0, 50)
    assert session.state is State.UNBOUND
    assert session.tick(TIMERS.unbind_grace_s) == [Ended("unbound")]
    assert session.end() == [("a", True)]


def test_a_second_unbind_and_requests_after_it_are_refused() -> None:
    session, _ = waiting()
    session.receive(encode(Unbind(sequence_number=50)), 0.0)
    session.take(0.0)
    assert session.receive(encode(Unbind(sequence_number=51)) + encode(DeliverSm(sequence_number=52)), 0.0) == []
    assert session.take(0.0) == encode_bare(c.response_of(c.UNBIND), e.RINVBNDSTS, 51) + encode_bare(
        c.response_of(c.DELIVER_SM), e.RINVBNDSTS, 52
    )


# -- floods ------------------------------------------------------------------------------------------------------------


def test_a_flood_of_probes_is_answered_one_by_one_and_keeps_nothing() -> None:
    session, _ = waiting()
    for first in range(0, 10_000, 1_000):
        flood = b"".join(encode(EnquireLink(sequence_number=first + number)) for number in range(1_000))
        assert session.receive(flood, 0.0) == []
        assert len(session.take(0.0)) == 16_000
    assert session.queued_octets == 0 and session.peer_requests == 0 and session.unanswered == 1


def test_probes_of_the_peer_do_not_stand_for_answers() -> None:
    """A half-dead carrier that still probes but answers nothing: the response timer and our own probe see it."""
    session, _ = waiting()
    now_mono = 0.0
    events: list[object] = []
    while now_mono < 60 and not any(isinstance(event, Ended) for event in events):
        now_mono += 1.0
        events += session.receive(encode(EnquireLink(sequence_number=int(now_mono))), now_mono)
        events += session.tick(now_mono)
        session.take(now_mono)
    assert Ended("enquire_link unanswered") in events
    assert now_mono <= TIMERS.response_s * 2 + 1


def test_a_pdu_that_trickles_in_has_ten_seconds() -> None:
    session = bound()
    octets = encode(DeliverSm(short_message=b"x" * 100, sequence_number=1))
    for second, octet in enumerate(octets[:10]):
        assert session.receive(bytes((octet,)), float(second)) == []
        assert session.tick(float(second)) == []
    assert session.tick(TIMERS.pdu_read_s) == [Ended("pdu unfinished")]


def test_every_cut_of_a_stream_is_the_same_stream() -> None:
    session, sequences = waiting(3)
    stream = b"".join(encode(SubmitSmResp(f"id{one}", sequence_number=one)) for one in sequences)
    whole = [event.response for event in session.receive(stream, 0.0) if isinstance(event, Answered)]
    for cut in range(1, len(stream)):
        session, _ = waiting(3)
        events = session.receive(stream[:cut], 0.0) + session.receive(stream[cut:], 9.0)
        assert [event.response for event in events if isinstance(event, Answered)] == whole
