"""The carrier's words for a message's state, as they come and as we say them (SMPP 3.4, 5.2.28 and appendix B)."""

from __future__ import annotations

# message_state of the TLV; 0 and 9 are SMPP 5.0's.
BY_NUMBER = {
    0: "enroute",
    1: "enroute",
    2: "delivered",
    3: "expired",
    4: "deleted",
    5: "undeliverable",
    6: "accepted",
    7: "unknown",
    8: "rejected",
    9: "skipped",
}

FINAL = frozenset({"delivered", "undeliverable", "expired", "deleted", "rejected"})

_WORDS = {
    "enroute": "ENROUTE SCHEDULED SCHEDUL BUFFRED BUFFERED BUFFERD QUEUED PENDING RETRY TRANSIT SENT",
    "delivered": "DELIVRD DELIVERED DELIVERD DELIV DELVRD DLVRD SUCCESS",
    "expired": "EXPIRED EXPIRD EXPIRE TIMEOUT",
    "deleted": "DELETED DELETD DELETE CANCELED CANCELLED",
    "undeliverable": "UNDELIV UNDELIVERABLE UNDELIVERED UNDELIVRD UNDELVRD UNDLVRD UNDELVD UNDL FAILED FAIL FAILURE",
    "accepted": "ACCEPTD ACCEPTED ACCEPT ACKED",
    "unknown": "UNKNOWN UNKNOWNSTATE UNKNWN",
    "rejected": "REJECTD REJECTED REJECT BLOCKED",
    "skipped": "SKIPPED SKIPD",
}
BY_WORD = {word: state for state, words in _WORDS.items() for word in words.split()}


def state_of_word(word: str) -> str:
    """Our word for the receipt's; an unlisted one is `unknown`, which is not final, so nothing closes by mistake."""
    return BY_WORD.get(word.upper(), "unknown")
