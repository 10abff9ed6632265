"""P8, I4, I5: every order of up to five receipts, repeats included, around the answer and after the end: one outcome.

A sequence is what a tenant's message lives through: receipts before the answer wait in the inbox and are folded with
it, later ones one by one; after the end means after a receipt or the cut-off made the message final. The model here is
a message row and its receipts as the ledger keeps them, moved by the same pure functions.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

from gateway.domain import states
from gateway.domain.folding import Fact, NetworkWord, fold, settle

# (word, carrier's time): two finals that disagree, a repeat of a word at another time, and words on the way.
KINDS = (
    ("enroute", 1),
    ("accepted", 2),
    ("undeliverable", 3),
    ("delivered", 5),
    ("delivered", 4),
    ("expired", 3),
    ("unknown", 6),
)
ANSWER = -1
CUT_OFF = -2


class Life:
    """One message: its status, and the receipts that are bound to it."""

    def __init__(self, parts: int = 1) -> None:
        self.parts = parts
        self.status = states.QUEUED
        self.known: list[Fact] = []
        self.word: NetworkWord | None = None
        self.corrections = 0
        self.finals: list[str] = []

    def hear(self, fact: Fact) -> None:
        self.known.append(fact)
        self._fold(cut_off=False)

    def answer(self) -> None:
        self.status = states.SENT
        self._fold(cut_off=False)

    def cut_off(self) -> None:
        if self.status == states.SENT:
            self._fold(cut_off=True)

    def _fold(self, *, cut_off: bool) -> None:
        over = cut_off or (states.is_final(self.status) and self.status != states.FAILED)
        before = self.word
        self.word = fold(self.known, self.parts, cut_off=over)
        if before is not None and before.decided and before.state == "delivered" and self.parts == 1:
            assert self.word is not None and self.word.state == "delivered", "delivered outranks for good"
        settled = settle(self.status, None, self.word, cut_off=over)
        if settled is not None:
            assert (self.status, settled.status) in ALLOWED
            assert settled.corrected == states.is_final(self.status)
            self.status = settled.status
            self.corrections += settled.corrected
            self.finals.append(settled.status)


ALLOWED = {(row.before, row.after) for row in states.TABLE}


def facts_of(sequence: Sequence[int], part_of: Sequence[int] | None = None) -> Iterator[tuple[int, Fact | None]]:
    for place, kind in enumerate(sequence):
        if kind < 0:
            yield kind, None
            continue
        word, done_at = KINDS[kind]
        part = 1 if part_of is None else part_of[place]
        yield kind, Fact(part, word, "carrier-a", "000", done_at, 9)


def live(sequence: Sequence[int], part_of: Sequence[int] | None = None, parts: int = 1) -> Life:
    life = Life(parts)
    for kind, fact in facts_of(sequence, part_of):
        if fact is not None:
            life.hear(fact)
        elif kind == ANSWER:
            life.answer()
        else:
            life.cut_off()
    return life


def outcome(life: Life) -> tuple[str, NetworkWord | None]:
    return life.status, life.word


def test_every_sequence_of_up_to_five_receipts_around_the_answer_has_one_outcome_per_set() -> None:
    """All words with repetition (7 + 49 + ... + 16,807 = 19,607) x each place of the answer."""
    outcomes: dict[frozenset[int], set[tuple[str, NetworkWord | None]]] = defaultdict(set)
    sequences = 0
    for length in range(1, 6):
        for words in itertools.product(range(len(KINDS)), repeat=length):
            for place in {0, length // 2, length}:
                sequences += 1
                life = live((*words[:place], ANSWER, *words[place:]))
                outcomes[frozenset(words)].add(outcome(life))
                assert life.finals == [] or states.is_final(life.status)
    assert sequences > 50_000
    assert {len(found) for found in outcomes.values()} == {1}
    assert len(outcomes) == sum(1 for n in range(1, 6) for _ in itertools.combinations(KINDS, n))


def test_after_the_cut_off_the_same_set_ends_the_same() -> None:
    """The cut-off may fall anywhere after the answer: what was told before and after it decides, not when."""
    outcomes: dict[frozenset[int], set[tuple[str, NetworkWord | None]]] = defaultdict(set)
    for length in range(1, 5):
        for words in itertools.product(range(len(KINDS)), repeat=length):
            for place in range(length + 1):
                life = live((ANSWER, *words[:place], CUT_OFF, *words[place:]))
                outcomes[frozenset(words)].add(outcome(life))
    assert {len(found) for found in outcomes.values()} == {1}


def test_parts_out_of_order_end_the_same() -> None:
    """Every order of one receipt each for two parts and a correction, with answer and cut-off anywhere."""
    told = [(0, 1), (3, 1), (2, 2), (3, 2)]
    outcomes = set()
    for order in itertools.permutations(told):
        for answered, cut in itertools.combinations_with_replacement(range(len(order) + 1), 2):
            sequence = [*order[:answered], (ANSWER, 0), *order[answered:cut], (CUT_OFF, 0), *order[cut:]]
            life = live([kind for kind, _ in sequence], [part for _, part in sequence], parts=2)
            outcomes.add(outcome(life))
    assert len(outcomes) == 1
    ((status, word),) = outcomes
    assert status == states.DELIVERED and word is not None and word.conflict
