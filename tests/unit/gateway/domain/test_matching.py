"""Which accepted part a receipt speaks of (design section 4; cases R08, dialects of R13)."""

from __future__ import annotations

from datetime import date
from typing import Any
from uuid import UUID

import pytest

from gateway.domain.matching import (
    Asked,
    Candidate,
    Stray,
    Submit,
    choose,
    could_be_about,
    could_own,
    is_doubtful,
    match_by_address,
    next_look_ms,
    other_base,
    same_number,
)

DAY = date(2026, 11, 30)
CUTOFF_MS = 72 * 3_600_000
AT = 1_796_000_000_000


def candidate(n: int, recipient: str = "+447700900123", sent_at: int = 0) -> Candidate:
    return Candidate(DAY, UUID(int=n), 0, 1, recipient, sent_at)


def asked(recipient: str | None = "447700900123", received_at: int = 100, **values: Any) -> Asked:
    return Asked(recipient, received_at, **values)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("+447700900123", "447700900123", True),
        ("+447700900123", "07700900123", True),
        ("+447700900123", "00447700900123", True),
        ("+447700900123", "447700900124", False),
        ("+447700900123", "123", False),
        ("+447700900123", "", False),
        ("+525512345678", "5215512345678", True),  # receipts and replies of Mexico's networks
        ("+5491112345678", "541112345678", True),
        ("+5511912345678", "551112345678", True),
        ("+5511912345678", "11912345678", True),
        ("+525512345678", "5215512345679", False),
        ("+5511912345678", "551212345678", False),
        ("+447700900123", "4417700900123", False),
    ],
)
def test_spellings_of_one_handset(one: str, other: str, same: bool) -> None:
    assert same_number(one, other) is same


def test_where_an_id_is_used_again_the_recipient_decides() -> None:
    ours, others = candidate(1, sent_at=5), candidate(2, "+447700900999", sent_at=9)
    assert choose([ours, others], asked()) == ours


def test_the_newest_with_that_recipient_stands() -> None:
    old, new = candidate(1, sent_at=5), candidate(2, sent_at=9)
    assert choose([new, old], asked()) == new


def test_another_handset_is_never_taken() -> None:
    assert choose([candidate(1)], asked("447700900555")) is None


@pytest.mark.parametrize("recipient", [None, "", "60070", "Carrier"])
def test_a_receipt_that_names_no_handset_is_taken_by_its_id(recipient: str | None) -> None:
    assert choose([candidate(1)], asked(recipient)) == candidate(1)


def test_what_left_long_after_the_receipt_came_cannot_be_meant() -> None:
    """A receipt that waited in the inbox must not be given to a later message that got the same id."""
    minute_ms = 60_000
    assert choose([candidate(1, sent_at=6 * minute_ms)], asked(received_at=0)) is None
    assert choose([candidate(1, sent_at=4 * minute_ms)], asked(received_at=0)) == candidate(1, sent_at=4 * minute_ms)
    old, new = candidate(1, sent_at=0), candidate(2, sent_at=2 * minute_ms)
    assert choose([old, new], asked(received_at=minute_ms)) == old


def test_the_carrier_s_own_time_tells_two_of_one_handset_apart() -> None:
    """The same id for the same handset on the next day: a late receipt of yesterday's is yesterday's."""
    old, new = candidate(1, sent_at=AT), candidate(2, sent_at=AT + 86_400_000)
    late = asked(received_at=AT + 90_000_000, submitted_at=AT + 40_000)
    assert choose([new, old], late) == old
    assert choose([new, old], asked(received_at=AT + 90_000_000)) == new


def test_a_carrier_in_another_zone_or_year_is_matched_all_the_same() -> None:
    """R13: times that the carrier tells never reject."""
    for wrong_at in (AT - 3 * 3_600_000, AT - 2 * 365 * 86_400_000, AT + 86_400_000):
        assert choose([candidate(1, sent_at=AT)], asked(received_at=AT + 60_000, submitted_at=wrong_at)) is not None


def test_our_own_reference_decides_among_equals() -> None:
    one, two = candidate(0x1_0007, sent_at=5), candidate(0x1_0008, sent_at=9)
    assert choose([one, two], asked(reference="7")) == one
    assert choose([one, two], asked(reference=UUID(int=0x1_0007).hex)) == one
    assert choose([one, two], asked(reference="4660")) == two, "a reseller's own number is only a hint"


def test_an_id_may_have_been_used_again_where_nothing_speaks_for_the_old_message() -> None:
    old = candidate(7, sent_at=AT)
    assert is_doubtful(asked(received_at=AT + 3_600_001), old)
    assert not is_doubtful(asked(received_at=AT + 3_600_000), old)
    assert not is_doubtful(asked(received_at=AT + 86_400_000, submitted_at=AT), old)
    assert not is_doubtful(asked(received_at=AT + 86_400_000, reference="7"), old)


def test_looks_back_off_by_their_tries_in_a_crowd() -> None:
    assert [next_look_ms(0, tries, crowded=True) for tries in (0, 1, 3, 5, 60)] == [200, 400, 1_600, 5_000, 5_000]
    assert next_look_ms(0, 60) == 200


def test_no_candidate() -> None:
    assert choose([], asked()) is None


def test_back_off_of_unmatched_receipts() -> None:
    assert next_look_ms(0) == next_look_ms(9_999) == 200
    assert next_look_ms(10_000) == 1_000
    assert next_look_ms(70_000) == 60_000
    assert next_look_ms(10**9) == 6 * 3_600_000


