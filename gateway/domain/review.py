"""What an operator decides about a message that may have been sent before its database was restored: pure."""

from __future__ import annotations

from typing import Final

from gateway.domain import outcomes, states
from gateway.domain.outcomes import Change, Standing

SEND_AGAIN: Final = "send_again"
NEVER_SENT: Final = "never_sent"
GIVE_UP: Final = "give_up"
VERDICTS: Final = (SEND_AGAIN, NEVER_SENT, GIVE_UP)


def settle(standing: Standing, verdict: str, now_at: int) -> Change | None:
    """The change that a verdict brings; None where the doubt is over already.

    `send_again` goes back into the queue flagged as a possible duplicate, `never_sent` unflagged; both only while a
    submit may still begin: what is out of time is given up. `give_up` fails as `outcome_unknown`, as the end of any
    doubt does; a later receipt corrects it.
    """
    if verdict not in VERDICTS:
        raise ValueError(f"no verdict: {verdict}")
    if standing.status != states.UNCONFIRMED:
        return None
    if verdict == GIVE_UP or now_at >= standing.expires_at:
        return _change(standing, states.FAILED, now_at)
    return _change(standing, states.QUEUED, now_at, doubled=standing.possible_duplicate or verdict == SEND_AGAIN)


def _change(standing: Standing, status: str, now_at: int, *, doubled: bool | None = None) -> Change:
    fails = status == states.FAILED
    return Change(
        outcome=outcomes.CLOSED,
        status=status,
        next_slot=standing.next_slot,
        attempts_spent=standing.attempts_spent,
        submit_begun=standing.submit_begun,
        possible_duplicate=standing.possible_duplicate if doubled is None else doubled,
        error={"code": outcomes.OUTCOME_UNKNOWN, "permanent": False} if fails else None,
        expiry=None,
        sweep_at=None if fails else standing.expires_at,
        final_at=now_at if fails else None,
        requeue=None if fails else outcomes.FRONT,
        event=outcomes.EVENTS[states.FAILED] if fails else None,
    )
