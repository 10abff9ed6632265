"""The judge of receipt storms: carrier's journal x receipts x messages x callback journal (I3, I4, I28, I30).

Pure: it takes what each side wrote down and names every broken promise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from loadtests.callback_sink import TakenCallback

# Words of appendix B as the ledger keeps them, worst final last.
STATES: Final = {
    "ENROUTE": "enroute",
    "ACCEPTD": "accepted",
    "DELIVRD": "delivered",
    "UNDELIV": "undeliverable",
    "EXPIRED": "expired",
}
FINAL_WORDS: Final = frozenset({"delivered", "undeliverable", "expired"})
DECIDED: Final = frozenset({"delivered", "undelivered"})


@dataclass(frozen=True, slots=True)
class TakenReceipt:
    """A receipt that we answered with ESME_ROK, as the carrier noted it."""

    carrier_id: str
    stat: str


@dataclass(frozen=True, slots=True)
class KeptReceipt:
    """A row of the inbox; `message` is null where it is bound to none."""

    carrier_id: str
    state: str
    message: str | None


@dataclass(frozen=True, slots=True)
class EndedMessage:
    """A message row at the end of the run; `version` is the `seq` of its last callback."""

    id: str
    status: str
    version: int
    network_state: str | None


@dataclass(frozen=True, slots=True)
class StormEvidence:
    """What every side wrote down. `named` maps a carrier's id to the message that its answer was for."""

    taken: Sequence[TakenReceipt]
    kept: Sequence[KeptReceipt]
    messages: Sequence[EndedMessage]
    callbacks: Sequence[TakenCallback]
    named: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class StormFindings:
    """Counts for the table and every violation by name."""

    receipts: int = 0
    kept: int = 0
    decided: int = 0
    callbacks: int = 0
    doubled_callbacks: int = 0
    violations: list[str] = field(default_factory=list)

    def say(self, culprits: Sequence[str], what: str) -> None:
        """One violation with how many and the first three."""
        if culprits:
            self.violations.append(f"{len(culprits)} {what}: {', '.join(culprits[:3])}")


def judge_storm(evidence: StormEvidence) -> StormFindings:
    """Compare the journals and name every promise that was broken."""
    found = StormFindings(receipts=len(evidence.taken), kept=len(evidence.kept), callbacks=len(evidence.callbacks))
    _check_receipts(found, evidence)
    _check_states(found, evidence)
    _check_callbacks(found, evidence)
    return found


def _check_receipts(found: StormFindings, evidence: StormEvidence) -> None:
    """Answered means kept; kept means bound, and to the right message."""
    kept = {(one.carrier_id, one.state) for one in evidence.kept}
    lost = [one for one in evidence.taken if (one.carrier_id, STATES[one.stat]) not in kept]
    found.say([f"{one.carrier_id} {one.stat}" for one in lost], "answered receipts lost")
    named = evidence.named
    strays = [one.carrier_id for one in evidence.kept if one.message is None and one.carrier_id in named]
    found.say(strays, "receipts that fit a message and are bound to none")
    wrong = [one.carrier_id for one in evidence.kept if one.message and named.get(one.carrier_id) != one.message]
    found.say(wrong, "receipts bound to another message")


def _check_states(found: StormFindings, evidence: StormEvidence) -> None:
    """The network column is the fold of what was kept: a final word decides, delivered outranks."""
    words: dict[str, set[str]] = defaultdict(set)
    for one in evidence.kept:
        if one.message is not None:
            words[one.message].add(one.state)
    for message in evidence.messages:
        finals = words[message.id] & FINAL_WORDS
        if message.status in DECIDED:
            found.decided += 1
        if finals and message.status not in DECIDED:
            found.say([f"{message.id} ({message.status})"], "messages with a final receipt that are not decided")
        if message.status == "delivered" and "delivered" not in finals:
            found.say([message.id], "messages called delivered that no receipt says so")
        if "delivered" in finals and message.status != "delivered":
            found.say([f"{message.id} ({message.status})"], "delivered messages that are called otherwise")


def _check_callbacks(found: StormFindings, evidence: StormEvidence) -> None:
    """Every decided message was told, at its last version; a repeat has the same webhook-id, another notice has not."""
    by_notice: dict[tuple[str, int], set[str]] = defaultdict(set)
    by_id: dict[str, set[tuple[str, int]]] = defaultdict(set)
    last: dict[str, TakenCallback] = {}
    for one in evidence.callbacks:
        by_notice[one.message, one.seq].add(one.webhook_id)
        by_id[one.webhook_id].add((one.message, one.seq))
        if one.message not in last or one.seq > last[one.message].seq:
            last[one.message] = one
    found.doubled_callbacks = len(evidence.callbacks) - len(by_notice)
    decided = [message for message in evidence.messages if message.status in DECIDED]
    found.say([m.id for m in decided if m.id not in last], "decided messages without a callback")
    told = [m for m in decided if m.id in last]
    wrong = [m.id for m in told if (last[m.id].seq, last[m.id].status) != (m.version, m.status)]
    found.say(wrong, "messages whose last callback does not tell their end")
    found.say([notice[0] for notice, ids in by_notice.items() if len(ids) > 1], "notices repeated with another id")
    found.say([one for one, notices in by_id.items() if len(notices) > 1], "webhook-ids used for two notices")
