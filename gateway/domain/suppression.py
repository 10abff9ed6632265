"""Whether a recipient may be written to, and what the last check before a submit does to a message: pure.

A class says which consent it needs (contract section 3): `opt_out` heeds the stop list, `opt_in` also wants an entry
of the consent list; a class that says nothing (otp and transactional unless the policy says otherwise) heeds neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from gateway.domain import states
from gateway.domain.outcomes import CLOSED, DOUBT_MS, PARTS_INCOMPLETE, Change, Standing
from gateway.policy.rules.snapshot import Policy, TrafficClass
from scheduler.core.values import valueclass

OPTED_OUT: Final = "opted_out"
NO_CONSENT: Final = "no_consent"
SUPPRESSED_EVENT: Final = "message.suppressed"
FAILED_EVENT: Final = "message.failed"


@valueclass
class ConsentRules:
    """The classes that heed the stop list, and those among them that need consent."""

    stop_listed: tuple[str, ...] = ()
    opt_in: tuple[str, ...] = ()


NO_RULES: Final = ConsentRules()


def consent_rules(classes: Iterable[TrafficClass]) -> ConsentRules:
    """Which lists are looked at for which class."""
    known = list(classes)
    return ConsentRules(
        tuple(one.name for one in known if one.consent is not None),
        tuple(one.name for one in known if one.consent == "opt_in"),
    )


def rules_of(policy: Policy) -> ConsentRules:
    """The same of a policy."""
    return consent_rules(policy.classes.values())


def refusal(consent: str | None, *, opted_out: bool, opted_in: bool) -> str | None:
    """Why a message of a class with this `consent` may not be sent; None where it may."""
    if consent is None:
        return None
    if opted_out:
        return OPTED_OUT
    return NO_CONSENT if consent == "opt_in" and not opted_in else None


def suppress(standing: Standing, accepted_parts: int, reason: str, now_at: int) -> Change | None:
    """The change of a queued message that may not be sent any more; None where it is not waiting.

    The caller has won the message's next slot with a row of kind `suppress`. `suppressed` says that nothing was
    accepted and nothing is in doubt; otherwise the truth is another word, as when its time is over.
    """
    if standing.status != states.QUEUED:
        return None
    if standing.possible_duplicate:
        error = None if standing.error is None else dict(standing.error)
        return _change(standing, states.UNCONFIRMED, error, (standing.expires_at + DOUBT_MS, None, None))
    if accepted_parts > 0:
        told = {"code": PARTS_INCOMPLETE, "permanent": True}
        return _change(standing, states.FAILED, told, (None, now_at, FAILED_EVENT))
    return _change(standing, states.SUPPRESSED, {"code": reason, "permanent": True}, (None, now_at, SUPPRESSED_EVENT))


def _change(
    standing: Standing, status: str, error: dict[str, Any] | None, ends: tuple[int | None, int | None, str | None]
) -> Change:
    sweep_at, final_at, event = ends
    return Change(
        outcome=CLOSED,
        status=status,
        next_slot=standing.next_slot,
        attempts_spent=standing.attempts_spent,
        submit_begun=standing.submit_begun or status == states.UNCONFIRMED,
        possible_duplicate=standing.possible_duplicate,
        error=error,
        expiry=None,
        sweep_at=sweep_at,
        final_at=final_at,
        event=event,
    )
