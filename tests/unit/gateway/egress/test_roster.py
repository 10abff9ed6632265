"""Even shares of sessions between live processes, and who must be left alone."""

from __future__ import annotations

import pytest

from gateway.egress.roster import plan
from gateway.ledger.owners import Member

NOW = 100_000
FOUR = ["s1", "s2", "s3", "s4"]


def _member(id_: int, *holds: str, age_ms: int = 500, locked: bool = True, settled: bool = True) -> Member:
    return Member(id_, NOW - age_ms, locked, settled, holds)


def test_alone_it_takes_everything() -> None:
    orders = plan(FOUR, frozenset(), [_member(1)], 1, NOW)
    assert (set(orders.take), orders.room, orders.give_up) == (set(FOUR), 4, ())


def test_a_newcomer_gets_half() -> None:
    holder = plan(FOUR, frozenset(FOUR), [_member(1, *FOUR), _member(2)], 1, NOW)
    assert len(holder.give_up) == 2
    newcomer = plan(FOUR, frozenset(), [_member(1, *FOUR), _member(2)], 2, NOW)
    assert newcomer.room == 2


@pytest.mark.parametrize(
    ("sessions", "live", "cap"), [(4, 1, 4), (4, 2, 2), (4, 3, 2), (3, 2, 2), (5, 4, 2), (1, 3, 1)]
)
def test_shares_are_even(sessions: int, live: int, cap: int) -> None:
    names = [f"s{n}" for n in range(sessions)]
    members = [_member(n) for n in range(1, live + 1)]
    assert plan(names, frozenset(), members, 1, NOW).room == cap


def test_sessions_of_a_process_in_limbo_are_left_alone_until_it_is_dead() -> None:
    limbo = _member(2, "s3", "s4", locked=False, age_ms=5_000)
    orders = plan(FOUR, frozenset({"s1", "s2"}), [_member(1), limbo], 1, NOW)
    assert orders.take == () and orders.room == 0
    dead = _member(2, "s3", "s4", locked=False, age_ms=10_001)
    orders = plan(FOUR, frozenset({"s1", "s2"}), [_member(1), dead], 1, NOW)
    assert set(orders.take) == {"s3", "s4"} and orders.room == 2


def test_a_restarted_server_makes_nobody_dead() -> None:
    silent = _member(2, "s3", "s4", locked=False, age_ms=60_000, settled=False)
    assert plan(FOUR, frozenset({"s1", "s2"}), [_member(1), silent], 1, NOW).room == 0


def test_nothing_is_given_up_to_one_that_cannot_take_it() -> None:
    limbo = _member(2, locked=False, age_ms=5_000)
    assert plan(FOUR, frozenset(FOUR), [_member(1, *FOUR), limbo], 1, NOW).give_up == ()


def test_sessions_that_left_the_policy_are_given_up() -> None:
    orders = plan(["s1"], frozenset({"s1", "old"}), [_member(1)], 1, NOW)
    assert orders.give_up == ("old",)
