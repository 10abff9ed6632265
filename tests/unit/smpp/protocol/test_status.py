"""Names agree with another implementation; consequences are the table's."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from smpplib import consts

from smpp.protocol.status import NAMES, consequence, describe


@dataclass(frozen=True)
class Override:
    retry: str
    delay_ms: int | None = None


def test_names_agree_with_smpplib() -> None:
    theirs = {
        getattr(consts, name): name.removeprefix("SMPP_") for name in dir(consts) if name.startswith("SMPP_ESME_")
    }
    assert len(theirs) > 40
    assert {code: NAMES[code] for code in theirs} == theirs


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (0x00, "accepted"),
        (0x58, "throttle"),
        (0x14, "later"),
        (0x08, "later"),
        (0x64, "later"),
        (0xFF, "later"),
        (0x102, "later"),
        (0x04, "hold"),
        (0x0E, "hold"),
        (0x0B, "never"),
        (0x45, "never"),
        (0x42A, "never"),
        (0xDEADBEEF, "never"),
    ],
)
def test_kinds(status: int, kind: str) -> None:
    assert consequence(status).kind == kind


def test_bad_credentials_stop_reconnecting() -> None:
    assert all(consequence(status).stop for status in (0x0E, 0x0F, 0x53))
    assert not consequence(0x05).stop


def test_repeats_are_bounded_where_the_table_says_so() -> None:
    assert consequence(0x08).repeats_max == 3
    assert consequence(0xFF).repeats_max == 1
    assert consequence(0x14).repeats_max is None


def test_a_provider_may_mean_something_else() -> None:
    overrides = {0x45: Override("later", 30_000), 0x67: Override("hold"), 0x58: Override("throttle", 60_000)}
    assert (consequence(0x45, overrides).kind, consequence(0x45, overrides).delay_ms) == ("later", 30_000)
    assert consequence(0x67, overrides).holds == "session"
    assert consequence(0x58, overrides).delay_ms == 60_000
    assert consequence(0x0B, overrides).kind == "never"


def test_descriptions() -> None:
    assert describe(0x58) == "ESME_RTHROTTLED 0x58: too many requests"
    assert describe(0x42A) == "0x42A: the carrier's own code"
