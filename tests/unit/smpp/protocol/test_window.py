"""The window's slots, sequence numbers and tombstones (I20)."""

from __future__ import annotations

import pytest

from smpp.protocol.commands import GENERIC_NACK, QUERY_SM, SEQUENCE_MAX, SUBMIT_SM, response_of
from smpp.protocol.errors import WindowFull
from smpp.protocol.window import TOMBSTONES_MAX, Match, Window

SUBMITTED = response_of(SUBMIT_SM)


def test_sequences_begin_at_one_and_rise() -> None:
    window = Window(3)
    assert [window.open(SUBMIT_SM, token) for token in "abc"] == [1, 2, 3]
    assert (window.used, window.free) == (3, 0)
    with pytest.raises(WindowFull):
        window.open(SUBMIT_SM, "d")


def test_s06_answers_out_of_order() -> None:
    window = Window(3, first_sequence=71)
    for token in ("a", "b", "c"):
        window.open(SUBMIT_SM, token)
    assert [window.answer(sequence, SUBMITTED) for sequence in (73, 71, 72)] == [
        Match("c", late=False),
        Match("a", late=False),
        Match("b", late=False),
    ]


def test_i20_wrong_command_and_unknown_sequence_change_nothing() -> None:
    window = Window(3)
    window.open(SUBMIT_SM, "a")
    assert window.answer(1, response_of(QUERY_SM)) is None
    assert window.answer(2, SUBMITTED) is None
    assert window.used == 1
    assert window.answer(1, SUBMITTED) == Match("a", late=False)
    assert window.answer(1, SUBMITTED) is None, "a second answer to the same request"


def test_s24_wrap_skips_what_still_waits() -> None:
    window = Window(10, first_sequence=1)
    assert window.open(SUBMIT_SM, "old") == 1
    window._next = SEQUENCE_MAX
    assert window.open(SUBMIT_SM, "last") == SEQUENCE_MAX
    assert window.open(SUBMIT_SM, "next") == 2


def test_wrap_skips_tombstones_and_reserved() -> None:
    window = Window(10, first_sequence=SEQUENCE_MAX, reserved={1, 2})
    window.open(SUBMIT_SM, "a")
    window.written(SEQUENCE_MAX, 0.0)
    assert window.expire(5.0) == ["a"]
    window._next = SEQUENCE_MAX
    assert window.open(SUBMIT_SM, "b") == 3


def test_a_late_answer_finds_its_tombstone() -> None:
    window = Window(2)
    window.open(SUBMIT_SM, "a")
    window.written(1, 100.0)
    assert window.expire(99.9) == []
    assert window.expire(100.0) == ["a"]
    assert (window.free, window.tombstones) == (2, 1)
    assert window.answer(1, SUBMITTED) == Match("a", late=True)
    assert window.answer(1, SUBMITTED) is None
    assert window.tombstones == 0


def test_generic_nack_answers_any_command() -> None:
    window = Window(2)
    window.open(SUBMIT_SM, "a")
    assert window.answer(1, None) == Match("a", late=False)
    assert GENERIC_NACK != SUBMITTED


def test_what_was_never_written_does_not_expire() -> None:
    window = Window(3)
    window.open(SUBMIT_SM, "a")
    window.open(SUBMIT_SM, "b")
    window.written(1, 10.0)
    assert window.oldest_mono == 10.0
    assert window.expire(1e9) == ["a"]
    assert window.used == 1


def test_tombstones_are_bounded() -> None:
    window = Window(100)
    for _ in range(TOMBSTONES_MAX // 100 + 5):
        for number in range(100):
            window.written(window.open(SUBMIT_SM, number), 0.0)
        window.expire(1.0)
    assert window.tombstones == TOMBSTONES_MAX


def test_drain_hands_back_each_once() -> None:
    window = Window(3)
    window.open(SUBMIT_SM, "a")
    window.open(SUBMIT_SM, "b")
    assert window.drain() == [(1, "a"), (2, "b")]
    assert window.drain() == []
