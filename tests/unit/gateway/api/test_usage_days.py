"""The days that usage is asked for: UTC days, whatever clock the asker reads (contract section 2)."""

from __future__ import annotations

from datetime import date

import pytest

from gateway.admission.fields import FieldFault
from gateway.api.usage import _day

TODAY = date(2026, 11, 30)


@pytest.mark.parametrize(
    ("written", "day"),
    [
        ("2026-03-29", "2026-03-29"),
        # Rome's clocks go forward at 01:00 UTC: both sides of the gap, and a reading that no clock there ever shows.
        ("2026-03-29T01:59:59+01:00", "2026-03-29"),
        ("2026-03-29T00:30:00+01:00", "2026-03-28"),
        ("2026-03-29T02:30:00+01:00", "2026-03-29"),
        # And back at 01:00 UTC: the hour that comes twice is two instants by its offset.
        ("2026-10-25T00:30:00+02:00", "2026-10-24"),
        ("2026-10-25T02:30:00+02:00", "2026-10-25"),
        ("2026-10-25T02:30:00+01:00", "2026-10-25"),
        # Midnight, from either side of it and of the globe.
        ("2026-12-31T23:59:59.999Z", "2026-12-31"),
        ("2027-01-01T00:00:00Z", "2027-01-01"),
        ("2027-01-01T13:59:59+14:00", "2026-12-31"),
        ("2026-12-31T12:00:00-12:00", "2027-01-01"),
        ("2026-12-31T23:45:00-00:15", "2027-01-01"),
        ("2028-02-29T23:00:00-01:00", "2028-03-01"),
        # A query in which nobody encoded the plus sign.
        ("2026-10-25T00:30:00 02:00", "2026-10-24"),
        ("2026-06-30t23:59:59z", "2026-06-30"),
    ],
)
def test_a_day_is_the_utc_day_of_the_instant(written: str, day: str) -> None:
    faults: list[FieldFault] = []
    assert _day({"from": written}, "from", TODAY, faults) == date.fromisoformat(day)
    assert faults == []


@pytest.mark.parametrize(
    "written",
    ["2026-02-29", "2026-13-01", "2026-03-29T02:30:00", "2026-03-29T25:00:00Z", "2026-03-29T02:30:00+24:00",
     "2016-12-31T23:59:60Z", "2026-03-29T02:30:00 Europe/Rome", "1796067335", "tomorrow", "2026-03-29T"],
)  # fmt: skip
def test_what_names_no_day_is_a_fault_and_never_another_day(written: str) -> None:
    faults: list[FieldFault] = []
    _day({"to": written}, "to", TODAY, faults)
    assert [fault.pointer for fault in faults] == ["/to"]
