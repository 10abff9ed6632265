"""The whole status table of reliability.md 3.2, row by row: what follows for message, session, route and account."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pytest

from smpp.protocol.status import NAMES, Consequence, consequence


class Row(NamedTuple):
    """What the table asks of a status: the kind, what else rests, whether a person must look before the next bind."""

    kind: str
    holds: str | None = None
    stop: bool = False
    alert: bool = False
    repeats_max: int | None = None


OK = Row("accepted")
NEVER = Row("never")
NEVER_ALERT = Row("never", alert=True)
LATER = Row("later")
HOLD = Row("hold", holds="session", alert=True)
HOLD_ONCE = Row("hold", holds="session", alert=True, repeats_max=1)
STOP = Row("hold", holds="account", stop=True, alert=True)
ROUTE = Row("never", holds="route", alert=True)

TABLE: dict[int, Row] = {
    0x00: OK,
    0x01: NEVER_ALERT,
    0x02: HOLD_ONCE,
    0x03: HOLD_ONCE,
    0x04: HOLD,
    0x05: HOLD,
    0x06: NEVER_ALERT,
    0x07: NEVER_ALERT,
    0x08: Row("later", repeats_max=3),
    0x0A: NEVER,
    0x0B: NEVER,
    0x0C: NEVER,
    0x0D: HOLD,
    0x0E: STOP,
    0x0F: STOP,
    0x11: NEVER,
    0x13: NEVER,
    0x14: LATER,
    0x15: NEVER_ALERT,
    **dict.fromkeys((0x33, 0x34, 0x40, 0x42, 0x44), NEVER),
    0x43: NEVER,
    0x45: NEVER,
    **dict.fromkeys((0x48, 0x49, 0x50, 0x51), NEVER_ALERT),
    0x53: STOP,
    **dict.fromkeys((0x54, 0x55, 0x63), NEVER),
    0x58: Row("throttle"),
    **dict.fromkeys((0x61, 0x62), NEVER_ALERT),
    0x64: LATER,
    **dict.fromkeys((0x65, 0x66), NEVER),
    0x67: NEVER,
    **dict.fromkeys(range(0xC0, 0xC5), NEVER_ALERT),
    0xFE: NEVER,
    0xFF: Row("later", repeats_max=1),
    **dict.fromkeys((0x100, 0x101, 0x103), ROUTE),
    0x102: LATER,
    **dict.fromkeys(range(0x104, 0x113), NEVER),
    # The carrier's own codes, and what no table knows.
    **dict.fromkeys((0x400, 0x42A, 0x4FF, 0x500, 0x09, 0xFFFF_FFFF), NEVER),
}


def _row(said: Consequence) -> Row:
    return Row(said.kind, said.holds, said.stop, said.alert, said.repeats_max)


@pytest.mark.parametrize("status", sorted(TABLE), ids=lambda status: f"0x{status:02X}")
def test_a_status_means_what_the_table_says(status: int) -> None:
    assert _row(consequence(status)) == TABLE[status]


def test_no_status_of_the_specification_is_missing_here() -> None:
    assert set(NAMES) <= set(TABLE)


@dataclass(frozen=True)
class _Override:
    retry: str
    delay_ms: int | None = None


@pytest.mark.parametrize("status", sorted(TABLE), ids=lambda status: f"0x{status:02X}")
@pytest.mark.parametrize("retry", ["throttle", "later", "never", "hold"])
def test_a_provider_may_override_any_status(status: int, retry: str) -> None:
    """With its delay, without the table's own consequences; a status that is not overridden stays as it was."""
    said = consequence(status, {status: _Override(retry, 30_000)})
    assert (said.kind, said.delay_ms, said.stop) == (retry, 30_000, False)
    assert said.holds == ("session" if retry == "hold" else None)
    assert said.repeats_max == (TABLE[status].repeats_max if TABLE[status].kind == retry else None)
    assert _row(consequence(status, {status ^ 0x8000: _Override("later")})) == TABLE[status]
