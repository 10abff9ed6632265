"""The network's word on a message: a pure fold of the set of its receipts (contract section 2, "States").

Order of arrival, repeats and batching never matter: every choice below is the least element of an order over what the
receipts say, so two processes that saw the same set answer the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from gateway.domain import states
from scheduler.core.values import valueclass

# Final words of one part, worst first: the worst decides over parts, and breaks ties inside a part without times.
_SEVERITY: Final[Mapping[str, int]] = {
    "rejected": 0,
    "undeliverable": 1,
    "deleted": 2,
    "expired": 3,
    "delivered": 4,
}
FINAL_WORDS: Final = frozenset(_SEVERITY)
# Words that only a carrier can say that has taken the part; `unknown` and `skipped` may be about what it never saw.
PROVING_WORDS: Final = FINAL_WORDS | {"enroute", "accepted"}
# How far a word that is not final says the message came; `unknown` and `skipped` come after what was known before.
_PROGRESS: Final[Mapping[str, int]] = {"enroute": 0, "accepted": 1, "skipped": 2, "unknown": 3}
_NEVER: Final = 1 << 62

# Statuses whose `delivery` stays null for ever: nothing of them was accepted by a carrier.
UNTOUCHED: Final = frozenset({states.EXPIRED, states.CANCELED, states.SUPPRESSED, states.REJECTED})
OUTCOME_UNKNOWN: Final = "outcome_unknown"


@valueclass
class Fact:
    """One receipt of one part; instants are UTC ms, `done_at` on the carrier's clock."""

    part: int
    state: str
    provider: str
    error_code: str | None
    done_at: int | None
    received_at: int


@valueclass
class NetworkWord:
    """What the set of receipts comes to: `decided` once `state` is a final word for the whole message."""

    state: str
    decided: bool
    conflict: bool
    provider: str
    error_code: str | None
    done_at: int | None
    received_at: int

    def stored(self) -> dict[str, Any]:
        """The `delivery` column of the ledger (instants in UTC ms)."""
        return {
            "state": self.state,
            "provider": self.provider,
            "error_code": self.error_code,
            "done_at": self.done_at,
            "received_at": self.received_at,
            "conflict": self.conflict,
        }


@valueclass
class Settled:
    """A change of status that receipts or the cut-off bring; `corrected` where a final status changed."""

    status: str
    corrected: bool


def fold(facts: Iterable[Fact], parts_expected: int, *, cut_off: bool) -> NetworkWord | None:
    """The network's word on a message of `parts_expected` parts; None while no receipt says anything.

    `cut_off`: nothing more is waited for, so a bad final of one part decides although others are silent.
    """
    told = [fact for fact in facts if fact.state in _SEVERITY or fact.state in _PROGRESS]
    if not told:
        return None
    finals: dict[int, list[Fact]] = {}
    for fact in told:
        if fact.state in _SEVERITY:
            finals.setdefault(fact.part, []).append(fact)
    conflict = any(len({fact.state for fact in of_part}) > 1 for of_part in finals.values())
    if not finals:
        return _word(min(told, key=_progress_order), decided=False, conflict=False)
    worst = min((_standing(of_part) for of_part in finals.values()), key=_worst_order)
    complete = len(finals) >= parts_expected
    if worst.state != "delivered":
        return _word(worst, decided=complete or cut_off, conflict=conflict)
    if complete:
        return _word(worst, decided=True, conflict=conflict)
    # Some parts are there and the others silent: the message as a whole is still on its way.
    others = [fact for fact in told if fact.state in _PROGRESS]
    if others:
        return _word(min(others, key=_progress_order), decided=False, conflict=conflict)
    return _word(replace(worst, state="enroute"), decided=False, conflict=conflict)


def settle(status: str, error_code: str | None, word: NetworkWord | None, *, cut_off: bool) -> Settled | None:
    """The status that the network's word brings, or None where it brings none.

    `failed` is corrected only where its outcome was in doubt; `expired`, `canceled`, `suppressed` and `rejected` never.
    """
    if status == states.FAILED and error_code != OUTCOME_UNKNOWN:
        return None
    if word is not None and word.decided:
        event = "deliver" if word.state == "delivered" else "undeliver"
        after = states.transition(status, event)
    else:
        after = states.transition(status, "cut_off") if cut_off else None
    if after is None or after == status:
        return None
    return Settled(after, corrected=states.is_final(status))


def retract(status: str, word: NetworkWord | None) -> Settled | None:
    """The status after receipts were taken from a message, or None where what is left decides the same."""
    if word is not None and word.decided:
        return settle(status, None, word, cut_off=False)
    after = states.transition(status, "retract")
    return None if after is None else Settled(after, corrected=True)


def _word(fact: Fact, *, decided: bool, conflict: bool) -> NetworkWord:
    return NetworkWord(
        state=fact.state,
        decided=decided,
        conflict=conflict,
        provider=fact.provider,
        error_code=fact.error_code,
        done_at=fact.done_at,
        received_at=fact.received_at,
    )


def _standing(finals: list[Fact]) -> Fact:
    """The final that stands for one part: delivered outranks, then the earliest carrier time."""
    return min(
        finals,
        key=lambda fact: (
            0 if fact.state == "delivered" else 1,
            _NEVER if fact.done_at is None else fact.done_at,
            _SEVERITY[fact.state],
            *_tie_break(fact),
        ),
    )


def _worst_order(fact: Fact) -> tuple[Any, ...]:
    # Among equally bad parts the latest carrier time stands: that is when the message as a whole was decided.
    return (_SEVERITY[fact.state], -(fact.done_at or 0), *_tie_break(fact))


def _progress_order(fact: Fact) -> tuple[Any, ...]:
    return (-_PROGRESS[fact.state], _NEVER if fact.done_at is None else fact.done_at, *_tie_break(fact))


def _tie_break(fact: Fact) -> tuple[str, int, str, int]:
    return (fact.error_code or "", fact.received_at, fact.provider, fact.part)
