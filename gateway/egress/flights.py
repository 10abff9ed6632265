"""A claimed message on its way through one session: its submit_sm, what was written, what came back.

One flight is one row of `attempts`; it ends exactly once, as one `Closing` (design section 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final
from uuid import UUID

from gateway.domain import outcomes
from gateway.domain.outcomes import Refusal
from gateway.ledger.outcomes import Closing
from smpp.protocol.pdu import SubmitSm
from smpp.protocol.status import NAMES, Consequence

# Several parts may end differently: the word that says most about the message stands. Doubt outranks every refusal.
_RANK: Final = {
    outcomes.GIVEN_BACK: 0,
    outcomes.THROTTLED: 1,
    outcomes.LATER: 2,
    outcomes.HOLD: 3,
    outcomes.NEVER: 4,
    outcomes.UNSENDABLE: 5,
    outcomes.UNCONFIRMED: 6,
}
OUTCOME_OF: Final[Mapping[str, str]] = {
    "accepted": outcomes.ACCEPTED,
    "throttle": outcomes.THROTTLED,
    "later": outcomes.LATER,
    "never": outcomes.NEVER,
    "hold": outcomes.HOLD,
}


@dataclass(slots=True, eq=False)
class Flight:
    """One claimed message. `pdus` holds (part, submit_sm) of the parts still to send; parts count from 1."""

    day: date
    id: UUID
    slot: int
    provider: str
    class_name: str
    recipient: str
    is_retry: bool
    deadline_at: int
    expires_at: int
    queued_at: int
    claimed_mono: float
    spacing_s: float
    pdus: list[tuple[int, SubmitSm]]
    parts_total: int
    reference: int | None = None
    route: str = ""
    urgent: bool = False  # of a class that may wait for seconds only
    accepted: set[int] = field(default_factory=set)
    carrier_ids: list[tuple[int, str]] = field(default_factory=list)
    doubts: set[int] = field(default_factory=set)
    refused: dict[int, int] = field(default_factory=dict)
    position: int = 0
    due_mono: float = 0.0
    begun_mono: float = 0.0
    pending: int = 0
    written_at: int | None = None
    outcome: str = outcomes.GIVEN_BACK
    status: int | None = None
    consequence: Consequence | None = None
    fault: str | None = None
    stopped: bool = False
    ended: bool = False

    @property
    def begun(self) -> bool:
        """Whether any part of this slot was handed to the socket."""
        return self.position > 0

    @property
    def left(self) -> int:
        """Parts that this slot has still to write."""
        return 0 if self.stopped else len(self.pdus) - self.position

    @property
    def is_over(self) -> bool:
        """Nothing more will be written and nothing is waited for."""
        return self.pending == 0 and self.left == 0

    def took(self, part: int, carrier_id: str) -> None:
        """The carrier accepted a part; an empty id cannot be matched with receipts."""
        self.accepted.add(part)
        self.doubts.discard(part)
        if carrier_id:
            self.carrier_ids.append((part, carrier_id))

    def refuse(self, part: int, status: int, consequence: Consequence) -> None:
        """The carrier refused a part: the others are not begun any more."""
        self.refused[part] = status
        self.doubts.discard(part)
        self.stopped = True
        self._say(OUTCOME_OF[consequence.kind], status, consequence)

    def doubt(self, part: int) -> None:
        """The answer of a part was lost."""
        self.doubts.add(part)

    def unwritten(self) -> None:
        """A part that was handed over provably never left our buffer."""
        self.stopped = True

    def reject_itself(self, fault: str) -> None:
        """The message cannot be put on the wire: `fault` is the error code that says why."""
        self.fault, self.stopped = fault, True
        self._say(outcomes.UNSENDABLE, None, None)

    def run_out(self) -> None:
        """Its time is over before its (next) part began."""
        self.stopped = True
        if not self.begun or self.outcome == outcomes.GIVEN_BACK:
            self.outcome = outcomes.CLOSED

    def closing(self, now_at: int) -> Closing:
        """How the slot ended, for the ledger."""
        self.ended = True
        outcome = self.outcome
        if len(self.accepted) >= self.parts_total:
            outcome = outcomes.ACCEPTED
        elif self.doubts:
            outcome = outcomes.UNCONFIRMED
        touched = self.accepted or self.doubts or self.refused
        refusal = None
        if self.status is not None and outcome != outcomes.ACCEPTED:
            refusal = Refusal(NAMES.get(self.status, "carrier_code"), self.status)
        return Closing(
            day=self.day,
            id=self.id,
            slot=self.slot,
            outcome=outcome,
            provider=self.provider,
            recipient=self.recipient,
            parts_total=self.parts_total,
            outcome_at=now_at,
            written_at=self.written_at if touched else None,
            command_status=0 if outcome == outcomes.ACCEPTED else self.status,
            refusal=refusal,
            delay_ms=self.consequence.delay_ms if self.consequence else None,
            repeats_max=self.consequence.repeats_max if self.consequence else None,
            fault=self.fault,
            accepted_parts=len(self.accepted),
            carrier_ids=self.carrier_ids,
            parts=self._parts() if self.parts_total > 1 and touched else None,
        )

    def late(self, part: int, status: int, consequence: Consequence, carrier_id: str, now_at: int) -> Closing:
        """An answer that came after the slot was closed in doubt."""
        taken = consequence.kind == "accepted"
        if taken:
            self.took(part, carrier_id)
        return Closing(
            day=self.day,
            id=self.id,
            slot=self.slot,
            outcome=OUTCOME_OF[consequence.kind],
            provider=self.provider,
            recipient=self.recipient,
            parts_total=self.parts_total,
            outcome_at=now_at,
            written_at=self.written_at,
            command_status=status,
            refusal=None if taken else Refusal(NAMES.get(status, "carrier_code"), status),
            delay_ms=consequence.delay_ms,
            repeats_max=consequence.repeats_max,
            accepted_parts=len(self.accepted),
            carrier_ids=[(part, carrier_id)] if taken else [],
            late=True,
            late_part=part,
        )

    def _say(self, outcome: str, status: int | None, consequence: Consequence | None) -> None:
        if _RANK[outcome] >= _RANK.get(self.outcome, 0):
            self.outcome, self.status, self.consequence = outcome, status, consequence

    def _parts(self) -> dict[str, Any]:
        """State of the parts over all slots so far: the next slot sends only what is not accepted."""
        return {
            "reference": self.reference,
            "total": self.parts_total,
            "accepted": sorted(self.accepted),
            "doubt": sorted(self.doubts),
            "refused": {str(part): f"0x{status:08x}" for part, status in sorted(self.refused.items())},
        }


@dataclass(slots=True, eq=False)
class Part:
    """The token of one submit_sm on the link."""

    flight: Flight
    number: int
    written_mono: float
    settled: bool = False
