"""The rules of a session as data (SMPP 3.4 sections 2.2, 2.3 and 7.2): states, transitions, who may ask for what.

Nothing here knows which side of the link it is: the gateway runs these tables as ESME, the simulator as MC.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Final

from smpp.protocol import commands as c


class Side(Enum):
    """Who we are on this link."""

    ESME = "esme"
    MC = "mc"

    @property
    def peer(self) -> Side:
        return Side.MC if self is Side.ESME else Side.ESME


class State(StrEnum):
    """Where a session is (section 2.2); UNBOUND still takes answers that are due, CLOSED has no link."""

    OPEN = "open"
    BOUND_TX = "bound_tx"
    BOUND_RX = "bound_rx"
    BOUND_TRX = "bound_trx"
    UNBOUND = "unbound"
    CLOSED = "closed"


class Step(Enum):
    """What moves a session on. The bind steps happen when the good response is read or written."""

    BOUND_AS_TRANSMITTER = c.response_of(c.BIND_TRANSMITTER)
    BOUND_AS_RECEIVER = c.response_of(c.BIND_RECEIVER)
    BOUND_AS_TRANSCEIVER = c.response_of(c.BIND_TRANSCEIVER)
    UNBIND_ANSWERED = c.response_of(c.UNBIND)
    LINK_ENDED = 0


BOUND: Final = frozenset({State.BOUND_TX, State.BOUND_RX, State.BOUND_TRX})
_BEFORE_CLOSED: Final = frozenset(State) - {State.CLOSED}
_LIVE: Final = _BEFORE_CLOSED - {State.UNBOUND}
_TRANSMITTING: Final = frozenset({State.BOUND_TX, State.BOUND_TRX})
_RECEIVING: Final = frozenset({State.BOUND_RX, State.BOUND_TRX})
_OPEN: Final = frozenset({State.OPEN})

TRANSITIONS: Final[dict[tuple[State, Step], State]] = {
    (State.OPEN, Step.BOUND_AS_TRANSMITTER): State.BOUND_TX,
    (State.OPEN, Step.BOUND_AS_RECEIVER): State.BOUND_RX,
    (State.OPEN, Step.BOUND_AS_TRANSCEIVER): State.BOUND_TRX,
    **{(state, Step.UNBIND_ANSWERED): State.UNBOUND for state in _LIVE},
    **{(state, Step.LINK_ENDED): State.CLOSED for state in State},
}
"""A pair that is not here cannot happen: the session raises NotPermitted or refuses the peer's PDU."""

_OF_BOTH: Final = {
    c.UNBIND: _LIVE,
    # Section 2.3 lists enquire_link for bound states only; carriers send it around them too and drop the link when it
    # is refused.
    c.ENQUIRE_LINK: _BEFORE_CLOSED,
}

PERMITTED: Final[dict[Side, dict[int, frozenset[State]]]] = {
    Side.ESME: {
        c.BIND_TRANSMITTER: _OPEN,
        c.BIND_RECEIVER: _OPEN,
        c.BIND_TRANSCEIVER: _OPEN,
        c.SUBMIT_SM: _TRANSMITTING,
        c.QUERY_SM: _TRANSMITTING,
        c.CANCEL_SM: _TRANSMITTING,
        c.DATA_SM: _TRANSMITTING,
        **_OF_BOTH,
    },
    Side.MC: {
        c.OUTBIND: _OPEN,
        c.DELIVER_SM: _RECEIVING,
        c.DATA_SM: _RECEIVING,
        c.ALERT_NOTIFICATION: _RECEIVING,
        **_OF_BOTH,
    },
}
"""In which states a side may send a request (table 2-1); a command that is missing never."""


def permitted(side: Side, command_id: int, state: State) -> bool:
    """Whether `side` may send this request in this state."""
    return state in PERMITTED[side].get(command_id, ())
