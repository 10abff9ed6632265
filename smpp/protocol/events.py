"""What a session tells its shell. Plain records, in the order in which things happened on the wire."""

from __future__ import annotations

from dataclasses import dataclass

from smpp.protocol.pdu import Pdu


@dataclass(slots=True)
class Answered:
    """A response for a request of ours; `late` when its response timer had run out before."""

    token: object
    response: Pdu
    late: bool


@dataclass(slots=True)
class TimedOut:
    """The response timer of one request ran out. The slot is free, the link stays, an enquire_link is on its way."""

    token: object


@dataclass(slots=True)
class Requested:
    """A request of the peer that the state permits; whoever takes it answers it (alert_notification has no answer)."""

    pdu: Pdu


@dataclass(slots=True)
class PeerUnbound:
    """The peer asked to unbind and was answered; no request of ours may follow."""


@dataclass(slots=True)
class Ended:
    """The link has to close: write what `Session.parting` gives, then close and call `Session.end`."""

    reason: str


Event = Answered | TimedOut | Requested | PeerUnbound | Ended
