"""The scripts against the model of the same policy, over random policies and traces (I17-I19, I23-I26).

After every event both must have said the same; at intervals they must remember the same. A failing trace prints its
seed and the shortest trace that was found to fail. `SLUICEGATE_MODEL_SEEDS=1-200` plays other seeds than the few of
every run, `SLUICEGATE_MODEL_EVENTS` sets their length.
"""

from __future__ import annotations

import os
import random
import re

import pytest

from simulations.mutations import mutated
from tests.property.scheduler.played import Player, shortened
from tests.property.scheduler.random_policies import START_AT, Event, Traces
from tests.property.scheduler.side_by_side import SideBySide

EVENTS = int(os.environ.get("SLUICEGATE_MODEL_EVENTS", "700"))


def seeds() -> list[int]:
    """The seeds of this run."""
    first, _, last = os.environ.get("SLUICEGATE_MODEL_SEEDS", "1-6").partition("-")
    return list(range(int(first), int(last or first) + 1))


def failure_of(url: str, events: list[Event], every: int) -> str | None:
    """What differs, and after which event; None where nothing does."""
    with SideBySide.on(url, START_AT) as both:
        player = Player(both)
        for number, event in enumerate(events):
            try:
                player.play(event)
                if number % every == every - 1 or number == len(events) - 1:
                    both.compare()
            except AssertionError as fault:
                return f"event {number} {event[0]}: {fault}"
    return None


def kind_of(fault: str | None) -> str | None:
    """What differs, without the numbers: a trace that is cut down must not come to show something else."""
    return None if fault is None else re.sub(r"\d+", "", fault.partition(": ")[2].partition(": ")[0])


def shortest(url: str, events: list[Event]) -> list[Event]:
    """A short trace that shows what this one shows first."""
    first = failure_of(url, events, 1)
    assert first is not None
    events = events[: int(first.split()[1]) + 1]
    return shortened(events, lambda some: kind_of(failure_of(url, some, 1)) == kind_of(first), played=20_000)


@pytest.mark.parametrize("seed", seeds())
def test_scripts_and_model_agree(redis_url: str, seed: int) -> None:
    events = Traces(random.Random(seed)).events(EVENTS)
    fault = failure_of(redis_url, events, 50)
    if fault is not None:
        short = shortest(redis_url, events)
        raise AssertionError(
            f"seed {seed}: {fault}\nshortest trace: {failure_of(redis_url, short, 1)}\n" + "\n".join(map(repr, short))
        )


def test_a_broken_rule_is_seen_and_its_trace_cut_down(redis_url: str) -> None:
    events = Traces(random.Random(1)).events(200)
    with mutated("weights-ignored"):
        fault = failure_of(redis_url, events, 50)
        assert fault is not None
        short = shortest(redis_url, events)
        assert len(short) <= 12
        assert failure_of(redis_url, short, 1) is not None
    assert failure_of(redis_url, short, 1) is None
