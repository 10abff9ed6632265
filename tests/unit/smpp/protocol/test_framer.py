"""TCP is a byte stream: PDUs in pieces, several in one read, and lengths that lie."""

from __future__ import annotations

import pytest

from smpp.protocol.codec import decode, encode, encode_bare
from smpp.protocol.errors import RINVCMDLEN, ProtocolError
from smpp.protocol.framer import Framer
from smpp.protocol.pdu import SubmitSm, SubmitSmResp


def test_s17_a_pdu_in_pieces() -> None:
    framer = Framer()
    assert framer.feed(bytes.fromhex("000000")) == []
    assert framer.held_octets == 3
    assert framer.feed(bytes.fromhex("17800000040000")) == []
    (octets,) = framer.feed(bytes.fromhex("00000000005f46524147393500"))
    assert decode(octets) == SubmitSmResp("FRAG95", sequence_number=95)
    assert framer.held_octets == 0


def test_s19_two_and_a_half_pdus_in_one_read() -> None:
    framer = Framer()
    first = framer.feed(
        bytes.fromhex("0000001680000004000000000000006054574f39360000000010000000150000000000000005000000178000")
    )
    assert [decode(octets).sequence_number for octets in first] == [96, 5]
    (last,) = framer.feed(bytes.fromhex("0004000000000000005f46524147393500"))
    assert decode(last) == SubmitSmResp("FRAG95", sequence_number=95)


def test_every_split_gives_the_same_pdus() -> None:
    pdus = [encode(SubmitSm(short_message=bytes([n]) * n, sequence_number=n)) for n in range(1, 6)]
    stream = b"".join(pdus)
    for size in range(1, len(stream)):
        framer = Framer()
        read = [octets for at in range(0, len(stream), size) for octets in framer.feed(stream[at : at + size])]
        assert read == pdus
        assert framer.held_octets == 0


def test_s16_a_command_id_taken_as_length() -> None:
    framer = Framer()
    with pytest.raises(ProtocolError) as caught:
        framer.feed(bytes.fromhex("80000009000000000000000100"))
    assert caught.value.fatal
    assert (caught.value.command_status, caught.value.sequence_number) == (RINVCMDLEN, 0)
    assert framer.held_octets == 0


@pytest.mark.parametrize("length", [0, 1, 4, 15, 65_537, 0x7FFFFFFF, 0xFFFFFFFF])
def test_lengths_out_of_bounds_are_seen_at_the_length_word(length: int) -> None:
    framer = Framer()
    with pytest.raises(ProtocolError):
        framer.feed(length.to_bytes(4, "big"))


def test_the_sequence_is_told_when_the_header_is_there() -> None:
    with pytest.raises(ProtocolError) as caught:
        Framer(limit=100).feed((101).to_bytes(4, "big") + encode_bare(4, 0, 77)[4:])
    assert (caught.value.command_id, caught.value.sequence_number) == (4, 77)


def test_pdus_before_the_fault_are_not_lost() -> None:
    framer = Framer()
    good = encode_bare(0x15, 0, 1)
    assert framer.feed(good + good + b"\0\0\0\1" + b"x" * 100) == [good, good]
    assert framer.fault is not None
    for _ in range(3):
        with pytest.raises(ProtocolError):
            framer.feed(good)
    assert framer.held_octets == 0


def test_limit_is_inclusive() -> None:
    octets = (32).to_bytes(4, "big") + bytes(28)
    assert Framer(limit=32).feed(octets) == [octets]


def test_memory_is_bounded_by_the_limit() -> None:
    framer = Framer(limit=1_000)
    framer.feed((1_000).to_bytes(4, "big"))
    for _ in range(995):
        assert framer.feed(b"x") == []
        assert framer.held_octets < 1_000
    assert len(framer.feed(b"x")) == 1
