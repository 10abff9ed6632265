"""The table shows the worst seed of each check."""

from __future__ import annotations

from simulations.plays import Result
from simulations.table import failures, number, rows, show


def result(seed: int, *checks: tuple[str, str, float, float]) -> Result:
    return Result(f"1/{seed}", 1, seed, 100, list(checks))


def test_worst_value_counts_whichever_way_the_bound_lies() -> None:
    table = rows(
        [
            result(2, ("wait", "<=", 20, 15), ("used", ">=", 0.9, 0.8)),
            result(1, ("wait", "<=", 20, 10), ("used", ">=", 0.9, 0.95)),
        ]
    )
    assert [(row.check, row.worst, row.seeds, row.passed) for row in table] == [
        ("wait", 15, 2, True),
        ("used", 0.8, 2, False),
    ]
    assert failures([result(1, ("used", ">=", 0.9, 0.8))]) == ["1: used 0.8 (bound >= 0.9)"]
    assert "NOT REACHED" in show(table)


def test_bounds_that_differ_by_seed_compare_by_distance() -> None:
    (row,) = rows([result(1, ("expired", "<=", 100, 90)), result(2, ("expired", "<=", 50, 45))])
    assert (row.worst, row.bound) == (45, 50)


def test_numbers_are_short() -> None:
    assert [number(x) for x in (0, 20, 0.12345, 1234.5, float("inf"))] == ["0", "20", "0.1235", "1,234", "never"]
