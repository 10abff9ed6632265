"""What a link is given and what it reports: settings, errors and the handler's interface."""

from __future__ import annotations

from typing import Any, Protocol

from smpp.protocol.framer import PDU_OCTETS_MAX
from smpp.protocol.settings import SessionSettings
from smpp.protocol.states import Side
from smpp.protocol.timers import TimerSettings
from smpp.values import valueclass


@valueclass
class LinkSettings:
    """One link's numbers; durations in seconds.

    `window` bounds our unanswered requests. `enquire_link_s` is the silence after which the peer is probed,
    `response_timeout_s` how long any response may take, `inactivity_s` the silence that ends the link.
    """

    window: int
    enquire_link_s: float
    response_timeout_s: float
    inactivity_s: float
    bind_timeout_s: float = 10.0
    connect_timeout_s: float = 5.0
    pdu_limit: int = PDU_OCTETS_MAX

    def session(self, side: Side) -> SessionSettings:
        """The same numbers as the session wants them."""
        # As ESME the bind call has its own timeout; the session's timer only catches a link that never tried.
        slack_s = 1.0 if side is Side.ESME else 0.0
        timers = TimerSettings(
            session_init_s=self.bind_timeout_s + self.connect_timeout_s * slack_s + slack_s,
            enquire_link_s=self.enquire_link_s,
            response_s=self.response_timeout_s,
            inactivity_s=self.inactivity_s,
        )
        return SessionSettings(window=self.window, pdu_octets_max=self.pdu_limit, timers=timers)


class BindRefused(Exception):
    """The peer answered the bind with an error; `command_status` says which."""

    def __init__(self, command_status: int) -> None:
        super().__init__(f"bind refused with command_status {command_status:#x}")
        self.command_status = command_status


class LinkLost(Exception):
    """The link ended while an answer was awaited on it; the message says why, without addresses."""


class LinkHandler(Protocol):
    """Who uses the link. All are called on the event loop and must not block; an exception is reported, not raised.

    Tokens and PDUs are typed Any so that a handler may name its own tokens, and just those PDUs that its side of the
    link can meet: an ESME that only submits meets SubmitSmResp and GenericNack as responses, DeliverSm, DataSm and
    AlertNotification as requests.
    """

    def answered(self, token: Any, response: Any, late: bool) -> None:
        """A response (or generic_nack) for the request with this token; `late` after its `timed_out`."""

    def timed_out(self, token: Any) -> None:
        """No response in time. The link stays; a later response comes as answered(late=True)."""

    def requested(self, pdu: Any) -> None:
        """A request of the peer; answer it with `Connection.answer` or `respond` whenever ready."""

    def room(self) -> None:
        """Window space came free or the socket takes octets again."""

    def lost(self, tokens: list[tuple[Any, bool]], reason: str) -> None:
        """The link ended, whatever ended it; called exactly once per connection.

        Every unanswered token comes back with `written`: False only when no octet of it can have left.
        """
