"""Cuts the byte stream into PDUs by command_length (SMPP 3.4 section 3.2); holds at most one unfinished PDU."""

from __future__ import annotations

from struct import Struct
from typing import Final

from smpp.protocol.commands import HEADER, HEADER_OCTETS
from smpp.protocol.errors import RINVCMDLEN, Blame, ProtocolError

PDU_OCTETS_MAX: Final = 65_536
"""64 KiB: one message_payload at its largest. Kannel takes 7,424, node-smpp 16,384, most libraries any length."""

_LENGTH: Final = Struct(">I")


class Framer:
    """One direction of one link.

    A lying command_length (under 16, over the limit) is a fatal ProtocolError, raised as soon as the length word is
    there and after the PDUs in front of it were handed out; from then on nothing is kept.
    """

    __slots__ = ("_fault", "_held", "limit")

    def __init__(self, limit: int = PDU_OCTETS_MAX) -> None:
        self.limit = limit
        self._held = bytearray()
        self._fault: ProtocolError | None = None

    @property
    def held_octets(self) -> int:
        """Octets of a PDU that has begun and is not whole; 0 between PDUs."""
        return len(self._held)

    @property
    def fault(self) -> ProtocolError | None:
        """Set once the stream is lost: the error that the next `feed` raises."""
        return self._fault

    def feed(self, octets: bytes) -> list[bytes]:
        """Takes what was read, returns the whole PDUs in order. Raises ProtocolError on a lying length."""
        if self._fault is not None:
            raise self._fault
        held = self._held
        source: bytes | bytearray = octets
        if held:
            held += octets
            source = held
        pdus: list[bytes] = []
        at = 0
        size = len(source)
        while size - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(source, at)
            if not HEADER_OCTETS <= length <= self.limit:
                return self._lose(pdus, source, at)
            if size - at < length:
                break
            end = at + length
            pdus.append(bytes(source[at:end]))
            at = end
        if source is held:
            del held[:at]
        elif at < size:
            held += octets[at:] if at else octets
        return pdus

    def _lose(self, pdus: list[bytes], source: bytes | bytearray, at: int) -> list[bytes]:
        blame = Blame()
        if len(source) - at >= HEADER_OCTETS:
            _, command_id, _, sequence_number = HEADER.unpack_from(source, at)
            blame = Blame(command_id, sequence_number)
        self._fault = ProtocolError("command_length is out of bounds", RINVCMDLEN, blame, fatal=True)
        self._held = bytearray()
        if not pdus:
            raise self._fault
        return pdus
