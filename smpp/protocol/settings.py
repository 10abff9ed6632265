"""What a session is told once: bounds and timers."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from smpp.protocol.framer import PDU_OCTETS_MAX
from smpp.protocol.timers import TimerSettings
from smpp.values import valueclass

PEER_REQUESTS_MAX: Final = 5_000
"""Unanswered requests of the peer that a session holds; the next is answered ESME_RX_T_APPN, so carriers repeat it."""


@valueclass
class SessionSettings:
    """`window` counts our unanswered requests; `first_sequence` is 1 by the spec."""

    window: int = 10
    pdu_octets_max: int = PDU_OCTETS_MAX
    peer_requests_max: int = PEER_REQUESTS_MAX
    first_sequence: int = 1
    timers: TimerSettings = field(default_factory=TimerSettings)
