"""PDUs that break the protocol, and links that end in the middle of one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from smpp.protocol import commands as c
from smpp.protocol.codec import encode, encode_bare
from smpp.protocol.commands import HEADER, HEADER_OCTETS
from smpp.protocol.pdu import DeliverSm, GenericNack, Pdu, QuerySmResp, SubmitSmResp, Unknown

if TYPE_CHECKING:
    from smpp.link import Connection
    from smpp.simulator.settings import SimulatorSettings

_STRAY_SEQUENCE: Final = 0x7FFF_FFF0
_RINVCMDLEN: Final = 2
_REQUESTS_WITH_STRAYS: Final = frozenset({c.DELIVER_SM, c.DATA_SM})


def _with_length(octets: bytes, length: int) -> bytes:
    return length.to_bytes(4, "big") + octets[4:]


def _receipt_like(body: bytes) -> bytes:
    return HEADER.pack(HEADER_OCTETS + len(body), c.DELIVER_SM, 0, _STRAY_SEQUENCE) + body


def octets_of(kind: str, sequence: int, rng: random.Random) -> bytes:
    """The octets of a bad PDU that comes beside a good answer; empty for kinds that replace the answer."""
    inner = encode(DeliverSm(source_addr="447700900123", short_message=b"Hello"))[HEADER_OCTETS:]
    made: dict[str, Callable[[], bytes]] = {
        "long_length": lambda: bytes.fromhex("80000009000000000000000100000000"),
        "short_length": lambda: _with_length(encode_bare(c.ENQUIRE_LINK, 0, _STRAY_SEQUENCE), HEADER_OCTETS - 1),
        "unknown_command": lambda: HEADER.pack(HEADER_OCTETS + 2, 0x99, 0, _STRAY_SEQUENCE) + b"\1\2",
        "sm_length": lambda: _receipt_like(inner[:-6] + b"\xf0" + inner[-5:]),
        "tlv_length": lambda: _receipt_like(inner + b"\x04\x27\x00\x09\x02"),
        "no_nul": lambda: _receipt_like(b"\0\1\1" + b"4" * 60),
        "stray_answer": lambda: encode(SubmitSmResp("stray", sequence_number=_STRAY_SEQUENCE)),
        "wrong_answer": lambda: encode(QuerySmResp("wrong", sequence_number=sequence)),
        "nack_zero": lambda: encode_bare(c.GENERIC_NACK, _RINVCMDLEN, 0),
        "garbage": lambda: rng.randbytes(64),
    }
    return made[kind]() if kind in made else b""


def answer_of(kind: str | None, answer: Pdu) -> Pdu:
    """The answer to send in place of the good one; the good one for kinds that only come beside it."""
    if kind == "nack":
        return GenericNack(command_status=_RINVCMDLEN)
    if kind == "bare_answer":
        return Unknown(answer.COMMAND_ID)
    if kind == "error_with_body" and isinstance(answer, SubmitSmResp):
        return SubmitSmResp(answer.message_id or "refused", command_status=answer.command_status or 0x0B)
    return answer


class Outgoing:
    """Everything that is written to one connection goes through this: strays behind PDUs, cuts inside of them."""

    def __init__(self, connection: Connection, settings: Callable[[], SimulatorSettings]) -> None:
        self._connection = connection
        self._settings = settings
        self._octets = 0
        self._pdus = 0

    def __call__(self, octets: bytes) -> bytes:
        settings = self._settings()
        if settings.dialect.stray:
            octets = b"".join(_with_stray(pdu, settings.dialect.stray) for pdu in split(octets))
        kept = self._kept(octets, settings)
        self._octets += len(octets)
        if kept is None:
            return octets
        asyncio.get_running_loop().call_soon(lambda: self._connection.close(reset=settings.reset))
        return octets[:kept]

    def _kept(self, octets: bytes, settings: SimulatorSettings) -> int | None:
        if settings.cut_after_octets and self._octets + len(octets) > settings.cut_after_octets:
            return max(0, settings.cut_after_octets - self._octets)
        if settings.cut_after_pdus:
            at = 0
            for pdu in split(octets):
                if self._pdus == settings.cut_after_pdus:
                    return at + len(pdu) // 2
                self._pdus += 1
                at += len(pdu)
        return None


def split(octets: bytes) -> list[bytes]:
    """The PDUs of what is about to be written; it holds whole ones only."""
    pdus = []
    at = 0
    while at < len(octets):
        end = at + int.from_bytes(octets[at : at + 4], "big")
        pdus.append(octets[at:end])
        at = end
    return pdus


def _with_stray(pdu: bytes, stray: bytes) -> bytes:
    _, command_id, _, _ = HEADER.unpack_from(pdu)
    if command_id not in _REQUESTS_WITH_STRAYS:
        return pdu
    return _with_length(pdu, len(pdu) + len(stray)) + stray