def submit(n: int, slot: int = 0, part: int = 1, **values: Any) -> Submit:
    base: dict[str, Any] = {
        "provider": "a",
        "recipient": "+447700900123",
        "sender": "ACME",
        "earliest_at": AT,
        "latest_at": AT + 10_000,
    }
    return Submit(DAY, UUID(int=n), slot, part, **(base | values))


def stray(n: int = 1, carrier_id: str | None = "X1", **values: Any) -> Stray:
    base: dict[str, Any] = {"provider": "a", "recipient": "447700900123", "sender": "acme", "received_at": AT + 500}
    return Stray(n, carrier_id=carrier_id, **(base | values))


def test_exactly_one_submit_that_fits_is_meant() -> None:
    ours = submit(1)
    others = [submit(2, provider="b"), submit(3, recipient="+447700900124"), submit(4, sender="OTHER")]
    assert match_by_address([stray()], [ours, *others], CUTOFF_MS) == {1: ours}


def test_two_messages_or_two_parts_are_never_guessed_between() -> None:
    assert match_by_address([stray()], [submit(1), submit(2)], CUTOFF_MS) == {}
    assert match_by_address([stray()], [submit(1, part=1), submit(1, part=2)], CUTOFF_MS) == {}
    assert match_by_address([stray()], [], CUTOFF_MS) == {}


def test_two_submits_of_one_part_take_two_ids_in_order() -> None:
    first, second = submit(1, slot=0), submit(1, slot=1, earliest_at=AT + 100)
    assert match_by_address([stray()], [second, first], CUTOFF_MS) == {1: first}
    both = match_by_address([stray(1, "X1"), stray(2, "X2")], [second, first], CUTOFF_MS)
    assert both == {1: first, 2: second}


def test_more_ids_than_submits_are_left_alone() -> None:
    assert match_by_address([stray(1, "X1"), stray(2, "X2")], [submit(1)], CUTOFF_MS) == {}
    assert match_by_address([stray(1, None), stray(2, None)], [submit(1)], CUTOFF_MS) == {}


def test_receipts_of_one_id_go_together() -> None:
    assert match_by_address([stray(1), stray(2)], [submit(1)], CUTOFF_MS) == {1: submit(1), 2: submit(1)}


@pytest.mark.parametrize(
    ("values", "fits"),
    [
        ({"received_at": AT - 1_000}, True),
        ({"received_at": AT - 1_001}, False),
        ({"received_at": AT + 10_000 + CUTOFF_MS}, True),
        ({"received_at": AT + 10_001 + CUTOFF_MS}, False),
        ({"submitted_at": AT - 300_000}, True),
        ({"submitted_at": AT - 300_001}, False),
        ({"submitted_at": AT + 310_000}, True),
        ({"submitted_at": AT + 310_001}, False),
        ({"done_at": AT - 300_000}, True),
        ({"done_at": AT - 300_001}, False),
        ({"done_at": AT + 86_400_000}, True),
        ({"sender": ""}, False),
        ({"recipient": "60070"}, False),
        ({"recipient": "07700900123"}, True),
    ],
)
def test_address_and_time_decide(values: dict[str, Any], fits: bool) -> None:
    assert could_be_about(stray(**values), submit(1), CUTOFF_MS) is fits


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ("ACME", "Acme", True),
        ("+447700900001", "447700900001", True),
        ("60070", "60070", True),
        ("+60070", "60070", True),
        ("60070", "60071", False),
        ("ACME", "ACME2", False),
    ],
)
def test_senders_are_names_codes_or_numbers(ours: str, theirs: str, same: bool) -> None:
    assert could_be_about(stray(sender=theirs), submit(1, sender=ours), CUTOFF_MS) is same


def test_only_what_was_claimed_before_may_own_a_receipt() -> None:
    assert could_own(stray(), "a", "+447700900123", AT)
    assert not could_own(stray(), "a", "+447700900123", AT + 1_501)
    assert not could_own(stray(), "b", "+447700900123", AT)
    assert not could_own(stray(), "a", "+447700900124", AT)


@pytest.mark.parametrize(
    ("carrier_id", "forms"),
    [
        ("255", ("597", "ff")),
        ("ff", ("255",)),
        ("0", ()),
        ("not-hex", ()),
        ("", ()),
        ("f" * 65, ()),
        ("\u0665", ()),
    ],
)
def test_an_id_in_the_other_base(carrier_id: str, forms: tuple[str, ...]) -> None:
    assert other_base(carrier_id) == forms


def test_the_whole_reference_names_the_submit_whatever_the_rest_says() -> None:
    named = stray(reference=UUID(int=1).hex, recipient="", received_at=0)
    assert could_be_about(named, submit(1), CUTOFF_MS)
    assert not could_be_about(stray(reference=UUID(int=2).hex), submit(1), CUTOFF_MS)


def test_a_short_reference_narrows_what_address_and_time_allow() -> None:
    """Two doubts at one handset: the number that the carrier gave back tells them apart."""
    submits = [submit(1), submit(2)]
    assert match_by_address([stray()], submits, CUTOFF_MS) == {}
    assert match_by_address([stray(reference="2")], submits, CUTOFF_MS) == {1: submits[1]}
    assert match_by_address([stray(reference="9")], submits, CUTOFF_MS) == {}
