"""Short traces that once showed a difference between the scripts and the model, or a fault of both."""

from __future__ import annotations

from scheduler.core.asks import Ask
from scheduler.core.records import Entry, Flow, Reference
from scheduler.core.tuning import ClassTuning, Tuning
from tests.property.scheduler.played import Player
from tests.property.scheduler.random_policies import START_AT
from tests.property.scheduler.side_by_side import SideBySide

CLASSES = {"otp": ClassTuning(60, 1, 600_000)}
ROUTE = "route:r"
FLOW = Flow("p", "otp", "a", ("tenant:a", ROUTE, "provider:p"), 0)


def test_what_was_promised_in_one_pause_does_not_date_the_promises_of_the_next(redis_url: str) -> None:
    """The first promise of a scope says when all are forgotten: with the end of a pause it is gone with them."""
    ask = Ask((FLOW,), 1, 600_000, 300_000, 600_000, b"place")
    with SideBySide.on(redis_url, START_AT) as both:
        player = Player(both)
        player.play(("tune", 0, {"tuning": Tuning(1, CLASSES)}))
        player.play(("session_up", 0, {"provider": "p", "session": "s1", "ramp": (1.0, 500)}))
        for _ in range(2):  # the second pause begins after the promises of the first would have been forgotten
            player.play(("pause", 6_000, {"scope": ROUTE, "after_ms": 300}))
            player.play(("admit", 20, {"asks": [ask], "first": None}))
            both.compare()
        assert both.model.index.scopes[ROUTE].promised_at == both.now
        player.play(("look", 1_000, {}))
        player.play(("pause", 0, {"scope": ROUTE, "after_ms": None}))
        both.compare()
        assert both.model.index.scopes[ROUTE].promised_at == 0


def test_a_line_that_was_only_looked_at_takes_no_part_in_a_limit(redis_url: str) -> None:
    """What a question about one class does not write must not change the answer to the next question of the call."""
    limited = "destination:it"
    classes = {**CLASSES, "marketing": ClassTuning(10, 32, 600_000)}
    waiting = Flow("p", "marketing", "a", (limited, "provider:p"), 0)
    only_looked_at = Flow("q", "marketing", "a", ("provider:q",), 0)
    asked = Flow("q", "otp", "a", (limited, "provider:q"), 0)
    with SideBySide.on(redis_url, START_AT) as both:
        player = Player(both)
        player.play(("tune", 0, {"tuning": Tuning(1, classes, limits={limited: (1.0, 1)})}))
        references = [Reference(bytes([n]) * 16, 0, 1, int(START_AT) + 900_000, int(START_AT)) for n in range(20)]
        both.ask("enqueue", b"batch", [Entry(flow, one) for flow in (waiting, asked) for one in references])
        both.now += 20
        asks = [Ask((flow,), 1, 600_000, 300_000, 600_000, b"place", probe=True) for flow in (only_looked_at, asked)]
        assert both.ask("admit", asks)[1] == both.ask("admit", asks[1:])[0]
