"""Wrong keys from one address: fifty at once, then five a second; others are not concerned."""

from __future__ import annotations

from typing import cast

from gateway.api.authentication import Failures
from gateway.clock import Clock


class _Held:
    mono = 0.0

    def now_mono(self) -> float:
        return self.mono


def test_an_address_that_fails_and_fails_is_turned_away_for_a_while() -> None:
    clock = _Held()
    failures = Failures(cast(Clock, clock))
    for _ in range(50):
        assert not failures.too_many("203.0.113.7")
        failures.note("203.0.113.7")
    assert failures.too_many("203.0.113.7")
    assert not failures.too_many("203.0.113.8")
    clock.mono += 0.3
    assert not failures.too_many("203.0.113.7")
    failures.note("203.0.113.7")
    failures.note("203.0.113.7")
    assert failures.too_many("203.0.113.7")
    clock.mono += 11.0
    assert not failures.too_many("203.0.113.7")


def test_no_more_addresses_are_watched_than_memory_is_set_aside_for() -> None:
    failures = Failures(cast(Clock, _Held()))
    for number in range(10_100):
        failures.note(str(number))
    assert len(failures._spent) == 10_000
