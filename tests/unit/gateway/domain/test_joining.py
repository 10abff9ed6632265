"""Long messages put together whatever the order of their parts."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.joining import Coding, Part, settle
from smpp.text.gsm import NO_SHIFT
from smpp.text.reading import decode

TIMEOUT = 600_000


def part(row: int, number: int, octets: bytes, total: int = 3, **values: object) -> Part:
    coding = (values.pop("data_coding", 0), NO_SHIFT)
    given_values = {"coding": coding, "received_at": 1_000 + row} | values
    return Part(row, number, total, octets, **given_values)  # type: ignore[arg-type]


def text(octets: bytes, coding: Coding) -> str:
    return decode(octets, coding[0], shift=coding[1])


def test_every_order_gives_the_same_text() -> None:
    for order in itertools.permutations([(1, b"one "), (2, b"two "), (3, b"three")]):
        parts = [part(row, number, octets) for row, (number, octets) in enumerate(order, 1)]
        settled = settle(parts, 2_000, TIMEOUT)
        assert [message.text(text) for message in settled.messages] == ["one two three"]
        assert settle(parts[:2], 2_000, TIMEOUT).messages == []


def test_a_repeated_part_counts_once_even_after_the_message_is_done() -> None:
    parts = [part(1, 1, b"a", 2), part(2, 1, b"a", 2), part(3, 2, b"b", 2)]
    settled = settle(parts, 2_000, TIMEOUT)
    assert settled.doubles == [2] and [message.row_ids for message in settled.messages] == [[1, 3]]
    again = settle(
        [part(1, 1, b"a", 2, done=True), part(3, 2, b"b", 2, done=True), part(4, 2, b"b", 2)], 2_000, TIMEOUT
    )
    assert again.doubles == [4] and again.messages == []
    # A double that is done does not make a double of the part that still waits.
    waiting = settle([part(1, 1, b"a", 2), part(2, 1, b"a", 2, done=True), part(3, 2, b"b", 2)], 2_000, TIMEOUT)
    assert waiting.doubles == [] and [message.row_ids for message in waiting.messages] == [[1, 3]]


def test_a_reference_that_comes_round_again_begins_the_next_message() -> None:
    parts = [part(1, 1, b"old"), part(2, 2, b"er"), part(3, 1, b"n"), part(4, 3, b"w"), part(5, 2, b"e")]
    settled = settle(parts, 2_000, TIMEOUT)
    assert [message.text(text) for message in settled.messages] == ["older", "new"]
    assert [message.complete for message in settled.messages] == [False, True]


def test_what_lacks_a_part_is_handed_over_after_the_time_and_not_before() -> None:
    parts = [part(1, 3, b"c", received_at=5_000), part(2, 1, b"a", received_at=4_000)]
    assert settle(parts, 4_000 + TIMEOUT - 1, TIMEOUT).messages == []
    (message,) = settle(parts, 4_000 + TIMEOUT, TIMEOUT).messages
    assert (message.complete, message.begun_at, message.text(text)) == (False, 4_000, "ac")


def test_a_cut_through_a_surrogate_pair_or_an_escape_heals() -> None:
    emoji = "hi 😀".encode("utf-16-be")
    parts = [part(1, 2, emoji[-2:], 2, data_coding=8), part(2, 1, emoji[:-2], 2, data_coding=8)]
    assert settle(parts, 2_000, TIMEOUT).messages[0].text(text) == "hi 😀"
    euro = [part(1, 1, b"5\x1b", 2), part(2, 2, b"e", 2)]
    assert settle(euro, 2_000, TIMEOUT).messages[0].text(text) == "5€"


@given(st.text(min_size=3, max_size=60), st.integers(2, 5), st.randoms(use_true_random=False))
def test_any_text_in_any_cut_and_order(written: str, total: int, chance: object) -> None:
    octets = written.encode("utf-16-be", "replace")
    size = -(-len(octets) // total)
    cuts = [octets[n * size : (n + 1) * size] for n in range(total)]
    parts = [(number, cut) for number, cut in enumerate(cuts, 1)] * 2
    chance.shuffle(parts)  # type: ignore[attr-defined]
    settled = settle([part(row, n, cut, total, data_coding=8) for row, (n, cut) in enumerate(parts, 1)], 2_000, TIMEOUT)
    (message,) = settled.messages
    assert message.text(text) == octets.decode("utf-16-be", "replace")
    assert len(settled.doubles) == total
