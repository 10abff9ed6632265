"""Command ids and PDU header of SMPP 3.4 (sections 3.2 and 5.1.2.1)."""

from __future__ import annotations

from struct import Struct
from typing import Final

HEADER: Final = Struct(">IIII")
"""command_length, command_id, command_status, sequence_number."""

HEADER_OCTETS: Final = HEADER.size
RESPONSE_BIT: Final = 0x8000_0000
SEQUENCE_MAX: Final = 0x7FFF_FFFF

GENERIC_NACK: Final = 0x8000_0000
BIND_RECEIVER: Final = 0x0000_0001
BIND_TRANSMITTER: Final = 0x0000_0002
QUERY_SM: Final = 0x0000_0003
SUBMIT_SM: Final = 0x0000_0004
DELIVER_SM: Final = 0x0000_0005
UNBIND: Final = 0x0000_0006
CANCEL_SM: Final = 0x0000_0008
BIND_TRANSCEIVER: Final = 0x0000_0009
OUTBIND: Final = 0x0000_000B
ENQUIRE_LINK: Final = 0x0000_0015
ALERT_NOTIFICATION: Final = 0x0000_0102
DATA_SM: Final = 0x0000_0103

BINDS: Final = frozenset({BIND_RECEIVER, BIND_TRANSMITTER, BIND_TRANSCEIVER})
UNANSWERED: Final = frozenset({OUTBIND, ALERT_NOTIFICATION})
"""Requests that have no response PDU (SMPP 3.4 sections 4.1.7 and 4.12)."""


def is_response(command_id: int) -> bool:
    """Whether the command answers a request; generic_nack counts as one."""
    return command_id >= RESPONSE_BIT


def response_of(command_id: int) -> int:
    """The command id of the response to a request."""
    return command_id | RESPONSE_BIT
