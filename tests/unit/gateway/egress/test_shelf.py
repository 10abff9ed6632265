"""What is ready leaves in order; urgent messages pass what came just before, and only that (design section 5, I25)."""

from __future__ import annotations

from uuid import UUID

import pytest

from gateway.domain.ids import day_of
from gateway.egress.flights import Flight
from gateway.egress.shelf import PASS_S, Shelf
from smpp.protocol.pdu import SubmitSm

_ID = UUID("01890000-0000-7000-8000-000000000000")


def flight(claimed_mono: float, *, urgent: bool = False) -> Flight:
    return Flight(
        day_of(_ID), _ID, 0, "carrier", "otp" if urgent else "marketing", "+447700900123", False, 1, 1, 1,
        claimed_mono, 0.0, [(1, SubmitSm()), (2, SubmitSm())], 2, urgent=urgent,
    )  # fmt: skip


def test_order_of_claims() -> None:
    shelf, flights = Shelf(), [flight(at / 10) for at in range(3)]
    for one in flights:
        shelf.put(one)
    assert len(shelf) == 3 and shelf.parts == 6
    first = shelf.take()
    shelf.put_back(first)
    assert [shelf.take() for _ in range(3)] == flights and not shelf
    with pytest.raises(IndexError):
        shelf.take()


def test_urgent_ones_pass_what_came_just_before() -> None:
    shelf, old, young = Shelf(), flight(10.0), flight(10.0 + PASS_S)
    otp = flight(10.01 + PASS_S, urgent=True)
    for one in (old, young, otp):
        shelf.put(one)
    assert [shelf.take() for _ in range(3)] == [old, otp, young]


def test_others_do_not_starve() -> None:
    shelf, waiting = Shelf(), flight(1.0)
    shelf.put(waiting)
    taken: list[Flight] = []
    for step in range(40):  # one urgent message comes for each that leaves
        shelf.put(flight(1.0 + step * 0.01, urgent=True))
        taken.append(shelf.take())
    assert 0.1 < taken.index(waiting) * 0.01 <= PASS_S + 0.02


def test_old_ones_are_taken_away_from_both_lines() -> None:
    shelf, old, old_otp, young = Shelf(), flight(1.0), flight(1.1, urgent=True), flight(2.0)
    for one in (old, old_otp, young):
        shelf.put(one)
    assert set(shelf.take_claimed_before(1.5)) == {old, old_otp}
    assert shelf.take() is young
