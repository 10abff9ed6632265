"""The bench's table: medians of rounds, rows that say why they are empty, sizes of its loads."""

from __future__ import annotations

from loadtests.peers.loads import BATCHES, WINDOW, Came, standard
from loadtests.peers.table import markdown, median, medians

LOADS = standard(20_000, 1_000_000, (1, 10_000))
ABOUT = {
    "at": "2026-11-30 12:00 UTC", "commit": "abc", "machine": "2 cores", "tools": "C", "rounds": 3, "count": 20_000,
    "callbacks": 1,
}  # fmt: skip


def came(gateway: str, load: str, per_s: float, **figures: object) -> Came:
    waits = {"otp": {"count": 10, "p50": per_s, "p99": per_s * 2, "max": per_s * 3}}
    return Came(gateway, load, accepted=10, carrier_per_s=per_s, waits_ms=waits, **figures)  # type: ignore[arg-type]


def test_each_figure_is_the_median_of_its_rounds() -> None:
    rows = [came("Kannel", WINDOW, per_s, memory_mb=mb) for per_s, mb in ((10, 3), (400, 1), (20, 2))]
    found = median(rows)
    assert (found.carrier_per_s, found.memory_mb, found.rounds) == (20, 2, 3)
    assert found.waits_ms["otp"] == {"count": 10, "p50": 20, "p99": 40, "max": 60}


def test_a_round_that_could_not_be_run_does_not_count_unless_none_could() -> None:
    absent = Came("Jasmin", WINDOW, why_not="Jasmin is not here")
    assert median([absent, absent]) is absent
    (found,) = medians([absent, came("Jasmin", WINDOW, 40)], LOADS, ["Jasmin"])
    assert (found.carrier_per_s, found.rounds) == (40, 1)


def test_the_table_has_a_row_per_load_and_gateway_and_says_what_is_missing() -> None:
    rows = [came("Sluicegate", WINDOW, 480), Came("Kannel", BATCHES, why_not="has no call for many texts")]
    lines = markdown(ABOUT, LOADS, rows).splitlines()
    assert "commit abc" in lines[0] and "in C" in lines[0]
    assert "| 480 of 500/s |" in lines[-2] and "otp 480 / 960" in lines[-2]
    assert "has no call for many texts" in lines[-1]
    assert {line.count("|") for line in lines[2:]} == {lines[2].count("|")}


def test_the_standard_loads_are_those_of_the_design() -> None:
    by_name = {load.name: load for load in LOADS}
    assert by_name[WINDOW].capacity_per_s == 500
    assert by_name[BATCHES].batch == 100
    assert max(load.backlog for load in LOADS) == 1_000_000
    assert sorted(load.tenants for load in LOADS)[-1] == 10_000
