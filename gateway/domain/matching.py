"""Which message a receipt speaks of: pure choices over candidates of the same carrier id (design section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final
from uuid import UUID

YOUNG_MS: Final = 10_000
YOUNG_EVERY_MS: Final = 200
FIRST_BACK_OFF_MS: Final = 1_000
LAST_BACK_OFF_MS: Final = 6 * 3_600_000
# Fewer digits than this do not name a handset: a short code or a placeholder that a carrier echoes.
_TELLING_DIGITS: Final = 7


@dataclass(frozen=True, slots=True)
class Candidate:
    """An accepted part that carries the id in question."""

    day: date
    message_id: UUID
    slot: int
    part: int
    recipient: str
    sent_at: int


def same_number(one: str, other: str) -> bool:
    """Whether two spellings name one handset: national and international forms share their last digits."""
    ours, theirs = (_digits(number).lstrip("0") for number in (one, other))
    shorter, longer = sorted((ours, theirs), key=len)
    return len(shorter) >= _TELLING_DIGITS and longer.endswith(shorter)


def choose(candidates: Sequence[Candidate], recipient: str | None) -> Candidate | None:
    """The accepted part that a receipt is about; None where no candidate fits.

    Where a carrier uses an id again the recipient decides, and the newest with that recipient stands. A receipt whose
    recipient does not name a handset is taken by the newest.
    """
    telling = recipient is not None and len(_digits(recipient)) >= _TELLING_DIGITS
    if telling and recipient is not None:
        fitting = [one for one in candidates if same_number(one.recipient, recipient)]
    else:
        fitting = list(candidates)
    return max(fitting, key=lambda one: (one.sent_at, one.message_id.int, one.slot), default=None)


def next_look_ms(age_ms: int) -> int:
    """How long an unmatched receipt of this age waits before it is looked at again (design section 4)."""
    if age_ms < YOUNG_MS:
        return YOUNG_EVERY_MS
    return min(max(FIRST_BACK_OFF_MS, age_ms - YOUNG_MS), LAST_BACK_OFF_MS)


def _digits(number: str) -> str:
    return "".join(filter(str.isdigit, number))
