"""The message states of the contract (section 2, "States") and the only transitions between them, as data.

`sending` is never stored: a message is `sending` while its row is `queued` and `attempts` holds an open row at its
next slot. Everything that changes a status asks `transition`.
"""

from __future__ import annotations

from typing import Final

SCHEDULED: Final = "scheduled"
QUEUED: Final = "queued"
SENDING: Final = "sending"
UNCONFIRMED: Final = "unconfirmed"
SENT: Final = "sent"
DELIVERED: Final = "delivered"
UNDELIVERED: Final = "undelivered"
EXPIRED: Final = "expired"
REJECTED: Final = "rejected"
FAILED: Final = "failed"
SUPPRESSED: Final = "suppressed"
CANCELED: Final = "canceled"
UNKNOWN: Final = "unknown"

FINAL: Final = frozenset({DELIVERED, UNDELIVERED, EXPIRED, REJECTED, FAILED, SUPPRESSED, CANCELED, UNKNOWN})
OPEN: Final = frozenset({SCHEDULED, QUEUED, SENDING, UNCONFIRMED, SENT})
ALL: Final = OPEN | FINAL

_ORIGIN: Final = {
    SENT: "carrier",
    DELIVERED: "carrier",
    UNDELIVERED: "carrier",
    REJECTED: "carrier",
}

# (status before, event) -> status after. An event that has no row here changes nothing; `transition` says so.
TRANSITIONS: Final[dict[tuple[str, str], str]] = {
    # our own side
    (SCHEDULED, "release"): QUEUED,
    (SCHEDULED, "expire"): EXPIRED,
    (SCHEDULED, "cancel"): CANCELED,
    (SCHEDULED, "suppress"): SUPPRESSED,
    (QUEUED, "expire"): EXPIRED,
    (QUEUED, "cancel"): CANCELED,
    (QUEUED, "suppress"): SUPPRESSED,
    (QUEUED, "defer"): SCHEDULED,
    # what a submit came to
    (QUEUED, "requeue"): QUEUED,
    (QUEUED, "accept"): SENT,
    (QUEUED, "refuse"): REJECTED,
    (QUEUED, "exhaust"): FAILED,
    (QUEUED, "leave_incomplete"): FAILED,
    (QUEUED, "doubt"): UNCONFIRMED,
    (QUEUED, "doubt_fails"): FAILED,
    (UNCONFIRMED, "accept"): SENT,
    (UNCONFIRMED, "refuse"): REJECTED,
    (UNCONFIRMED, "requeue"): QUEUED,
    (UNCONFIRMED, "doubt_fails"): FAILED,
    (FAILED, "accept"): SENT,  # only error.code outcome_unknown: the answer came late after all
    # the network's word
    (SENT, "deliver"): DELIVERED,
    (SENT, "undeliver"): UNDELIVERED,
    (SENT, "cut_off"): UNKNOWN,
    (UNCONFIRMED, "deliver"): DELIVERED,
    (UNCONFIRMED, "undeliver"): UNDELIVERED,
    (FAILED, "deliver"): DELIVERED,  # only error.code outcome_unknown
    (FAILED, "undeliver"): UNDELIVERED,
    (UNKNOWN, "deliver"): DELIVERED,
    (UNKNOWN, "undeliver"): UNDELIVERED,
    (DELIVERED, "undeliver"): UNDELIVERED,  # another part, or an earlier carrier time
    (UNDELIVERED, "deliver"): DELIVERED,
}


def transition(status: str, event: str) -> str | None:
    """The status after an event, or None where the event may not change a message in that status."""
    return TRANSITIONS.get((status, event))


def is_final(status: str) -> bool:
    """Whether the message is closed (a later receipt may still correct `unknown`, and `failed` in doubt)."""
    return status in FINAL


def origin_of(status: str) -> str:
    """Who said so: `carrier` or `gateway`."""
    return _ORIGIN.get(status, "gateway")
