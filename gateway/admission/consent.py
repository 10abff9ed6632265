"""The door's word on consent: the refusals of contract section 2 (pure)."""

from __future__ import annotations

from typing import Final

from gateway.admission.problems import Problem
from gateway.domain.suppression import NO_CONSENT, OPTED_OUT, refusal
from gateway.policy.rules.snapshot import TrafficClass

_PROBLEMS: Final = {
    OPTED_OUT: "The recipient asked not to be written to from this sender.",
    NO_CONSENT: "The class asks for consent, and the recipient has not given it.",
}


def consent_problem(traffic: TrafficClass, *, opted_out: bool, opted_in: bool) -> Problem | None:
    """Why a message of this class may not be sent to its recipient; None where it may."""
    reason = refusal(traffic.consent, opted_out=opted_out, opted_in=opted_in)
    if reason is None:
        return None
    return Problem(f"policy.{reason}", _PROBLEMS[reason], members={"class": traffic.name})
