"""Whose mistake it was: the peer's (ProtocolError) or our own (PduInvalid, NotPermitted, WindowFull).

A ProtocolError says what to answer; none of these ever carries text, numbers or passwords.
"""

from __future__ import annotations

from typing import Final

from smpp.values import valueclass

# The command_status values that this package answers by itself (SMPP 3.4 section 5.1.3).
ROK: Final = 0x00
RINVMSGLEN: Final = 0x01
RINVCMDLEN: Final = 0x02
RINVCMDID: Final = 0x03
RINVBNDSTS: Final = 0x04
RALYBND: Final = 0x05
RSYSERR: Final = 0x08
RINVSRCADR: Final = 0x0A
RINVDSTADR: Final = 0x0B
RINVMSGID: Final = 0x0C
RBINDFAIL: Final = 0x0D
RINVPASWD: Final = 0x0E
RINVSYSID: Final = 0x0F
RINVSERTYP: Final = 0x15
RINVSYSTYP: Final = 0x53
RTHROTTLED: Final = 0x58
RINVSCHED: Final = 0x61
RINVEXPIRY: Final = 0x62
RX_T_APPN: Final = 0x64
RQUERYFAIL: Final = 0x67
RINVOPTPARSTREAM: Final = 0xC0
RINVPARLEN: Final = 0xC2
RUNKNOWNERR: Final = 0xFF


@valueclass
class Blame:
    """Which PDU was wrong: its command and sequence (0 when they could not be read)."""

    command_id: int = 0
    sequence_number: int = 0


class ProtocolError(Exception):
    """The peer sent something that is not SMPP.

    `command_status` is what to answer. `fatal` means that the byte stream itself can no longer be trusted, so the
    link has to close after the answer; otherwise the fault is inside one well-framed PDU. `readable` is what
    could be read of a response, whose header alone answers a request, or of a deliver_sm or data_sm whose fault is in
    its optional parameters, without the broken ones.
    """

    def __init__(self, reason: str, command_status: int, blame: Blame | None = None, *, fatal: bool = False) -> None:
        super().__init__(reason)
        blame = blame or Blame()
        self.reason = reason
        self.command_status = command_status
        self.command_id = blame.command_id
        self.sequence_number = blame.sequence_number
        self.fatal = fatal
        self.readable: object = None


class PduInvalid(ValueError):
    """A PDU of ours cannot be put on the wire; the message names the field, never its value."""


class NotPermitted(Exception):
    """Our side may not send this request in this state (SMPP 3.4 section 2.3)."""


class WindowFull(Exception):
    """As many requests as the window allows are unanswered."""
