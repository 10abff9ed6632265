"""The carrier's words for a message's state, as they come and as we say them (SMPP 3.4, 5.2.28 and appendix B)."""

from __future__ import annotations

import re

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
    "enroute": "ENROUTE ENRT SCHEDULED SCHEDUL SCHEDLD BUFFRED BUFFERED BUFFERD QUEUED PENDING RETRY RETRYING"
    " TRANSIT INTRANSIT SENT SUBMITTED SUBMITD SUBMITED INPROGRESS PROGRESS DELIVEREDTOSMSC DELIVEREDTONETWORK"
    " DELIVEREDTOOPERATOR MESSAGEWAITING STAGED DEFERRED DEFERED DELAYED",
    "delivered": "DELIVRD DELIVERED DELIVERD DELIVERE DELIVRED DELIVR DELIV DELVRD DELIVD DLVRD DELVD DLVD"
    " SUCCESS SUCCESSFUL READ SEEN DELIVEREDTOTERMINAL DELIVEREDTOHANDSET DELIVEREDTOPHONE DELIVEREDTODEVICE",
    "expired": "EXPIRED EXPIRD EXPIRE EXPRD EXPD TIMEOUT TIMEDOUT",
    "deleted": "DELETED DELETD DELETE DELTD CANCELED CANCELLED CANCELD CANCEL",
    "undeliverable": "UNDELIV UNDELIVERABLE UNDELIVERED UNDELIVRD UNDELIVERD UNDELVRD UNDLVRD UNDELVD UNDLV UNDL FAILED"
    " FAIL FAILD FAILURE NOTDELIVERED NOTDELIVRD DELIVERYFAILED DELIVERYFAILURE"
    " DELIVERYIMPOSSIBLE NONDELIVERED NONDELIVRD NONDELIVERY SYSERR NOCRED NOCREDIT NOCREDITS NOROUTE NOTSENT",
    "accepted": "ACCEPTD ACCEPTED ACCEPT ACCPTD ACCEPTE ACK ACKED",
    "unknown": "UNKNOWN UNKNOWNSTATE UNKNWN UNKNOWNST DELIVERYUNCERTAIN",
    "rejected": "REJECTD REJECTED REJECT REJCTD REJTD REJD NACK NACKED BLOCKED BARRED BLIST BLACKLIST BLACKLISTED",
    "skipped": "SKIPPED SKIPD SKIPPD",
}
# A carrier's spelling of its own; none for delivered, for a guess must never close a message as arrived.
_BEGINNINGS = {
    "UNDEL": "undeliverable",
    "FAIL": "undeliverable",
    "EXPIR": "expired",
    "REJEC": "rejected",
    "DELET": "deleted",
    "ACCEP": "accepted",
    "ENROU": "enroute",
    "BUFF": "enroute",
    "SKIP": "skipped",
}
_SIGNS = str.maketrans("", "", " _-.")
_BETWEEN = re.compile(r"[\s,;:/|]")  # the state and what a carrier adds to it, such as `DELIVRD/000`
BY_WORD = {word: state for state, words in _WORDS.items() for word in words.split()}


def state_of_text(text: str) -> str:
    """Our word for the receipt's, or for its number; one that says nothing to us is `unknown`, which is not final."""
    usual = BY_WORD.get(text.upper())
    if usual is not None:
        return usual
    whole, first = text.translate(_SIGNS).upper(), _BETWEEN.split(text.strip(), 1)[0].translate(_SIGNS).upper()
    known = BY_WORD.get(whole) or BY_WORD.get(first)
    if known is not None:
        return known
    bare = first.strip("\"'()[]")
    if bare.isascii() and bare.isdigit() and len(bare) <= 3:
        return BY_NUMBER.get(int(bare), "unknown")
    return next((state for start, state in _BEGINNINGS.items() if bare.startswith(start)), "unknown")
