"""The queue's clock: it follows the server, doubts jumps, and never moves with the local wall clock."""

from __future__ import annotations

import time

import pytest

from gateway.clock import DOUBT_MS, Clock


class Mono:
    """A monotonic clock that the test turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def mono(monkeypatch: pytest.MonkeyPatch) -> Mono:
    return Mono(monkeypatch)


def learn(clock: Clock, mono: Mono, server_at: float, round_trip_s: float = 0.001) -> None:
    asked = mono.now
    mono.now += round_trip_s
    clock.learn(server_at, asked, mono.now)


def test_unmeasured_is_doubtful(mono: Mono) -> None:
    assert Clock().doubtful


def test_follows_the_server_by_the_monotonic_clock(mono: Mono) -> None:
    clock = Clock()
    learn(clock, mono, 5_000_000.0)
    assert not clock.doubtful
    mono.now += 2.5
    assert abs(clock.now_at() - 5_002_500) <= 2


def test_small_corrections_never_put_it_back(mono: Mono) -> None:
    """Invariant I33: what a process dates later is never dated earlier, however far off a slow answer was."""
    clock = Clock()
    learn(clock, mono, 5_000_000.0)
    mono.now += 1
    before = clock.now_at()
    learn(clock, mono, 5_000_900.0)
    assert clock.now_at() == before
    mono.now += 0.2
    assert before < clock.now_at() <= before + 110
    for _ in range(5):
        learn(clock, mono, 1_000_000.0)
    assert clock.now_at() <= 1_000_001, "a step that is believed is taken"


def test_the_local_wall_clock_changes_only_the_offset(mono: Mono, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    learn(clock, mono, 5_000_000.0)
    before, offset = clock.now_at(), clock.offset_ms
    real = time.time()
    monkeypatch.setattr(time, "time", lambda: real + 3600)
    assert clock.now_at() == before
    assert abs(clock.offset_ms - (offset - 3_600_000)) < 1_000


def test_a_jump_is_doubted_until_several_measurements_agree(mono: Mono) -> None:
    clock = Clock()
    learn(clock, mono, 5_000_000.0)
    begin_mono = mono.now
    seen = []
    for _ in range(6):
        mono.now += 1.0
        learn(clock, mono, 5_000_000.0 + 60_000.0 + (mono.now - begin_mono) * 1000)
        seen.append(clock.doubtful)
    assert seen[:4] == [True] * 4
    assert seen[-1] is False
    assert clock.now_at() > 5_060_000


def test_a_jump_that_goes_back_is_forgotten(mono: Mono) -> None:
    clock = Clock()
    learn(clock, mono, 5_000_000.0)
    mono.now += 1.0
    learn(clock, mono, 9_000_000.0)
    assert clock.doubtful
    mono.now += 1.0
    learn(clock, mono, 5_002_002.0)
    assert not clock.doubtful
    assert abs(clock.now_at() - 5_002_002) < 5


def test_slow_answers_teach_nothing_and_silence_breeds_doubt(mono: Mono) -> None:
    clock = Clock()
    learn(clock, mono, 5_000_000.0, round_trip_s=2.0)
    assert clock.doubtful
    learn(clock, mono, 5_002_000.0)
    assert not clock.doubtful
    mono.now += DOUBT_MS / 0.5 + 1
    assert clock.doubtful
