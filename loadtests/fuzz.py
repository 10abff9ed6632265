"""Damaged PDUs, one after the other, against codec, session, receipt reader and text reader.

    make fuzz ARGS="--seconds 3600"        or        python -m loadtests.fuzz --seconds 60 --seed 7

Seeds are one PDU of every command and the PDUs of pdus.txt, met in the field. Each case takes one and damages it with
knowledge of its structure: lying lengths, lost or moved NULs, TLVs cut, doubled and swapped, two PDUs spliced, another
command on the same body; part of the cases also travel through a live session of either side in random pieces, among
bare answers of any status to what that session asked.

What is asked: nothing but ProtocolError comes out of the codec and nothing at all out of the session; what was read is
written and read again unchanged; a receipt reader never raises; no PDU takes 5 ms (the best of three tries); memory
does not grow. Every case is made from (seed, number) alone, so a finding is one line to repeat: `--only NUMBER`.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from smpp.protocol import commands as c
from smpp.protocol.codec import decode, encode, encode_bare
from smpp.protocol.errors import ProtocolError
from smpp.protocol.events import Ended, Requested
from smpp.protocol.pdu import TYPES, BindTransceiver, DataSm, DeliverSm, Pdu, SubmitSm
from smpp.protocol.session import Session
from smpp.protocol.settings import SessionSettings
from smpp.protocol.states import Side
from smpp.receipts import reader
from smpp.text import decode as decode_text
from smpp.text import split_header

SLOWEST_S = 0.005
MEMORY_GROWTH_OCTETS = 24 << 20
_PAGE_OCTETS = os.sysconf("SC_PAGE_SIZE")
_PDUS = Path(__file__).with_name("pdus.txt")
_WORDS = (0, 1, 15, 16, 17, 0xFF, 0x100, 0x7FFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_STATUSES = (0, 0, 0, 1, 2, 4, 5, 8, 0x14, 0x45, 0x58, 0xFF, 0x400, 0xFFFFFFFF)
_COMMANDS = (*TYPES, 0, 0x99, 0x21, 0x80000021, 0xFFFFFFFF)
_RESPONSES = [known for known in _COMMANDS if c.is_response(known)]


class Finding(Exception):
    """A promise was broken; the message says by which case."""


@dataclass(slots=True)
class Tally:
    """What a run came to."""

    seed: int
    pdus: int = 0
    octets: int = 0
    read: int = 0
    refused: int = 0
    sessions: int = 0
    slowest_s: float = 0.0
    grown_octets: int = 0
    events: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.pdus:,} PDUs ({self.octets / 1e6:,.0f} MB), {self.read:,} read, "
            f"{self.refused:,} refused, {self.sessions:,} sessions, slowest {self.slowest_s * 1e3:.2f} ms, "
            f"memory {self.grown_octets / 1e6:+.1f} MB"
        )


def seeds() -> list[bytes]:
    """One PDU of every command with its fields filled, and those met in the field."""
    made: list[Pdu] = [kind(sequence_number=3) for kind in TYPES.values()]
    made += [
        SubmitSm("CMT", 5, 0, "ACME", validity_period="000000000200000R", short_message=b"x" * 99, sequence_number=1),
        SubmitSm(
            destination_addr="447700900123",
            esm_class=0x40,
            data_coding=8,
            short_message=b"\x05\x00\x03\x07\x02\x01\x00H\xd8\x3d\xde\x00",
            tlvs=((0x0204, b"\0\7"), (0x1400, b"entity\0")),
            sequence_number=4,
        ),
        DeliverSm(
            source_addr="447700900123",
            esm_class=4,
            short_message=b"id:77 sub:001 dlvrd:001 submit date:2611301015 done date:2611301016 stat:DELIVRD err:000",
            tlvs=((0x1E, b"77\0"), (0x427, b"\2"), (0x423, b"\3\0\1")),
            sequence_number=2,
        ),
        DataSm(source_addr="44", tlvs=((0x0424, b"long text " * 40),), sequence_number=5),
    ]
    lines = _PDUS.read_text(encoding="ascii").splitlines()
    return [encode(pdu) for pdu in made] + [bytes.fromhex(line.split()[1]) for line in lines if line[0] != "#"]


# -- damage ------------------------------------------------------------------------------------------------------------


def _flip(rng: random.Random, octets: bytearray, _: Sequence[bytes]) -> None:
    for _ in range(rng.randint(1, 4)):
        octets[rng.randrange(len(octets))] = rng.choice((0, 1, 0x1B, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _cut(rng: random.Random, octets: bytearray, _: Sequence[bytes]) -> None:
    del octets[rng.randint(0, len(octets)) :]


def _take_out(rng: random.Random, octets: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(octets))
    del octets[at : at + rng.randint(1, 20)]


def _double(rng: random.Random, octets: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(octets))
    octets[at:at] = octets[at : at + rng.randint(1, 60)] * rng.randint(1, 5)


def _stuff(rng: random.Random, octets: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randint(0, len(octets))
    filler = rng.choice((b"\0", b"A", b"\xff", b" ", b"id:", b"\x1e", rng.randbytes(3)))
    octets[at:at] = filler * rng.choice((1, 5, 70, 300, 20_000 // len(filler) if rng.random() < 0.02 else 2))


def _lose_nul(rng: random.Random, octets: bytearray, _: Sequence[bytes]) -> None:
    places = [at for at in range(16, len(octets)) if octets[at] == 0]
    if places:
        octets[rng.choice(places)] = rng.choice((0x20, 0x41, 0xFF))


def _lie(rng: random.Random, octets: bytearray, _: Sequence[bytes]) -> None:
    # A word or an octet anywhere that may be a length: sm_length, TLV length, UDH length.
    width = rng.choice((1, 2, 4))
    at = rng.randint(0, max(0, len(octets) - width))
    octets[at : at + width] = (rng.choice(_WORDS) % (1 << 8 * width)).to_bytes(width, "big")


def _tlv(rng: random.Random, octets: bytearray, _: Sequence[bytes]) -> None:
    for _ in range(rng.choice((1, 1, 3, 40))):
        tag = rng.choice((0x1E, 0x204, 0x20C, 0x20E, 0x20F, 0x423, 0x424, 0x427, 0x1400, rng.randrange(0x10000)))
        value = rng.randbytes(rng.choice((0, 1, 2, 3, 8, 40)))
        said = len(value) if rng.random() < 0.8 else rng.randrange(0x10000)
        octets += tag.to_bytes(2, "big") + said.to_bytes(2, "big") + value


def _splice(rng: random.Random, octets: bytearray, others: Sequence[bytes]) -> None:
    other = rng.choice(others)
    octets[rng.randint(0, len(octets)) :] = other[rng.randint(0, len(other)) :]


def _rename(rng: random.Random, octets: bytearray, _: Sequence[bytes]) -> None:
    octets[4:8] = rng.choice(_COMMANDS).to_bytes(4, "big")


DAMAGES: tuple[Callable[[random.Random, bytearray, Sequence[bytes]], None], ...] = (
    _flip, _cut, _take_out, _double, _stuff, _lose_nul, _lie, _tlv, _splice, _rename,
)  # fmt: skip


def damaged(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """One PDU of the corpus after one to four damages, its command_length put right in nine cases of ten."""
    octets = bytearray(rng.choice(corpus))
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        if octets:
            rng.choice(DAMAGES)(rng, octets, corpus)
    if len(octets) >= 4 and rng.random() < 0.9:
        octets[:4] = len(octets).to_bytes(4, "big")
    return bytes(octets)


# -- what is asked -----------------------------------------------------------------------------------------------------


def _try_codec(octets: bytes, tally: Tally) -> None:
    try:
        pdu = decode(octets)
    except ProtocolError as refused:
        tally.refused += 1
        if not 0 < refused.command_status < 0x100:
            raise Finding("a refusal without a status") from refused
        return
    tally.read += 1
    if decode(encode(pdu)) != pdu:
        raise Finding("what was read is not what is written")
    if isinstance(pdu, DeliverSm | DataSm):
        reader.read(pdu)
    if isinstance(pdu, DeliverSm | SubmitSm):
        content = split_header(pdu.short_message, pdu.esm_class)
        decode_text(content.body, pdu.data_coding)


def _session(rng: random.Random) -> Session:
    side = rng.choice((Side.ESME, Side.MC))
    session = Session(side, SessionSettings(window=5, peer_requests_max=50), 0.0)
    kind = rng.choice(sorted(c.BINDS))
    if rng.random() < 0.2:
        return session
    if side is Side.ESME:
        session.bind(TYPES[kind](sequence_number=1), "bind")
        if rng.random() < 0.2:
            return session  # its response is still to come
        session.receive(encode_bare(c.response_of(kind), 0, 1), 0.0)
        while session.window_free and session.may_send(c.SUBMIT_SM):
            session.request(SubmitSm(), "token")
        if rng.random() < 0.1:
            session.unbind("unbind", 1.0)
    else:
        for event in session.receive(encode(BindTransceiver(system_id="a", sequence_number=1)), 0.0):
            if isinstance(event, Requested):
                session.answer(event.pdu)
    session.take(0.0)
    return session


def _aimed(rng: random.Random) -> bytes:
    """An answer, well or ill, to one of the few requests that a session of ours has sent."""
    command_id = c.GENERIC_NACK if rng.random() < 0.4 else rng.choice(_RESPONSES)
    return encode_bare(command_id, rng.choice(_STATUSES), rng.randrange(5))


def _piece(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    chance = rng.random()
    if chance < 0.2:
        return _aimed(rng)
    return damaged(rng, corpus) if chance < 0.7 else rng.choice(corpus)


def _try_session(rng: random.Random, corpus: Sequence[bytes], tally: Tally) -> None:
    session = _session(rng)
    stream = b"".join(_piece(rng, corpus) for _ in range(8))
    tally.sessions += 1
    at, now_mono = 0, 1.0
    while at < len(stream):
        size = rng.choice((1, 2, 3, 5, 17, 100, 1_000, 10_000))
        events = session.receive(stream[at : at + size], now_mono)
        at += size
        now_mono += rng.random() * 3
        events += session.tick(now_mono)
        for event in events:
            tally.events[type(event).__name__] += 1
        if any(isinstance(event, Ended) for event in events):
            break
        if session.queued_octets > 64 * 1024:
            raise Finding("answers grow without bound")
        session.take(now_mono)
    session.parting()
    tokens = len(session.end())
    if tokens > 5:
        raise Finding("more tokens than the window")


def _time_of(octets: bytes, spent_s: float, slowest_s: float) -> float:
    # A new slowest one gets two more tries: other processes take the core too.
    for _ in range(2):
        if spent_s <= slowest_s:
            break
        begun_s = time.thread_time()
        with suppress(ProtocolError):
            decode(octets)
        spent_s = min(spent_s, time.thread_time() - begun_s)
    return spent_s


def run_case(seed: int, number: int, corpus: Sequence[bytes], tally: Tally) -> None:
    """Makes and tries the case with this number. Raises Finding."""
    rng = random.Random(f"{seed}/{number}")
    octets = damaged(rng, corpus)
    tally.pdus += 1
    tally.octets += len(octets)
    try:
        begun_s = time.thread_time()
        with suppress(ProtocolError):
            decode(octets)
        spent_s = time.thread_time() - begun_s
        if spent_s > tally.slowest_s:
            spent_s = _time_of(octets, spent_s, tally.slowest_s)
            tally.slowest_s = max(tally.slowest_s, spent_s)
            if spent_s >= SLOWEST_S:
                raise Finding(f"{spent_s * 1e3:.1f} ms for one PDU")
        _try_codec(octets, tally)
        if number % 8 == 0:
            _try_session(rng, corpus, tally)
            tally.pdus += 8
    except Exception as fault:
        raise Finding(f"--seed {seed} --only {number}: {fault!r}, PDU {octets[:400].hex()}") from fault


def run(seed: int, seconds: float, first: int = 0) -> Tally:
    """Runs cases for this long. Raises Finding; the tally tells the rest."""
    corpus = seeds()
    tally = Tally(seed)
    begun_mono = time.monotonic()
    warm_octets = 0
    number = first
    while (passed_s := time.monotonic() - begun_mono) < seconds:
        for _ in range(500):
            run_case(seed, number, corpus, tally)
            number += 1
        if passed_s < seconds / 5:
            warm_octets = _resident_octets()
    tally.grown_octets = max(0, _resident_octets() - warm_octets)
    if tally.grown_octets > MEMORY_GROWTH_OCTETS:
        raise Finding(f"memory grew by {tally.grown_octets / 1e6:.0f} MB")
    return tally


def _resident_octets() -> int:
    statm = Path("/proc/self/statm")
    return int(statm.read_text(encoding="ascii").split()[1]) * _PAGE_OCTETS if statm.exists() else 0


def main() -> None:
    """Prints the tally; ends with 1 on a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time")
    parser.add_argument("--only", type=int, help="repeat one case")
    asked = parser.parse_args()
    try:
        if asked.only is not None:
            run_case(asked.seed, asked.only, seeds(), Tally(asked.seed))
            print("nothing found")
        else:
            print(run(asked.seed, asked.seconds))
    except Finding as finding:
        sys.exit(f"found: {finding}")


if __name__ == "__main__":
    main()
