"""The fold of receipts: a pure function of their set (contract section 2; invariants I4, I5, I6)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain import states
from gateway.domain.folding import FINAL_WORDS, Fact, NetworkWord, fold, settle

WORDS = ("enroute", "accepted", "unknown", "skipped", "delivered", "undeliverable", "expired", "deleted", "rejected")


def fact(state: str, done_at: int | None = 1_000, part: int = 1, error: str | None = None) -> Fact:
    return Fact(part, state, "carrier-a", error, done_at, 5_000)


facts = st.builds(
    Fact,
    part=st.integers(1, 3),
    state=st.sampled_from(WORDS),
    provider=st.just("carrier-a"),
    error_code=st.sampled_from([None, "000", "011"]),
    done_at=st.one_of(st.none(), st.integers(1, 4)),
    received_at=st.integers(1, 4),
)


@given(st.lists(facts, max_size=5), st.integers(1, 3), st.booleans(), st.randoms())
def test_order_and_repeats_never_matter(told: list[Fact], parts: int, cut_off: bool, random: object) -> None:
    """I4: one outcome per set."""
    again = [*told, *told]
    random.shuffle(again)  # type: ignore[attr-defined]
    assert fold(again, parts, cut_off=cut_off) == fold(told, parts, cut_off=cut_off)


def test_every_order_of_five_receipts_has_one_outcome() -> None:
    """P8: all permutations of receipts of one part that disagree."""
    told = [
        fact("enroute", 1),
        fact("delivered", 9, error="000"),
        fact("undeliverable", 2, error="011"),
        fact("accepted", 3),
        fact("delivered", 7, error="001"),
    ]
    outcomes = {fold(order, 1, cut_off=False) for order in itertools.permutations(told)}
    (word,) = outcomes
    assert word is not None
    assert (word.state, word.done_at, word.conflict, word.decided) == ("delivered", 7, True, True)


@pytest.mark.parametrize("state", ["enroute", "accepted", "unknown", "skipped"])
def test_words_that_are_not_final_move_the_delivery_only(state: str) -> None:
    word = fold([fact(state)], 1, cut_off=False)
    assert word is not None and word.state == state and not word.decided
    assert settle(states.SENT, None, word, cut_off=False) is None


def test_a_late_lower_word_changes_nothing() -> None:
    """I5: `accepted` after `delivered` is history."""
    word = fold([fact("delivered", 10), fact("accepted", 33)], 1, cut_off=False)
    assert word is not None and word.state == "delivered" and not word.conflict


def test_among_other_finals_the_earliest_carrier_time_stands() -> None:
    word = fold([fact("expired", 30), fact("rejected", 40), fact("undeliverable", None)], 1, cut_off=False)
    assert word is not None and (word.state, word.conflict) == ("expired", True)


def test_delivered_over_all_submits_of_a_part_outranks() -> None:
    word = fold([fact("undeliverable", 1), fact("delivered", 99)], 1, cut_off=False)
    assert word is not None and word.state == "delivered" and word.conflict


def test_the_worst_part_decides_once_every_part_has_a_final() -> None:
    """I6, case R11: one of three parts fails; nothing is decided before the last final."""
    told = [fact("delivered", part=1), fact("undeliverable", part=3)]
    early = fold(told, 3, cut_off=False)
    assert early is not None and not early.decided and settle(states.SENT, None, early, cut_off=False) is None
    word = fold([*told, fact("delivered", part=2)], 3, cut_off=False)
    assert word is not None and (word.state, word.decided, word.conflict) == ("undeliverable", True, False)


def test_the_cut_off_decides_a_bad_part_and_leaves_silence_unknown() -> None:
    bad = fold([fact("undeliverable", part=1)], 2, cut_off=True)
    settled = settle(states.SENT, None, bad, cut_off=True)
    assert settled is not None and (settled.status, settled.corrected) == (states.UNDELIVERED, False)
    partly = fold([fact("delivered", part=1)], 2, cut_off=True)
    assert partly is not None and (partly.state, partly.decided) == ("enroute", False)
    settled = settle(states.SENT, None, partly, cut_off=True)
    assert settled is not None and settled.status == states.UNKNOWN


def test_a_message_is_never_shown_delivered_before_all_its_parts_are() -> None:
    word = fold([fact("delivered", part=1), fact("accepted", part=1), fact("delivered", part=2)], 3, cut_off=False)
    assert word is not None and word.state == "accepted"


DELIVERED = NetworkWord("delivered", True, False, "carrier-a", None, 1, 2)
UNDELIVERED = NetworkWord("rejected", True, False, "carrier-a", None, 1, 2)
SETTLED = {
    (states.SENT, None): (states.DELIVERED, False),
    (states.UNCONFIRMED, None): (states.DELIVERED, False),
    (states.UNKNOWN, None): (states.DELIVERED, True),
    (states.UNDELIVERED, None): (states.DELIVERED, True),
    (states.FAILED, "outcome_unknown"): (states.DELIVERED, True),
}


@pytest.mark.parametrize("status", sorted(states.ALL))
@pytest.mark.parametrize("error", [None, "outcome_unknown", "parts_incomplete"])
def test_which_statuses_a_final_receipt_moves(status: str, error: str | None) -> None:
    """I2, I3: our own ends are never rewritten by the network; doubt and `unknown` are corrected."""
    settled = settle(status, error, DELIVERED, cut_off=False)
    wanted = SETTLED.get((status, error if status == states.FAILED else None))
    assert (settled and (settled.status, settled.corrected)) == wanted


def test_a_final_that_turns_bad_is_a_correction() -> None:
    settled = settle(states.DELIVERED, None, UNDELIVERED, cut_off=True)
    assert settled is not None and (settled.status, settled.corrected) == (states.UNDELIVERED, True)


def test_the_cut_off_touches_only_sent() -> None:
    moved = {status for status in states.ALL if settle(status, None, None, cut_off=True) is not None}
    assert moved == {states.SENT}


def test_nothing_told_is_no_word() -> None:
    assert fold([], 1, cut_off=True) is None
    assert {"delivered", "undeliverable", "expired", "deleted", "rejected"} == FINAL_WORDS
