"""A receipt without a known carrier id has one message or none (design section 4, "Ambiguity is a state")."""

from __future__ import annotations

from datetime import date
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.matching import Stray, Submit, could_be_about, match_by_address

CUTOFF_MS = 600_000
DAY = date(2026, 11, 30)
NUMBERS = ("+447700900123", "+447700900124")
times = st.integers(0, 2_000_000)
submits = st.lists(
    st.builds(
        lambda n, slot, part, number, at, span: Submit(
            DAY, UUID(int=n), slot, part, "a", NUMBERS[number], "ACME", at, at + span
        ),
        st.integers(1, 4),
        st.integers(0, 1),
        st.integers(1, 2),
        st.integers(0, 1),
        times,
        st.integers(0, 20_000),
    ),
    max_size=6,
    unique_by=lambda one: (one.message_id, one.slot, one.part),
)
strays = st.lists(
    st.builds(
        lambda n, carrier_id, number, received, submitted: Stray(
            n, "a", carrier_id, NUMBERS[number][1:], "ACME", received, submitted
        ),
        st.integers(1, 50),
        st.sampled_from([None, "X1", "X2", "X3"]),
        st.integers(0, 1),
        times,
        st.none() | times,
    ),
    max_size=6,
    unique_by=lambda one: one.id,
)


@given(strays, submits)
def test_never_ambiguous_and_never_more_than_one(receipts: list[Stray], known: list[Submit]) -> None:
    found = match_by_address(receipts, known, CUTOFF_MS)
    by_id = {one.id: one for one in receipts}
    owners: dict[Submit, set[object]] = {}
    for receipt_id, taken in found.items():
        receipt = by_id[receipt_id]
        fitting = [one for one in known if could_be_about(receipt, one, CUTOFF_MS)]
        assert taken in fitting
        assert {(one.message_id, one.part) for one in fitting} == {(taken.message_id, taken.part)}
        owners.setdefault(taken, set()).add(receipt.carrier_id or receipt.id)
    assert all(len(ids) == 1 for ids in owners.values())


@given(strays, submits, st.randoms())
def test_the_order_in_which_they_are_read_changes_nothing(
    receipts: list[Stray], known: list[Submit], chance: object
) -> None:
    first = match_by_address(receipts, known, CUTOFF_MS)
    chance.shuffle(receipts)  # type: ignore[attr-defined]
    chance.shuffle(known)  # type: ignore[attr-defined]
    assert match_by_address(receipts, known, CUTOFF_MS) == first


@given(strays, submits, submits)
def test_more_that_it_could_be_about_never_moves_a_receipt_to_another_message(
    receipts: list[Stray], known: list[Submit], more: list[Submit]
) -> None:
    places = {(one.message_id, one.slot, one.part) for one in known}
    wider = known + [one for one in more if (one.message_id, one.slot, one.part) not in places]
    before = match_by_address(receipts, known, CUTOFF_MS)
    after = match_by_address(receipts, wider, CUTOFF_MS)
    for receipt_id in before.keys() & after.keys():
        assert before[receipt_id].message_id == after[receipt_id].message_id
