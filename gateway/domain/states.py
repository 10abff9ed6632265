"""The message states of the contract (section 2, "States") and the only transitions between them, as data.

`sending` is never stored: a message is `sending` while its row is `queued` and `attempts` holds an open row at its
next slot. The table below is the whole truth: the diagram in ARCHITECTURE.md is drawn from it, and tests hold every
function that changes a status to it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

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

# What can happen to a message, in the words of the diagram.
EVENTS: Final[dict[str, str]] = {
    "release": "due",
    "postpone": "send window, when_full defer",
    "claim": "claimed",
    "cancel": "the tenant's wish",
    "suppress": "opted out",
    "expire": "our deadline",
    "requeue": "throttled, later, given back",
    "resend": "resend once, flagged",
    "accept": "every part accepted",
    "refuse": "refused for good",
    "exhaust": "attempts exhausted",
    "leave_incomplete": "parts incomplete",
    "give_up": "cannot be put on the wire",
    "doubt": "answer lost",
    "doubt_fails": "outcome unknown",
    "deliver": "receipts",
    "undeliver": "receipts",
    "cut_off": "cut-off",
    "retract": "the receipt was another message's",
}


class Transition(NamedTuple):
    """One row of the table; `only` is a condition that the status alone does not tell."""

    before: str
    event: str
    after: str
    only: str = ""


TABLE: Final = (
    # our own side
    Transition(SCHEDULED, "release", QUEUED),
    Transition(SCHEDULED, "expire", EXPIRED),
    Transition(SCHEDULED, "cancel", CANCELED),
    Transition(SCHEDULED, "suppress", SUPPRESSED),
    Transition(QUEUED, "claim", SENDING),
    Transition(QUEUED, "postpone", SCHEDULED),
    Transition(QUEUED, "expire", EXPIRED),
    Transition(QUEUED, "cancel", CANCELED),
    Transition(QUEUED, "suppress", SUPPRESSED),
    Transition(QUEUED, "leave_incomplete", FAILED, "out of time with some parts accepted"),
    Transition(QUEUED, "doubt", UNCONFIRMED, "out of time with an earlier submit in doubt"),
    Transition(QUEUED, "accept", SENT, "the lost answer came before the resend began"),
    # what a submit came to
    Transition(SENDING, "requeue", QUEUED),
    Transition(SENDING, "resend", QUEUED),
    Transition(SENDING, "accept", SENT),
    Transition(SENDING, "refuse", REJECTED),
    Transition(SENDING, "exhaust", FAILED),
    Transition(SENDING, "leave_incomplete", FAILED),
    Transition(SENDING, "give_up", FAILED),
    Transition(SENDING, "expire", EXPIRED, "its turn came after its deadline, or no retry fits before it"),
    Transition(SENDING, "doubt", UNCONFIRMED),
    Transition(SENDING, "doubt_fails", FAILED, "the class says fail"),
    # what a late answer, or nothing, makes of a doubt
    Transition(UNCONFIRMED, "accept", SENT),
    Transition(UNCONFIRMED, "refuse", REJECTED),
    Transition(UNCONFIRMED, "exhaust", FAILED),
    Transition(UNCONFIRMED, "leave_incomplete", FAILED),
    Transition(UNCONFIRMED, "requeue", QUEUED),
    Transition(UNCONFIRMED, "expire", EXPIRED, "refused after all, and no retry fits before the deadline"),
    Transition(UNCONFIRMED, "doubt_fails", FAILED),
    Transition(FAILED, "accept", SENT, "error.code outcome_unknown"),
    # the network's word
    Transition(SENT, "deliver", DELIVERED),
    Transition(SENT, "undeliver", UNDELIVERED),
    Transition(SENT, "cut_off", UNKNOWN),
    Transition(UNCONFIRMED, "deliver", DELIVERED),
    Transition(UNCONFIRMED, "undeliver", UNDELIVERED),
    Transition(FAILED, "deliver", DELIVERED, "error.code outcome_unknown"),
    Transition(FAILED, "undeliver", UNDELIVERED, "error.code outcome_unknown"),
    Transition(UNKNOWN, "deliver", DELIVERED),
    Transition(UNKNOWN, "undeliver", UNDELIVERED),
    Transition(DELIVERED, "undeliver", UNDELIVERED, "the set of receipts grew"),
    Transition(UNDELIVERED, "deliver", DELIVERED, "the set of receipts grew"),
    Transition(DELIVERED, "retract", SENT, "a late answer names another carrier id"),
    Transition(UNDELIVERED, "retract", SENT, "a late answer names another carrier id"),
)

# (status before, event) -> status after. An event that has no row here changes nothing; `transition` says so.
TRANSITIONS: Final[dict[tuple[str, str], str]] = {(row.before, row.event): row.after for row in TABLE}


def transition(status: str, event: str) -> str | None:
    """The status after an event, or None where the event may not change a message in that status."""
    return TRANSITIONS.get((status, event))


def is_final(status: str) -> bool:
    """Whether the message is closed (a later receipt may still correct `unknown`, and `failed` in doubt)."""
    return status in FINAL


def origin_of(status: str) -> str:
    """Who said so: `carrier` or `gateway`."""
    return _ORIGIN.get(status, "gateway")


def diagram() -> str:
    """The table as a mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> queued: accepted", "    [*] --> scheduled: send_at, deferred"]
    labels: dict[tuple[str, str], list[str]] = {}
    for row in TABLE:
        words = labels.setdefault((row.before, row.after), [])
        if EVENTS[row.event] not in words:
            words.append(EVENTS[row.event])
    lines += [f"    {before} --> {after}: {', '.join(words)}" for (before, after), words in labels.items()]
    return "\n".join(lines)
