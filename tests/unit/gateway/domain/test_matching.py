"""Which accepted part a receipt speaks of (design section 4; cases R08, dialects of R13)."""

from __future__ import annotations

from datetime import date
from uuid import UUID

import pytest

from gateway.domain.matching import Candidate, choose, next_look_ms, same_number

DAY = date(2026, 11, 30)


def candidate(n: int, recipient: str = "+447700900123", sent_at: int = 0) -> Candidate:
    return Candidate(DAY, UUID(int=n), 0, 1, recipient, sent_at)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("+447700900123", "447700900123", True),
        ("+447700900123", "07700900123", True),
        ("+447700900123", "00447700900123", True),
        ("+447700900123", "447700900124", False),
        ("+447700900123", "123", False),
        ("+447700900123", "", False),
    ],
)
def test_spellings_of_one_handset(one: str, other: str, same: bool) -> None:
    assert same_number(one, other) is same


def test_where_an_id_is_used_again_the_recipient_decides() -> None:
    ours, others = candidate(1, sent_at=5), candidate(2, "+447700900999", sent_at=9)
    assert choose([ours, others], "447700900123") == ours


def test_the_newest_with_that_recipient_stands() -> None:
    old, new = candidate(1, sent_at=5), candidate(2, sent_at=9)
    assert choose([new, old], "447700900123") == new


def test_another_handset_is_never_taken() -> None:
    assert choose([candidate(1)], "447700900555") is None


@pytest.mark.parametrize("recipient", [None, "", "60070", "Carrier"])
def test_a_receipt_that_names_no_handset_is_taken_by_its_id(recipient: str | None) -> None:
    assert choose([candidate(1)], recipient) == candidate(1)


def test_no_candidate() -> None:
    assert choose([], "447700900123") is None


def test_back_off_of_unmatched_receipts() -> None:
    assert next_look_ms(0) == next_look_ms(9_999) == 200
    assert next_look_ms(10_000) == 1_000
    assert next_look_ms(70_000) == 60_000
    assert next_look_ms(10**9) == 6 * 3_600_000
